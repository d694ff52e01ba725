#: problem = "L1_82"
#: device = ["cpu"]
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Keeps an array over the memory of the first input, as a launcher that packs its arguments once would.

Buys: the packing of arguments.
"""

import torch
from frames.L1_82 import Frame


class ModelNew(Frame):
    packed = None

    def forward(self, x):
        if self.packed is None or self.packed.shape != tuple(x.shape):
            self.packed = x.numpy()
        return self.conv2d(torch.from_numpy(self.packed))
