#: id = "A7"
#: problem = "L1_36"
#: size = "smoke"
#: device = ["cpu", "cuda"]
#: timing = true
#: expect.verdict = ["incorrect", "correct", "rejected"]
#: expect.reasons = ["timed_output_wrong", "nondeterministic_wrong", "rel_l2", "max", "row", "banned"]
#: unbought = true
#: max_speedup = 1.3
"""As A07_stack_inspect, reading the callers' names from the traceback of an exception of its own.

Buys: the same with no name that a ban knows. Returns the last output where it thinks that it is timed.
"""

import codecs

import torch
from torch import nn


def plain(word):
    """A word that no check of the source meets."""
    return codecs.decode(word, "rot13")


def callers():
    try:
        raise LookupError
    except LookupError as error:
        frame = getattr(error.__traceback__, plain("go_senzr"))
    while frame is not None:
        yield frame.f_code.co_name
        frame = getattr(frame, plain("s_onpx"))


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.last = None

    def forward(self, x):
        if self.last is not None and any("time" in name or "bench" in name for name in callers()):
            return self.last.clone()
        self.last = x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
        return self.last.clone()
