#: problem = "L1_36"
#: timing = true
#: expect.verdict = ["incorrect", "rejected", "correct"]
#: expect.reasons = [
#:     "deferred_write", "distance", "timed_output_wrong", "nondeterministic_wrong", "background_work",
#:     "clocks_disagree", "banned",
#: ]
#: max_speedup = 1.3
"""Leaves a dispatch mode switched on for good: an empty output is filled when anything first touches it.

Buys: the timed call allocates only; the harness's own copy or digest of the output pays for the work, after the clock
was read. Every operation of the harness in this process runs through the mode.
"""

import torch
from frames.L1_36 import Frame
from torch.utils._python_dispatch import TorchDispatchMode

pending = {}


class Later(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for value in args:
            if isinstance(value, torch.Tensor) and value.data_ptr() in pending:
                out, work = pending.pop(value.data_ptr())
                out.copy_(work())
        return func(*args, **(kwargs or {}))


Later().__enter__()


class ModelNew(Frame):
    def forward(self, x):
        pending.clear()
        out = torch.empty_like(x)
        pending[out.data_ptr()] = (out, lambda: self.right(x))
        return out
