#: problem = "L1_36"
#: timing = true
#: expect.reasons = ["distance", "timed_output_wrong", "nondeterministic_wrong"]
"""Keeps every input that it has seen, computes all of them in one call out of eight and looks the others up.

Buys: a harness that goes over a fixed set of inputs and divides the sum of the times by their number.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.calls, self.known, self.ready = 0, {}, {}

    def work(self, x):
        return self.right(x)

    def forward(self, x):
        self.known[x.data_ptr()] = x
        if self.calls % 8 == 0:
            self.ready = {address: self.work(tensor) for address, tensor in self.known.items()}
        self.calls += 1
        if x.data_ptr() not in self.ready:
            self.ready[x.data_ptr()] = self.work(x)
        return self.ready[x.data_ptr()].clone()
