#: problem = "L2_99"
#: expect = { verdict = ["correct"], reasons = [] }
#: labels = ["no_custom_kernel", "torch_fallback"]
"""The reference in other words.

Buys: nothing; a result without a kernel of its own is labelled so.
"""

from torch import nn
from torch.nn import functional


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return functional.softmax(functional.gelu(functional.linear(x, self.linear.weight, self.linear.bias)), dim=1)
