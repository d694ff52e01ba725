#: problem = "L3_44"
#: class = ["fp32", "tf32"]
#: labels = ["triton", "torch_fallback"]
"""In-place operations throughout, on temporaries of the call: add_, mul_, tanh_, a kernel that overwrites its input.

Honest: the first in-place write is to the result of an addition, never to x; the inputs do not change.
"""

import math

import torch
from frames.L3_44 import Attention, Frame
from frames.layer_norm import layer_norm


def gelu_(x):
    """Overwrites x with its GELU in the tanh form."""
    inner = x.pow(3).mul_(0.044715).add_(x).mul_(math.sqrt(2.0 / math.pi)).tanh_().add_(1.0)
    return x.mul_(inner).mul_(0.5)


class CausalSelfAttention(Attention):
    """One projection to q, k and v, causal attention, output projection."""

    def forward(self, x):
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

    def forward(self, x):
        normed = x.clone(memory_format=torch.contiguous_format)
        middle = self.attn(layer_norm(normed, self.ln_1, normed)).add_(x).contiguous()
        normed = middle.clone()
        hidden = gelu_(self.mlp["c_fc"](layer_norm(normed, self.ln_2, normed)))
        return middle.add_(self.mlp["c_proj"](hidden))
