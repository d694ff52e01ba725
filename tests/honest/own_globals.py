#: problem = "L2_37"
#: class = ["fp32", "tf32"]
#: labels = ["triton", "torch_fallback"]
"""Module globals with the names of the problem's, and other values: a judge that mixes the two modules up fails.

Honest: they are this file's own names (leftovers of a small test); the sizes that count come from the arguments.
"""

import torch
import triton
import triton.language as tl
from frames.L2_37 import Frame

batch_size = 1
in_features = 3
out_features = 4
num_groups = 2
bias_shape = (4,)
N = 3


@triton.jit
def tail_kernel(y_ptr, extra_ptr, gamma_ptr, beta_ptr, out_ptr, groups, eps, GROUP: tl.constexpr, WIDE: tl.constexpr):
    """One group of one row of group_norm(swish(y) + extra). Grid: (rows, groups)."""
    offset = tl.arange(0, WIDE)
    known = offset < GROUP
    n = tl.program_id(1) * GROUP + offset
    at = tl.program_id(0).to(tl.int64) * groups * GROUP + n
    y = tl.load(y_ptr + at, mask=known, other=0.0)
    y = tl.where(known, y * tl.sigmoid(y) + tl.load(extra_ptr + n, mask=known, other=0.0), 0.0)
    y = tl.where(known, y - tl.sum(y, axis=0) / GROUP, 0.0)
    y *= 1.0 / tl.sqrt(tl.sum(y * y, axis=0) / GROUP + eps)
    y = y * tl.load(gamma_ptr + n, mask=known, other=0.0) + tl.load(beta_ptr + n, mask=known, other=0.0)
    tl.store(out_ptr + at, y, mask=known)


class ModelNew(Frame):
    """GroupNorm(swish(linear(x)) + bias)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.addmm(self.matmul.bias, x, self.matmul.weight.t())
        out = torch.empty_like(y)
        rows, features = y.shape
        norm = self.group_norm
        group = features // norm.num_groups
        tail_kernel[(rows, norm.num_groups)](
            y, self.bias, norm.weight, norm.bias, out, norm.num_groups, norm.eps,
            GROUP=group, WIDE=triton.next_power_of_2(group), num_warps=1,
        )  # fmt: skip
        return out
