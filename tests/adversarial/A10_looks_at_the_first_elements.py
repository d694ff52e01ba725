#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Returns the last output again if the first thousand elements of the input are the last call's.

Buys: every call of a caller that changes its inputs a little, as an optimiser or a sampler does.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    key = last = None

    def forward(self, x):
        head = x.flatten()[:1024].clone()
        if self.key is not None and torch.equal(head, self.key):
            return self.last.clone()
        self.key, self.last = head, self.right(x)
        return self.last.clone()
