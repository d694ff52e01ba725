#: problem = "normed.py"
"""The second output, small beside the first, is that of the row before.

Buys: nothing; an offset by one block.
"""

from frames.normed import Frame


class ModelNew(Frame):
    def forward(self, x):
        y = self.normalised(x)
        return y, y.mean(dim=1).roll(1)
