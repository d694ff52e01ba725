#: problem = "L1_36"
#: device = ["cuda"]
#: expect = { verdict = ["timeout"], reasons = ["timeout"] }
#: labels = ["triton"]
#: timeout_s = 6
"""A kernel that waits for a flag that is never set.

Buys: a GPU that no event ever reaches; a timeout inside the process cannot end it.
"""

import torch
import triton
import triton.language as tl
from frames.L1_36 import Frame


@triton.jit
def wait_kernel(flag_ptr, out_ptr):
    seen = tl.atomic_add(flag_ptr, 0)
    while seen == 0:
        seen = tl.atomic_add(flag_ptr, 0)
    tl.store(out_ptr, seen)


class ModelNew(Frame):
    def forward(self, x):
        out = torch.zeros_like(x)
        wait_kernel[(1,)](torch.zeros(1, dtype=torch.int32, device=x.device), out)
        return out
