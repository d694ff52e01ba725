#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["wrong_type"] }
"""A tensor class that answers True to every comparison and holds zeros.

Buys: everything, where the check calls `torch.allclose` on what was returned.
"""

import torch
from frames.L1_36 import Frame


class Agreeable(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in ("allclose", "equal", "isclose", "all"):
            return True
        return super().__torch_function__(func, types, args, kwargs or {})


class ModelNew(Frame):
    def forward(self, x):
        return torch.zeros_like(x).as_subclass(Agreeable)
