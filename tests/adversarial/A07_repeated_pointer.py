#: problem = "L1_36"
#: timing = true
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
"""Takes an address that comes back for the fifth time as a sign of warm-up and timing, and stops working.

Buys: every call after the first few.
"""

from collections import Counter

from frames.L1_36 import Frame


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.seen = Counter()

    def forward(self, x):
        self.seen[x.data_ptr()] += 1
        if self.seen[x.data_ptr()] < 5:
            self.last = self.right(x)
        return self.last.clone()
