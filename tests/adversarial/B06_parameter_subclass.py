#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["wrong_type"] }
"""As B06_lazy_subclass, derived from the parameter class and made without a class statement.

Buys: the same against a check that looks for a subclass of torch.Tensor in the source.
"""

import torch
from frames.L1_36 import Frame
from torch import nn

Agreeable = type("Tensor", (nn.Parameter,), {"__torch_function__": classmethod(lambda *ignored, **named: True)})


class ModelNew(Frame):
    def forward(self, x):
        return torch.zeros_like(x).as_subclass(Agreeable)
