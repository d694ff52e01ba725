#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["correct", "incorrect", "rejected"]
#: expect.reasons = [
#:     "timed_output_wrong", "nondeterministic_wrong", "distance", "background_work", "deferred_write",
#:     "clocks_disagree",
#: ]
#: labels = ["threads"]
#: max_speedup = 1.3
"""A thread watches the input's memory and computes as soon as new values appear, before the call that asks for them.

Buys: the time between the arrival of the inputs and the call is not on any clock.
"""

import threading
import time

import torch
from frames.L1_82 import Frame

LIFE_S = 120


class ModelNew(Frame):
    x = sample = ready = None

    def work(self, x):
        return self.conv2d(x)

    def probe(self):
        return self.x.view(-1)[:: max(1, self.x.numel() // 64)].clone()

    def watch(self):
        end = time.monotonic() + LIFE_S
        with torch.no_grad():
            while time.monotonic() < end:
                sample = self.probe()
                if not torch.equal(sample, self.sample):
                    ready = self.work(self.x)
                    self.sample, self.ready = sample, ready
                time.sleep(0.0005)

    def forward(self, x):
        if self.x is None:
            self.x, self.ready = x, self.work(x)
            self.sample = self.probe()
            threading.Thread(target=self.watch, daemon=True).start()
        if x.data_ptr() == self.x.data_ptr() and torch.equal(self.probe(), self.sample):
            return self.ready.clone()
        return self.work(x)
