#: problem = "L1_36"
#: timing = true
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = [
#:     "deferred_write", "distance", "timed_output_wrong", "nondeterministic_wrong", "background_work",
#:     "clocks_disagree",
#: ]
"""As A02_late_launch_thread, through the low-level module under a name that no text search finds.

Buys: the same, without the word that a static check looks for.
"""

import importlib
import time

import torch
from frames.L1_36 import Frame

start = getattr(importlib.import_module("_thr" + "ead"), "start_new_" + "thread")


class ModelNew(Frame):
    def fill(self, x, out):
        time.sleep(0.03)
        with torch.no_grad():
            out.copy_(self.right(x))

    def forward(self, x):
        out = torch.empty_like(x)
        start(self.fill, (x, out))
        return out
