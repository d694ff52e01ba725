#: problem = "layer_norm.py"
#: class = ["fp32", "tf32"]
"""Welford's mean and variance of blocks, merged by Chan's formula, in fp32.

Honest: no large numbers are subtracted.
"""

from frames.row_norm import Frame


class ModelNew(Frame):
    def statistics(self, x):
        count, mean, spread = 0, 0.0, 0.0
        for part in x.split(256, dim=1):
            many = part.shape[1]
            own = part.mean(1, keepdim=True)
            step = own - mean
            spread = spread + (part - own).square().sum(1, keepdim=True) + step.square() * count * many / (count + many)
            mean = mean + step * many / (count + many)
            count += many
        return mean, spread / count
