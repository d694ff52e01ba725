#: problem = "L1_36"
#: right_in = ["float16"]
#: expect = { verdict = ["incorrect"], reasons = ["wrong_dtype"] }
"""Returns the right values in half precision.

Buys: half of the writes, where the check converts before it compares.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return (self.right(x)).half()
