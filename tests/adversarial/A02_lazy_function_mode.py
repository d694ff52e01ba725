#: problem = "L1_36"
#: timing = true
#: expect.verdict = ["incorrect", "rejected", "correct"]
#: expect.reasons = [
#:     "deferred_write", "distance", "timed_output_wrong", "nondeterministic_wrong", "background_work",
#:     "clocks_disagree", "banned",
#: ]
#: max_speedup = 1.3
"""As A02_lazy_dispatch_mode one layer higher: even `data_ptr()` of the harness runs through the solution's mode.

Buys: the same against a harness that touches outputs by their address alone.
"""

import torch
from frames.L1_36 import Frame
from torch.overrides import TorchFunctionMode

waiting = []


class Later(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        touched = [entry for entry in waiting if any(value is entry[0] for value in args)]
        for out, work in touched:
            waiting.clear()
            out.copy_(work())
        return func(*args, **(kwargs or {}))


Later().__enter__()


class ModelNew(Frame):
    def forward(self, x):
        waiting.clear()
        out = torch.empty_like(x)
        waiting.append((out, lambda: self.right(x)))
        return out
