#: id = "C13"
#: problem = "L1_36"
#: size = "smoke"
#: device = ["cpu", "cuda"]
#: timing = true
#: expect = { verdict = ["correct"], reasons = [] }
#: unbought = true
#: max_speedup = 1.3
#: precision_class = ["fp32"]
"""float16 bfloat16 half .half() .bfloat16() torch.bfloat16 float8_e4m3fn: an honest fp32 kernel with these words.

Buys: inputs, a baseline and a tolerance of a smaller type, where those are chosen by searching the source.
"""

# bfloat16 fp16 half
import torch
from torch import nn

DTYPE = "torch.bfloat16"


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
