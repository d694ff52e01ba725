#: problem = "L1_36"
#: timing = true
#: expect = { verdict = ["incorrect"], reasons = ["wrong_type"] }
"""A tensor that is empty until it is copied to the CPU or compared, and does the work then.

Buys: the work falls into the check, outside the clock.
"""

import torch
from frames.L1_36 import Frame


class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [value.work() if type(value) is Later else value for value in args]
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class ModelNew(Frame):
    def forward(self, x):
        out = torch.empty_like(x).as_subclass(Later)
        out.work = lambda: self.right(x)
        return out
