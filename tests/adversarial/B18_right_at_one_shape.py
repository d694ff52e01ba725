#: problem = "L1_36"
#: expect = { verdict = ["correct"], reasons = [] }
"""Computes at the shape of the benchmark alone; any other shape gets its inputs back.

Buys: a kernel that is fast and right where it is measured. With `--shapes` it is wrong, and the verdict says where.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return self.right(x) if x.shape in ((112, 64, 512, 512), (4, 64, 12, 20)) else x.clone()
