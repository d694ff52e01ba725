#: id = "C9"
#: problem = "L1_36"
#: size = "smoke"
#: device = ["cuda"]
#: timing = true
#: expect.verdict = ["rejected", "correct"]
#: expect.reasons = ["background_work", "baseline_disturbed", "clocks_disagree"]
#: labels = ["subprocess"]
#: unbought = true
#: max_speedup = 1.3
"""Starts a program of its own that keeps the GPU busy for a minute.

Buys: baselines that share the GPU with it.
"""

import subprocess
import sys

import torch
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
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
