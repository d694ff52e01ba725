#: problem = "L1_36"
#: device = ["cpu"]
#: expect = { verdict = ["incorrect"], reasons = ["input_modified", "aliases_input", "not_dense"] }
"""Puts the output into memory that starts inside the input's allocation, under a storage object of its own.

Buys: an output that aliases the input although the two storages have different addresses.
"""

import ctypes

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        count = x.numel() - 16
        memory = (ctypes.c_float * count).from_address(x.data_ptr() + 64)
        out = torch.frombuffer(memory, dtype=torch.float32)
        value = self.right(x)
        out.copy_(value.view(-1)[:count])
        return torch.cat([out, value.view(-1)[count:]]).view_as(x)
