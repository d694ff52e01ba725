#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["not_finite"] }
"""Right except for one row, which is infinite: a metric that divides by the largest value sees nothing else.

Buys: as B22_all_nan, where only NaN is looked for.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        out = self.right(x)
        out[0] = float("inf")
        return out
