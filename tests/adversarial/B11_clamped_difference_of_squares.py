#: problem = "layer_norm.py"
"""As B11_difference_of_squares, clamped so that it is a number.

Buys: one pass in place of two; the digits are lost all the same.
"""

from frames.row_norm import Frame


class ModelNew(Frame):
    def statistics(self, x):
        mean = x.mean(1, keepdim=True)
        return mean, (x.square().mean(1, keepdim=True) - mean.square()).clamp_min(0.0)
