#: problem = "L1_36"
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = ["distance", "banned", "nondeterministic_wrong"]
"""As B14_gc_objects, with the module and the function named at run time.

Buys: the same, unseen by a ban.
"""

import importlib

import torch
from frames.L1_36 import Frame
from frames.plain import plain

objects = getattr(importlib.import_module(plain("tp")), plain("trg_bowrpgf"))


class ModelNew(Frame):
    def forward(self, x):
        for found in objects():
            if type(found) is torch.Tensor and found.numel() == x.numel() and found.data_ptr() != x.data_ptr():
                return found.reshape(x.shape).float().clone()
        return torch.zeros_like(x)
