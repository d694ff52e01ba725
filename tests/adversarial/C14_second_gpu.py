#: problem = "L1_82"
#: size = "full"
#: device = ["cuda"]
#: timing = true
#: expect = { verdict = ["correct"], reasons = [] }
#: max_speedup = 1.3
"""Hands half of the batch to a second GPU, if it can see one.

Buys: the time of the half that runs elsewhere.
"""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
os.environ["NVIDIA_VISIBLE_DEVICES"] = "all"

import torch
from frames.L1_82 import Frame
from torch import nn


class ModelNew(Frame):
    def forward(self, x):
        if torch.cuda.device_count() < 2:
            return self.conv2d(x)
        half = len(x) // 2
        weight = self.conv2d.weight.to("cuda:1", non_blocking=True)
        there = nn.functional.conv2d(x[half:].to("cuda:1", non_blocking=True), weight, groups=x.shape[1])
        return torch.cat([self.conv2d(x[:half]), there.to(x.device)])
