#: problem = "L2_99"
#: expect.reasons = ["distance", "nondeterministic_wrong", "timed_output_wrong"]
"""Pads the rows of a product by memory that nothing writes, and its weights by zeros.

Buys: a memset; right wherever fresh memory is finite.
"""

import torch
from frames.L2_99 import Frame
from torch.nn import functional


class ModelNew(Frame):
    def forward(self, x):
        rows, columns = x.shape
        padded = torch.empty(rows, columns + 64, device=x.device)
        padded[:, :columns] = x
        weight = functional.pad(self.linear.weight, (0, 64))
        return torch.softmax(functional.gelu(functional.linear(padded, weight, self.linear.bias)), dim=1)
