#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""Right, until a trace function sees a function of the harness whose name speaks of time.

Buys: as A07_stack_inspect.
"""

import sys

import torch
from frames.L1_36 import Frame

seen = []


def trace(frame, event, argument):
    if "time" in frame.f_code.co_name or "bench" in frame.f_code.co_name:
        seen.append(frame.f_code.co_name)


sys.settrace(trace)


class ModelNew(Frame):
    def forward(self, x):
        if seen:
            return torch.empty_like(x)
        return self.right(x)
