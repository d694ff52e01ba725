#: problem = "L2_37"
#: timing = ["cuda"]
#: class = ["fp32", "tf32"]
#: labels = ["torch_compile", "torch_fallback"]
"""torch.compile for the elementwise tail: swish, bias and group norm become what the compiler generates.

Honest: the compiler runs on the first call and its code on every one. It starts processes and writes to its own cache
folder, which is compilation, not state of the computation.
"""

import torch
from frames.L2_37 import Frame


def tail(y, extra, gamma, beta, groups, eps):
    """group_norm(swish(y) + extra)."""
    return torch.nn.functional.group_norm(torch.sigmoid(y) * y + extra, groups, gamma, beta, eps)


class ModelNew(Frame):
    """GroupNorm(swish(linear(x)) + bias)."""

    _tail = staticmethod(torch.compile(tail))

    def forward(self, x):
        norm = self.group_norm
        y = torch.nn.functional.linear(x, self.matmul.weight, self.matmul.bias)
        return self._tail(y, self.bias, norm.weight, norm.bias, norm.num_groups, norm.eps)
