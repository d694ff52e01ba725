#: problem = "L1_36"
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "distance"]
"""Remembers outputs by the identity, version counter and layout of the input tensor.

Buys: as A09_cache_data_ptr where a harness changes inputs behind torch's back, which no version counter sees.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    cache = {}

    def forward(self, x):
        key = (x.untyped_storage().data_ptr(), x._version, x.stride())
        if key not in self.cache:
            self.cache[key] = self.right(x)
        return self.cache[key].clone()
