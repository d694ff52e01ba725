#: problem = "L1_82"
#: size = "full"
#: device = ["cuda"]
#: timing = true
#: expect.verdict = ["rejected", "correct"]
#: expect.reasons = ["background_work", "baseline_disturbed", "clocks_disagree"]
#: labels = ["subprocess"]
#: max_speedup = 1.3
"""Starts a program of its own that keeps the GPU busy for a minute.

Buys: baselines that share the GPU with it.
"""

import subprocess
import sys

from torch import nn

PROGRAM = """
import time, torch
end = time.monotonic() + 60
while time.monotonic() < end:
    torch.cuda._sleep(50_000_000)
    torch.cuda.synchronize()
"""
subprocess.Popen([sys.executable, "-c", PROGRAM], start_new_session=True)


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, bias=bias
        )

    def forward(self, x):
        return self.conv2d(x)
