#: problem = "L1_36"
#: right_in = ["float16"]
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Right up to a thousand; beyond that it returns zeros.

Buys: nothing by itself. It shows that a kernel may do anything where no trial looks.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        if float(x.abs().max()) > 1000.0:
            return torch.zeros_like(x)
        return self.right(x)
