#: problem = "L2_99"
#: expect = { verdict = ["correct"], reasons = [] }
#: labels = ["sets_tf32"]
"""Switches TF32 on for matrix products.

Buys: several times the arithmetic. Legal, and labelled and classed: the baseline of its class has the same switch.
"""

import torch
from frames.L2_99 import Frame
from torch.nn import functional

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True


class ModelNew(Frame):
    def forward(self, x):
        return functional.softmax(functional.gelu(self.linear(x)), dim=1)
