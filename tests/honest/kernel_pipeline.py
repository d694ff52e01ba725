#: problem = "L3_44"
#: class = ["fp32", "tf32"]
#: labels = ["triton"]
"""A pipeline of many kernels, none of them the library's: layer norms, four products with epilogues, attention.

Honest: seven launches a call, each of which reads what the one before wrote. Intermediate tensors live for the call.
"""

import math

import torch
import triton
import triton.language as tl
from frames.attention import attention_kernel
from frames.L3_44 import Frame
from torch import nn


@triton.jit
def layer_norm_kernel(x_ptr, gamma_ptr, beta_ptr, out_ptr, width, eps, BLOCK: tl.constexpr):
    """Layer norm of each row. Grid: (rows,)."""
    column = tl.arange(0, BLOCK)
    inside = column < width
    row = tl.program_id(0).to(tl.int64) * width
    x = tl.load(x_ptr + row + column, mask=inside, other=0.0)
    x = tl.where(inside, x - tl.sum(x, axis=0) / width, 0.0)
    x *= 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / width + eps)
    x = x * tl.load(gamma_ptr + column, mask=inside, other=0.0) + tl.load(beta_ptr + column, mask=inside, other=0.0)
    tl.store(out_ptr + row + column, x, mask=inside)


@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, bias_ptr, residual_ptr, out_ptr, M, N, K, GELU: tl.constexpr, RESIDUAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out (M, N) = x (M, K) weight (N, K)^T + bias, then GELU or plus residual. Grid: (row blocks, column blocks)."""
    m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w = tl.load(weight_ptr + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        acc = tl.dot(x, tl.trans(w), acc, input_precision="ieee")
    y = acc + tl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    at = m[:, None] * N + n[None, :]
    inside = (m < M)[:, None] & (n < N)[None, :]
    if GELU:
        u = 0.7978845608028654 * (y + 0.044715 * y * y * y)
        y = y / (1.0 + tl.exp(tl.minimum(-2.0 * u, 80.0)))
    if RESIDUAL:
        y += tl.load(residual_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + at, y, mask=inside)


def layer_norm(x: torch.Tensor, norm: nn.LayerNorm) -> torch.Tensor:
    """Layer norm of x (rows, width)."""
    out = torch.empty_like(x)
    rows, width = x.shape
    layer_norm_kernel[(rows,)](x, norm.weight, norm.bias, out, width, norm.eps, BLOCK=triton.next_power_of_2(width))
    return out


def linear(x: torch.Tensor, layer: nn.Linear, gelu: bool = False, residual: torch.Tensor | None = None) -> torch.Tensor:
    """x (rows, depth) through the layer."""
    (M, K), N = x.shape, layer.out_features
    out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    linear_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64))](
        x, layer.weight, layer.bias, x if residual is None else residual, out, M, N, K,
        GELU=gelu, RESIDUAL=residual is not None, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32,
    )  # fmt: skip
    return out


class ModelNew(Frame):
    """x + attn(ln_1(x)), then x + mlp(ln_2(x)); the dropouts are idle in evaluation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = self.attn.n_head
        depth = width // heads
        flat = x.contiguous().view(-1, width)
        qkv = linear(layer_norm(flat, self.ln_1), self.attn.c_attn)
        attended = torch.empty_like(flat)
        attention_kernel[(triton.cdiv(length, 32), heads, batch)](
            qkv, attended, length, heads, 1.0 / math.sqrt(depth),
            DEPTH=depth, WIDE=max(16, triton.next_power_of_2(depth)), BLOCK_Q=32, BLOCK_T=32, num_stages=2,
        )  # fmt: skip
        middle = linear(attended, self.attn.c_proj, residual=flat)
        hidden = linear(layer_norm(middle, self.ln_2), self.mlp["c_fc"], gelu=True)
        return linear(hidden, self.mlp["c_proj"], residual=middle).view(x.shape)
