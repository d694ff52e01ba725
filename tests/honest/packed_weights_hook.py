#: problem = "L3_43"
#: class = ["fp32", "tf32"]
#: labels = ["triton", "torch_fallback"]
"""Weights prepared on first use, dropped by hooks when they change: the scale of attention is folded into the queries.

Honest: load_state_dict runs the hook, a move to another device or type goes through `_apply`; both drop the prepared
copy, and the next call makes it anew. No result is kept.
"""

import math

import torch
import triton
import triton.language as tl
from frames.L3_43 import Frame


@triton.jit
def causal_softmax_kernel(scores_ptr, length, BLOCK: tl.constexpr):
    """Softmax of row i over its first i + 1 columns, zeros after them, in place. Grid: (length, batch * heads)."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    at = scores_ptr + (tl.program_id(1).to(tl.int64) * length + row) * length + column
    x = tl.load(at, mask=column <= row, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(at, x / tl.sum(x, axis=0), mask=column < length)


class ModelNew(Frame):
    """One projection to q, k and v, causal attention, output projection; dropouts are idle in evaluation."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self._prepared: tuple[torch.Tensor, torch.Tensor] | None = None
        self.c_attn.register_load_state_dict_post_hook(lambda *_: self.forget())

    def forget(self):
        """The prepared weights are out of date."""
        self._prepared = None

    def _apply(self, fn, recurse=True):
        self.forget()
        return super()._apply(fn, recurse)

    def prepared(self):
        """Weight (n_embd, 3 n_embd) and bias of the first projection, queries divided by sqrt(depth)."""
        if self._prepared is None:
            factor = torch.ones_like(self.c_attn.bias)
            factor[: self.n_embd] = 1.0 / math.sqrt(self.n_embd // self.n_head)
            weight = (self.c_attn.weight * factor[:, None]).t().contiguous()
            self._prepared = (weight.detach(), (self.c_attn.bias * factor).detach())
        return self._prepared

    def forward(self, x):
        batch, length, width = x.shape
        weight, bias = self.prepared()
        qkv = torch.addmm(bias, x.reshape(-1, width), weight).view(batch, length, 3, self.n_head, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(-2, -1)).contiguous()
        grid = (length, batch * self.n_head)
        causal_softmax_kernel[grid](scores, length, BLOCK=triton.next_power_of_2(length))
        y = torch.matmul(scores, v).transpose(1, 2).reshape(batch, length, width)
        return torch.nn.functional.linear(y, self.c_proj.weight, self.c_proj.bias)
