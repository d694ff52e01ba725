#: problem = "L2_99"
#: expect = { verdict = ["correct"], reasons = [] }
#: precision_class = ["bf16"]
"""Computes in bfloat16 and casts the result back to float32.

Buys: several times the arithmetic under a tolerance of 1e-2. Legal, and its measured class is bf16.
"""

from frames.L2_99 import Frame
from torch.nn import functional


class ModelNew(Frame):
    def forward(self, x):
        linear = functional.linear(x.bfloat16(), self.linear.weight.bfloat16(), self.linear.bias.bfloat16())
        return functional.softmax(functional.gelu(linear.float()), dim=1)
