#: problem = "L1_82"
#: size = "full"
#: device = ["cuda"]
#: timing = true
#: expect.verdict = ["correct", "incorrect", "rejected"]
#: expect.reasons = [
#:     "timed_output_wrong", "nondeterministic_wrong", "distance", "background_work", "clocks_disagree",
#:     "deferred_write",
#: ]
#: labels = ["side_stream"]
#: max_speedup = 1.3
"""At the end of a call puts the next one on a side stream, behind a pause in which the next inputs may arrive.

Buys: the work runs in the untimed flush before the next call, which then only checks a sample and hands out the result.
"""

import torch
from frames.L1_82 import Frame

PAUSE_CYCLES = 2_000_000


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.side = torch.cuda.Stream()
        self.next = self.sample = None

    def work(self, x):
        return self.conv2d(x)

    def forward(self, x):
        self.side.synchronize()
        sample = x.view(-1)[:: max(1, x.numel() // 64)]
        ready = self.next is not None and bool((self.sample == sample).all())
        out = self.next if ready else self.work(x)
        with torch.cuda.stream(self.side):
            torch.cuda._sleep(PAUSE_CYCLES)
            self.sample = sample.clone()
            self.next = self.work(x)
        return out
