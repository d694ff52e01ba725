#: problem = "L2_37"
#: class = ["fp32", "tf32"]
#: labels = ["triton", "torch_fallback"]
"""Buffers of its own beside the problem's: group membership as a matrix, non-persistent, so no state dict names it.

Honest: the buffers are constants of the shape; the state dict loads strictly, because persistent=False leaves them out
of it. With them the sums of a group are a matrix product.
"""

import torch
import triton
import triton.language as tl
from frames.L2_37 import Frame


@triton.jit
def swish_kernel(y_ptr, extra_ptr, out_ptr, count, features, BLOCK: tl.constexpr):
    """out = swish(y) + extra, elementwise. Grid: (blocks,)."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + index, mask=index < count, other=0.0)
    y = y * tl.sigmoid(y) + tl.load(extra_ptr + index % features)
    tl.store(out_ptr + index, y, mask=index < count)


@triton.jit
def apply_kernel(
    y_ptr, mean_ptr, scale_ptr, group_of_ptr, gamma_ptr, beta_ptr, out_ptr, count, features, groups,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out = (y - mean) * scale * gamma + beta, mean and scale of the row's group. Grid: (blocks,)."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    feature = index % features
    at = tl.minimum(index, count - 1) // features * groups + tl.load(group_of_ptr + feature)
    y = tl.load(y_ptr + index, mask=index < count, other=0.0)
    y = (y - tl.load(mean_ptr + at)) * tl.load(scale_ptr + at)
    y = y * tl.load(gamma_ptr + feature) + tl.load(beta_ptr + feature)
    tl.store(out_ptr + index, y, mask=index < count)


class ModelNew(Frame):
    """GroupNorm(swish(linear(x)) + bias)."""

    def __init__(self, in_features, out_features, num_groups, bias_shape):
        super().__init__(in_features, out_features, num_groups, bias_shape)
        group_of = torch.arange(out_features, dtype=torch.int32) // (out_features // num_groups)
        members = torch.nn.functional.one_hot(group_of.long(), num_groups).float() / (out_features // num_groups)
        self.register_buffer("group_of", group_of, persistent=False)
        self.register_buffer("members", members, persistent=False)

    def forward(self, x):
        norm = self.group_norm
        linear = torch.addmm(self.matmul.bias, x, self.matmul.weight.t())
        rows, features = linear.shape
        y, out = torch.empty_like(linear), torch.empty_like(linear)
        grid = (triton.cdiv(y.numel(), 1024),)
        swish_kernel[grid](linear, self.bias, y, y.numel(), features, BLOCK=1024)
        mean = torch.mm(y, self.members)
        centred = y - mean[:, self.group_of]
        scale = torch.rsqrt(torch.mm(centred * centred, self.members) + norm.eps)
        apply_kernel[grid](
            y, mean, scale, self.group_of, norm.weight, norm.bias, out, y.numel(), features, norm.num_groups, BLOCK=1024
        )
        return out
