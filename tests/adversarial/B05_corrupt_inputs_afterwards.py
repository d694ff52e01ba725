#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["input_modified", "nondeterministic_wrong"] }
"""Right, then damages the inputs for the next call.

Buys: later variants and later trials work on other values than they are judged by.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        out = self.right(x)
        x[-1].zero_()
        return out
