#: problem = "L3_44"
#: class = ["fp32", "tf32"]
#: labels = ["triton", "torch_fallback"]
"""tanh by way of exp2: the GELU of the problem, which is the tanh form, fused with bias, through the fast exponential.

Honest: 0.5 (1 + tanh(u)) = 1 / (1 + 2^(-2 u log2(e))) is an identity; exp2 maps to one instruction of the hardware,
whose error is two units in the last place.
"""

import torch
import triton
import triton.language as tl
from frames.L3_44 import Attention, Frame


@triton.jit
def bias_gelu_kernel(x_ptr, bias_ptr, out_ptr, count, features, BLOCK: tl.constexpr):
    """out = gelu_tanh(x + bias), elementwise. Grid: (blocks,)."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < count, other=0.0) + tl.load(bias_ptr + index % features)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    y = x / (1.0 + tl.math.exp2(tl.minimum(u * -2.8853900817779268, 120.0)))
    tl.store(out_ptr + index, y, mask=index < count)


class CausalSelfAttention(Attention):
    """One projection to q, k and v, causal attention, output projection."""

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.c_attn(x).view(batch, length, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class ModelNew(Frame):
    """x + attn(ln_1(x)), then x + mlp(ln_2(x)); the dropouts are idle in evaluation."""

    attention = CausalSelfAttention

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        expand = self.mlp["c_fc"]
        raw = torch.matmul(self.ln_2(x), expand.weight.t()).contiguous()
        hidden = torch.empty_like(raw)
        bias_gelu_kernel[(triton.cdiv(raw.numel(), 1024),)](
            raw, expand.bias, hidden, raw.numel(), expand.out_features, BLOCK=1024
        )
        return x + self.mlp["c_proj"](hidden)
