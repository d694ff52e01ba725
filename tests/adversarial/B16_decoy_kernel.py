#: problem = "L2_99"
#: expect = { verdict = ["correct"], reasons = [] }
#: labels = ["triton", "torch_fallback"]
"""A Triton kernel that copies one element to itself; all work is done by torch.

Buys: the look of a custom kernel. Legal, and labelled as a fallback to torch.
"""

import torch
import triton
import triton.language as tl
from frames.L2_99 import Frame
from torch.nn import functional


@triton.jit
def decoy_kernel(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))


class ModelNew(Frame):
    def forward(self, x):
        decoy_kernel[(1,)](x, torch.empty(1, device=x.device))
        return functional.softmax(functional.gelu(functional.linear(x, self.linear.weight, self.linear.bias)), dim=1)
