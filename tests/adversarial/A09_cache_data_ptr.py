#: problem = "L1_36"
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
"""Remembers outputs by address and shape of the input.

Buys: every call but the first where inputs lie in the same memory.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    cache = {}

    def forward(self, x):
        key = (x.data_ptr(), tuple(x.shape))
        if key not in self.cache:
            self.cache[key] = self.right(x)
        return self.cache[key].clone()
