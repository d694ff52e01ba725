#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["correct", "incorrect"]
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
#: max_speedup = 1.3
"""Remembers outputs by shape and 64 elements of the input, so that a copy of known inputs at a new address hits.

Buys: harnesses that clone the same inputs for every call. Where every call has new inputs it only costs.
"""

from frames.L1_82 import Frame


class ModelNew(Frame):
    cache = {}

    def forward(self, x):
        flat = x.view(-1)
        key = (tuple(x.shape), tuple(flat[:: max(1, flat.numel() // 64)].tolist()))
        if key not in self.cache:
            self.cache.clear()
            self.cache[key] = self.conv2d(x)
        return self.cache[key].clone()
