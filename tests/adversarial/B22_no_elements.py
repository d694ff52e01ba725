#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["wrong_shape"] }
"""Returns a tensor without elements: nothing to compare is nothing wrong.

Buys: everything, where an empty comparison is true.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return x.new_empty((0, *x.shape[1:]))
