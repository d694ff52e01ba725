#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""Looks through every object of the process for a tensor of the output's shape that is not the input.

Buys: everything, where the expected output is alive in the same process.
"""

import gc

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        for found in gc.get_objects():
            if isinstance(found, torch.Tensor) and found.shape == x.shape and found.data_ptr() != x.data_ptr():
                return found.float().clone()
        return torch.zeros_like(x)
