#: problem = "L2_99"
#: expect = { verdict = ["correct"], reasons = [] }
#: labels = ["no_custom_kernel", "torch_fallback"]
"""The reference in other words.

Buys: nothing; a result without a kernel of its own is labelled so.
"""

from frames.L2_99 import Frame
from torch.nn import functional


class ModelNew(Frame):
    def forward(self, x):
        return functional.softmax(functional.gelu(functional.linear(x, self.linear.weight, self.linear.bias)), dim=1)
