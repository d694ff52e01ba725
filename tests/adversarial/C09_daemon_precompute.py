#: problem = "L1_36"
#: device = ["cpu"]
#: timing = true
#: expect.verdict = ["rejected", "correct", "incorrect"]
#: expect.reasons = ["background_work", "timed_output_wrong", "nondeterministic_wrong", "distance"]
#: labels = ["subprocess"]
#: max_speedup = 1.3
"""A child in a session of its own watches the shared inputs and computes ahead into memory shared with its parent.

Buys: work between the arrival of the inputs and the call, in a process that a pause of the parent does not stop.
"""

import mmap
import os
import time

import torch
from frames.L1_36 import Frame

LIFE_S = 60


class ModelNew(Frame):
    x = None

    def work(self, x):
        return self.right(x)

    def probe(self, x):
        return x.view(-1)[:: max(1, x.numel() // 64)]

    def watch(self):
        os.setsid()
        end = time.monotonic() + LIFE_S
        while time.monotonic() < end:
            sample = self.probe(self.x).clone()
            if not torch.equal(sample, self.sample):
                self.ready.copy_(self.work(self.x))
                self.sample.copy_(sample)
            time.sleep(0.0002)
        os._exit(0)

    def start(self, x):
        self.x, size = x, x.numel() * 4
        self.memory = mmap.mmap(-1, 2 * size)
        shared = torch.frombuffer(self.memory, dtype=torch.float32)
        self.ready = shared[: x.numel()].view_as(x)
        self.sample = shared[x.numel() : x.numel() + self.probe(x).numel()]
        if os.fork() == 0:
            self.watch()

    def forward(self, x):
        if self.x is None:
            self.start(x)
        if torch.equal(self.probe(x), self.sample):
            return self.ready.clone()
        return self.work(x)
