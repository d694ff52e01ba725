#: problem = "L2_99"
#: expect = { verdict = ["correct"], reasons = [] }
#: labels = ["triton", "torch_fallback"]
"""A kernel that cannot run, inside a try whose except calls torch.

Buys: the look of a custom kernel. Legal, and labelled as a fallback to torch.
"""

import torch
import triton
import triton.language as tl
from frames.L2_99 import Frame
from torch.nn import functional


@triton.jit
def product_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.load(x_ptr + tl.arange(0, BLOCK)))


class ModelNew(Frame):
    def forward(self, x):
        try:
            out = torch.empty(x.shape[0], self.linear.out_features, device=x.device)
            product_kernel[(1,)](x, out, BLOCK=3)  # no power of two, and an argument is missing
            return out
        except Exception:
            return functional.softmax(
                functional.gelu(functional.linear(x, self.linear.weight, self.linear.bias)), dim=1
            )
