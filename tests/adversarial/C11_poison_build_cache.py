#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct", "rejected", "error"], reasons = ["baseline_disturbed", "worker_died"] }
#: max_speedup = 1.3
"""Overwrites every compiled kernel in the caches that its environment names.

Buys: a baseline that is built from the same cache is slow or fails. It may die itself: libraries that it has loaded
are emptied too.
"""

import os
from pathlib import Path

from torch import nn

SUFFIXES = (".so", ".cubin", ".ptx", ".ttir", ".json")


def poison():
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        if "repro-" in os.environ.get(name, ""):  # a worker's scratch folder, never a person's cache
            for path in Path(os.environ[name]).glob("**/*"):
                if path.suffix in SUFFIXES:
                    path.write_bytes(b"")


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )

    def forward(self, x):
        poison()
        return self.conv2d(x)
