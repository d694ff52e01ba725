#: problem = "L1_36"
#: expect.verdict = ["correct"]
#: expect.reasons = []
#: labels = ["reuses_output"]
"""Right, but each call uses the memory of the last result as its workspace.

Buys: the workspace. Legal as far as a result counts until the next call, and labelled.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    last = None

    def forward(self, x):
        if self.last is not None and self.last.shape == x.shape:
            torch.mul(x, x, out=self.last)
            square = self.last.mean(dim=1, keepdim=True)
        else:
            square = (x * x).mean(dim=1, keepdim=True)
        self.last = x / torch.sqrt(square + self.eps)
        return self.last
