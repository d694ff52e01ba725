#: problem = "L1_82"
#: size = "full"
#: device = ["cuda"]
#: timing = true
#: expect.verdict = ["rejected", "incorrect", "correct"]
#: expect.reasons = ["baseline_disturbed", "background_work", "clocks_disagree", "deferred_write"]
#: labels = ["side_stream", "threads"]
#: max_speedup = 1.3
"""A thread keeps a tenth of a second of empty spinning queued on a side stream, in every process's turn.

Buys: baselines that are timed meanwhile share the GPU and look slow.
"""

import threading
import time

import torch
from frames.L1_82 import Frame

LIFE_S = 120
SPIN_CYCLES = 50_000_000


def spin():
    side = torch.cuda.Stream()
    end = time.monotonic() + LIFE_S
    while time.monotonic() < end:
        with torch.cuda.stream(side):
            for _ in range(4):
                torch.cuda._sleep(SPIN_CYCLES)
        side.synchronize()


class ModelNew(Frame):
    spinning = False

    def forward(self, x):
        if not self.spinning:
            self.spinning = True
            threading.Thread(target=spin, daemon=True).start()
        return self.conv2d(x)
