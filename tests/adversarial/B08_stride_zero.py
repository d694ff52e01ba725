#: problem = "L2_99"
#: expect = { verdict = ["incorrect"], reasons = ["not_dense", "no_storage"] }
"""One value, expanded to the whole output with stride zero.

Buys: a write of four bytes.
"""

from frames.L2_99 import Frame


class ModelNew(Frame):
    def forward(self, x):
        columns = self.linear.out_features
        return x.new_full((1, 1), 1.0 / columns).expand(x.shape[0], columns)
