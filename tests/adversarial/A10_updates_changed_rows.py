#: problem = "L2_37"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Computes only rows whose first element changed since the last call, and copies the others from the last output.

Buys: nearly all rows of a caller that changes some of them.
"""

import torch
from frames.L2_37 import Frame


class ModelNew(Frame):
    last = None

    def work(self, x):
        y = self.matmul(x)
        return self.group_norm(torch.sigmoid(y) * y + self.bias)

    def forward(self, x):
        state = (x[:, 0].clone(), self.matmul.weight._version)
        if self.last is None or self.last[1] != state[1] or self.last[0].shape != state[0].shape:
            out = self.work(x)
        else:
            changed = (state[0] != self.last[0]).nonzero().flatten()
            out = self.last[2].clone()
            if len(changed):
                out[changed] = self.work(x[changed])
        self.last = (*state, out.clone())
        return out
