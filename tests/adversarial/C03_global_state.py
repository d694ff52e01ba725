#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct"], reasons = [] }
#: labels = ["sets_tf32"]
#: max_speedup = 1.3
"""Leaves every global switch of torch in another state than it found it.

Buys: where one process runs several solutions, the next ones are judged and timed under these switches.
"""

import torch
from torch import nn

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("medium")
torch.set_default_dtype(torch.bfloat16)
torch.manual_seed(0)
torch.set_flush_denormal(True)
torch.set_printoptions(precision=1)


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride, padding, groups=in_channels, bias=bias, dtype=torch.float32
        )

    def forward(self, x):
        return self.conv2d(x)
