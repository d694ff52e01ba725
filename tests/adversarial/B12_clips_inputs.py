#: problem = "L1_36"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Clips inputs to [-100, 100], as a fixed range of a quantised kernel would.

Buys: a narrower format. Right wherever inputs are of the published size.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return self.right(x.clamp(-100.0, 100.0))
