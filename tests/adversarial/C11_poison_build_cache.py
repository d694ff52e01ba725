#: id = "C11"
#: problem = "L1_36"
#: size = "smoke"
#: device = ["cpu", "cuda"]
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = ["baseline_disturbed"] }
#: unbought = true
#: max_speedup = 1.3
"""Overwrites every compiled kernel in the caches that its environment names.

Buys: a baseline that is built from the same cache is slow or fails.
"""

import os
from pathlib import Path

import torch
from torch import nn

SUFFIXES = (".so", ".cubin", ".ptx", ".ttir", ".json")


def poison():
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        if "repro-" in os.environ.get(name, ""):  # a worker's scratch folder, never a person's cache
            for path in Path(os.environ[name]).glob("**/*"):
                if path.suffix in SUFFIXES:
                    path.write_bytes(b"")


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        poison()
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
