#: problem = "L1_36"
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
"""Leaves one row out every second time, by the toss of a coin.

Buys: nothing by itself; it shows how many looks a judge takes. It passes a look at k calls once in two to the k.
"""

import os

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        out = self.right(x)
        if os.urandom(1)[0] & 1:
            out[-1, :, -1] = 0
        return out
