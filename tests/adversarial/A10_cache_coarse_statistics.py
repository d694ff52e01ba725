#: problem = "L1_36"
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
"""Remembers outputs by shape and a rounded mean magnitude: every draw of one distribution looks the same.

Buys: every call but the first of a distribution, whatever the seed.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    cache = {}

    def forward(self, x):
        key = (tuple(x.shape), round(float(x.abs().mean()), 1))
        if key not in self.cache:
            self.cache[key] = self.right(x)
        return self.cache[key].clone()
