#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["wrong_structure"] }
"""Returns the right tensor inside a tuple, beside another.

Buys: a check that compares only tensors has nothing to compare.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return (x, 2)
