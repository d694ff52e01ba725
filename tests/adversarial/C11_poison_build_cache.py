#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct", "rejected", "error"], reasons = ["baseline_disturbed", "worker_died"] }
#: max_speedup = 1.3
"""Overwrites every compiled kernel in the caches that its environment names, and the baselines that the judge keeps.

Buys: a baseline that is built from the same cache is slow or fails, also in later runs. It may die itself: libraries
that it has loaded are emptied too.
"""

import os
from pathlib import Path

from frames.L1_82 import Frame

SUFFIXES = (".so", ".cubin", ".ptx", ".ttir", ".json")


def poison():
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        if "repro-" in os.environ.get(name, ""):  # a worker's scratch folder, never a person's cache
            for path in Path(os.environ[name]).glob("**/*"):
                if path.suffix in SUFFIXES:
                    path.write_bytes(b"")


class ModelNew(Frame):
    def forward(self, x):
        poison()
        for path in Path("/tmp/repro-state").glob("baselines-*/*"):
            path.write_bytes(b"")
        return self.conv2d(x)
