#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["aliases_input"] }
"""Returns a view of the input.

Buys: everything, where the check computes its reference in the input's memory.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return x.view_as(x)
