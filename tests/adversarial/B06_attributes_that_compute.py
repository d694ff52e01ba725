#: problem = "L1_36"
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = []
"""A plain tensor of zeros whose instance attributes are functions: the work is done when the judge's worker reads it.

Buys: all of the timed call. 3.7 times on the CPU while outputs were read through their instances.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        out, done = torch.empty_like(x), []

        def work(*order):
            if not done:
                done.append(self.right(x))
            return done[0].permute(*order) if order else done[0]

        out.detach = work
        out.permute = work
        return out
