#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["aliases_input", "input_modified"] }
"""Right, and the output is the input's own memory.

Buys: the allocation and the cold lines of an output; the next variant finds inputs that are normalised already.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return x.div_(torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps))
