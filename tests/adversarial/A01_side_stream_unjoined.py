#: problem = "L1_82"
#: size = "full"
#: device = ["cuda"]
#: timing = true
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = [
#:     "deferred_write", "distance", "timed_output_wrong", "nondeterministic_wrong", "background_work",
#:     "clocks_disagree",
#: ]
#: labels = ["side_stream"]
"""Runs the convolution on a stream of its own and returns without joining it.

Buys: events on the current stream see an empty stretch, so the work looks free.
"""

import torch
from frames.L1_82 import Frame


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.side = torch.cuda.Stream()

    def forward(self, x):
        with torch.cuda.stream(self.side):
            return self.conv2d(x)
