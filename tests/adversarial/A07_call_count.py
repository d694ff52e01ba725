#: problem = "L1_36"
#: timing = true
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
"""Right for the first fourteen calls, then the last output again and again.

Buys: a harness that checks a fixed number of calls first and times afterwards.
"""

from frames.L1_36 import Frame

CHECKED_CALLS = 14


class ModelNew(Frame):
    calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls <= CHECKED_CALLS:
            self.last = self.right(x)
        return self.last.clone()
