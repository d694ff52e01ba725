#: problem = "L1_82"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Remembers outputs by the mean and deviation of the input, rounded to two digits.

Buys: every call on inputs that differ in a few elements. `A10_cache_coarse_statistics` keeps one answer for two draws;
this one also compares every hundredth element, which two draws do not share.
"""

from frames.L1_82 import Frame


class ModelNew(Frame):
    cache = {}

    def forward(self, x):
        key = (round(float(x.mean()), 2), tuple(x.flatten()[::101].tolist()), self.conv2d.weight._version)
        if key not in self.cache:
            self.cache = {key: self.conv2d(x)}
        return self.cache[key].clone()
