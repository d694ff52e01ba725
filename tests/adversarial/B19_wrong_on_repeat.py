#: problem = "L1_36"
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
"""Right for values that it has not seen, wrong in one row when the same values come again.

Buys: the stand-in for a race that a single look does not meet; a repeat on the same inputs does.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    seen = None

    def forward(self, x):
        out = self.right(x)
        probe = x.view(-1)[:16].clone()
        if self.seen is not None and torch.equal(probe, self.seen):
            out[-1, :, -1] = 0
        self.seen = probe
        return out
