#: problem = "L2_99"
#: expect = { verdict = ["correct"], reasons = [] }
#: labels = ["autocast"]
#: precision_class = ["bf16"]
"""Lets autocast choose bfloat16.

Buys: as B10_bf16_inside, with one line.
"""

import torch
from frames.L2_99 import Frame
from torch.nn import functional


class ModelNew(Frame):
    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            y = self.linear(x)
        return functional.softmax(functional.gelu(y.float()), dim=1)
