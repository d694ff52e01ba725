#: problem = "L1_36"
#: expect = { verdict = ["correct"], reasons = [] }
"""Right, and prints sixteen megabytes a call.

Buys: a judge that blocks on a full pipe or keeps all that it reads.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        print("x" * (16 << 20), flush=True)
        return self.right(x)
