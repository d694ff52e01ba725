#: problem = "L1_36"
#: device = ["cuda"]
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = [
#:     "deferred_write", "distance", "timed_output_wrong", "nondeterministic_wrong", "background_work",
#:     "clocks_disagree",
#: ]
#: labels = ["side_stream"]
"""As A01_side_stream_unjoined, with a pause of some ten milliseconds ahead of the work on the side stream.

Buys: the same; the pause makes the late write certain at any size, so that luck cannot pass it.
"""

import torch
from frames.L1_36 import Frame

PAUSE_CYCLES = 20_000_000


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.side = torch.cuda.Stream()

    def forward(self, x):
        out = torch.empty_like(x)
        with torch.cuda.stream(self.side):
            torch.cuda._sleep(PAUSE_CYCLES)
            out.copy_(self.right(x))
        return out
