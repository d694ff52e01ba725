#: problem = "normed.py"
#: class = "bf16"
"""RMS normalisation in bfloat16, with both outputs."""

import torch
from frames.normed import Frame


class ModelNew(Frame):
    def forward(self, x):
        inverse = torch.rsqrt(x.bfloat16().square().mean(dim=1, keepdim=True) + 1e-6)
        y = x.bfloat16() * inverse * self.weight.bfloat16()
        return y.float(), y.mean(dim=1).float()
