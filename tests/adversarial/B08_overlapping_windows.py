#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["not_dense", "no_storage"] }
"""An output whose rows overlap in a memory of a fraction of its size.

Buys: most writes; no stride is zero.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        n = x.numel()
        data = torch.zeros(n // 2 + x.shape[-1] * 2, device=x.device)
        strides = (*(s // 2 for s in x.stride()[:-1]), 1)
        return data.as_strided(x.shape, strides)
