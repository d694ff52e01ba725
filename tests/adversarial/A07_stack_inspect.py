#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""Right, unless a caller's name says that this call is timed.

Buys: no work inside the timed function.
"""

import inspect

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        if any("time" in caller.function or "bench" in caller.function for caller in inspect.stack()):
            return torch.empty_like(x)
        return self.right(x)
