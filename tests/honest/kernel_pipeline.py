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
from frames.layer_norm import layer_norm
from frames.linear import product_tile, unchanged


@triton.jit
def epilogue_kernel(
    x_ptr, weight_ptr, bias_ptr, residual_ptr, out_ptr, M, N, K, GELU: tl.constexpr, RESIDUAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out (M, N) = x (M, K) weight (N, K)^T + bias, then GELU or plus residual. Grid: (row blocks, column blocks)."""
    m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = product_tile(x_ptr, weight_ptr, m, n, M, N, K, 0, K, BLOCK_M, BLOCK_N, BLOCK_K, "ieee", unchanged)
    y = acc + tl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    at = m[:, None] * N + n[None, :]
    inside = (m < M)[:, None] & (n < N)[None, :]
    if GELU:
        u = 0.7978845608028654 * (y + 0.044715 * y * y * y)
        y = y / (1.0 + tl.exp(tl.minimum(-2.0 * u, 80.0)))
    if RESIDUAL:
        y += tl.load(residual_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + at, y, mask=inside)


def layer(x, of, gelu=False, residual=None):
    """x (rows, depth) through a linear layer."""
    (M, K), N = x.shape, of.out_features
    out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    epilogue_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64))](
        x, of.weight, of.bias, x if residual is None else residual, out, M, N, K,
        GELU=gelu, RESIDUAL=residual is not None, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32,
    )  # fmt: skip
    return out


class ModelNew(Frame):
    """x + attn(ln_1(x)), then x + mlp(ln_2(x)); the dropouts are idle in evaluation."""

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.attn.n_head
        depth = width // heads
        flat = x.contiguous().view(-1, width)
        qkv = layer(layer_norm(flat, self.ln_1, torch.empty_like(flat)), self.attn.c_attn)
        attended = torch.empty_like(flat)
        attention_kernel[(triton.cdiv(length, 32), heads, batch)](
            qkv, attended, length, heads, 1.0 / math.sqrt(depth),
            DEPTH=depth, WIDE=max(16, triton.next_power_of_2(depth)), BLOCK_Q=32, BLOCK_T=32, num_stages=2,
        )  # fmt: skip
        middle = layer(attended, self.attn.c_proj, residual=flat)
        hidden = layer(layer_norm(middle, self.ln_2, torch.empty_like(flat)), self.mlp["c_fc"], gelu=True)
        return layer(hidden, self.mlp["c_proj"], residual=middle).view(x.shape)
