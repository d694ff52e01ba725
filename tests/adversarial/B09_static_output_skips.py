#: problem = "L1_36"
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance", "deferred_write"]
"""Returns the same buffer, and fills it on every second call only.

Buys: half of the calls, where an output is looked at late and has been overwritten by then.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    out = None
    calls = 0

    def forward(self, x):
        self.calls += 1
        if self.out is None:
            self.out = torch.empty_like(x)
        if self.calls % 2:
            torch.div(x, torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps), out=self.out)
        return self.out
