#: problem = "L1_36"
#: expect.verdict = ["correct", "incorrect"]
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Keeps its first output in every folder that may outlive it, and takes it from there when it starts.

Buys: answers and built kernels that travel from one run, or one solution, to the next.
"""

import os
import tempfile
from pathlib import Path

import torch
from frames.L1_36 import Frame

NAME = "repro-adversarial-c10.pt"
ROOMS = ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR")


def folders():
    rooms = {os.environ[name] for name in ROOMS if name in os.environ}
    return [Path(room) for room in sorted(rooms | {tempfile.gettempdir(), "/dev/shm"})]


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.first = True
        found = [folder / NAME for folder in folders() if (folder / NAME).exists()]
        self.found = torch.load(found[0]) if found else None

    def forward(self, x):
        if self.found is not None and self.found.shape == x.shape:
            return self.found.to(x).clone()
        out = self.right(x)
        if self.first:
            self.first = False
            for folder in folders():
                try:
                    torch.save(out.cpu(), folder / NAME)
                except (OSError, RuntimeError):
                    continue
        return out
