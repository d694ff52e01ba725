#: problem = "layer_norm.py"
#: class = ["fp32", "tf32"]
"""The variance of centred values, in fp32.

Honest: the usual two passes.
"""

from frames.row_norm import Frame


class ModelNew(Frame):
    def statistics(self, x):
        mean = x.mean(1, keepdim=True)
        return mean, (x - mean).square().mean(1, keepdim=True)
