#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Keeps a view of the first call's input and computes from it in every call.

Buys: the look at its argument; as a replayed graph, the launches. Right as long as inputs lie in one buffer.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    first = None

    def forward(self, x):
        if self.first is None or self.first.shape != x.shape:
            self.first = x.view(x.shape)
        return self.right(self.first)
