#: problem = "L1_36"
#: compiled = true
#: expect = { verdict = ["correct"], reasons = [] }
#: labels = ["torch_compile", "no_custom_kernel"]
"""torch.compile of the reference as the kernel.

Buys: what the compiler buys. Legal, labelled, and measured against torch.compile.
"""

import torch
from frames.L1_36 import Frame


def norm(x, eps: float):
    return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + eps)


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.compiled = torch.compile(norm)

    def forward(self, x):
        return self.compiled(x, self.eps)
