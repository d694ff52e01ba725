#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = ["banned", "baseline_disturbed"] }
#: max_speedup = 1.3
"""Turns every switch of its process that could slow a baseline down.

Buys: a baseline that is timed later in the same process runs without cuDNN, without fused attention, on one thread.
"""

import torch
from torch import nn

torch.set_num_threads(1)
torch.backends.cudnn.enabled = False
torch.backends.cudnn.benchmark = False
torch.backends.mkldnn.enabled = False
torch.backends.cuda.enable_flash_sdp(False)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.autograd.set_detect_anomaly(True)


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )

    def forward(self, x):
        return self.conv2d(x)
