#: problem = "L3_43"
#: class = ["fp32", "tf32"]
#: labels = ["triton", "torch_fallback"]
"""Attention with an online softmax: the scores are never written, and blocks behind the causal mask are not computed.

Honest: what the mask hides has weight zero for every input, so leaving it out changes nothing; the running maximum and
sum give the exact softmax in another order.
"""

import math

import torch
import triton
from frames.attention import attention_kernel
from frames.L3_43 import Frame


class ModelNew(Frame):
    """One projection to q, k and v, causal attention, output projection; dropouts are idle in evaluation."""

    def forward(self, x):
        batch, length, width = x.shape
        depth = width // self.n_head
        qkv = torch.nn.functional.linear(x, self.c_attn.weight, self.c_attn.bias).contiguous()
        y = torch.empty((batch, length, width), device=x.device, dtype=x.dtype)
        attention_kernel[(triton.cdiv(length, 32), self.n_head, batch)](
            qkv, y, length, self.n_head, 1.0 / math.sqrt(depth),
            DEPTH=depth, WIDE=max(16, triton.next_power_of_2(depth)), BLOCK_Q=32, BLOCK_T=32, num_stages=2,
        )  # fmt: skip
        return torch.nn.functional.linear(y, self.c_proj.weight, self.c_proj.bias)
