#: problem = "L2_99"
#: expect = { verdict = ["correct"], reasons = [] }
#: precision_class = ["bf16"]
"""Computes in bfloat16 and casts the result back to float32.

Buys: several times the arithmetic under a tolerance of 1e-2. Legal, and its measured class is bf16.
"""

from torch import nn
from torch.nn import functional


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        linear = functional.linear(x.bfloat16(), self.linear.weight.bfloat16(), self.linear.bias.bfloat16())
        return functional.softmax(functional.gelu(linear.float()), dim=1)
