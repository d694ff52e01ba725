#: problem = "L3_44"
#: class = ["fp32", "tf32"]
#: labels = ["triton", "torch_fallback"]
"""In-place operations throughout, on temporaries of the call: add_, mul_, tanh_, a kernel that overwrites its input.

Honest: the first in-place write is to the result of an addition, never to x; the inputs do not change.
"""

import math

import torch
import triton
import triton.language as tl
from frames.L3_44 import Attention, Frame
from torch import nn


@triton.jit
def layer_norm_kernel(x_ptr, gamma_ptr, beta_ptr, width, eps, BLOCK: tl.constexpr):
    """Layer norm of each row, in place. Grid: (rows,)."""
    column = tl.arange(0, BLOCK)
    inside = column < width
    at = x_ptr + tl.program_id(0).to(tl.int64) * width + column
    x = tl.load(at, mask=inside, other=0.0)
    x = tl.where(inside, x - tl.sum(x, axis=0) / width, 0.0)
    x *= 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / width + eps)
    x = x * tl.load(gamma_ptr + column, mask=inside, other=0.0) + tl.load(beta_ptr + column, mask=inside, other=0.0)
    tl.store(at, x, mask=inside)


def layer_norm_(x: torch.Tensor, norm: nn.LayerNorm) -> torch.Tensor:
    """Overwrites x (..., width) with its layer norm."""
    width = x.shape[-1]
    layer_norm_kernel[(x.numel() // width,)](
        x, norm.weight, norm.bias, width, norm.eps, BLOCK=triton.next_power_of_2(width)
    )
    return x


def gelu_(x: torch.Tensor) -> torch.Tensor:
    """Overwrites x with its GELU in the tanh form."""
    inner = x.pow(3).mul_(0.044715).add_(x).mul_(math.sqrt(2.0 / math.pi)).tanh_().add_(1.0)
    return x.mul_(inner).mul_(0.5)


class CausalSelfAttention(Attention):
    """One projection to q, k and v, causal attention, output projection."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.c_attn(x).view(batch, length, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(-2, -1)).mul_(1.0 / math.sqrt(k.shape[-1]))
        scores.masked_fill_(self.bias[:, :, :length, :length] == 0, float("-inf"))
        scores.sub_(scores.amax(-1, keepdim=True)).exp_()
        scores.div_(scores.sum(-1, keepdim=True))
        return self.c_proj(torch.matmul(scores, v).transpose(1, 2).reshape(batch, length, width))


class ModelNew(Frame):
    """x + attn(ln_1(x)), then x + mlp(ln_2(x)); the dropouts are idle in evaluation."""

    attention = CausalSelfAttention

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = layer_norm_(x.clone(memory_format=torch.contiguous_format), self.ln_1)
        middle = self.attn(normed).add_(x).contiguous()
        hidden = gelu_(self.mlp["c_fc"](layer_norm_(middle.clone(), self.ln_2)))
        return middle.add_(self.mlp["c_proj"](hidden))
