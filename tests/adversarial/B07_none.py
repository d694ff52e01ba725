#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["wrong_structure"] }
"""Returns None.

Buys: everything, where a check compares only if both sides are tensors.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return None
