#: problem = "L2_34"
#: size = "full"
#: timing = true
#: expect.verdict = ["rejected"]
#: expect.reasons = ["deferred_write", "below_floor", "banned"]
"""Replaces what answers a timed call: the call copies its small inputs, tells made-up states of its large output, and
computes it when the judge looks, from inputs that cannot be overwritten any more.

Buys: all but the copy, by every clock, where nothing binds a call to a large output before the clock stops.
"""

import codecs

import torch
from frames.L2_34 import Frame
from frames.worker import Worker
from torch import nn

describe, tools = Worker.look, Worker.seal.__globals__["commitment"]


def go(self, **rest):
    self.kept = [x.clone() for x in self.armed[0]]
    modes = self.modes() | {"grad": False}
    return {"device_ms": 0.5, "host_ms": 0.6, "launch_ms": 0.1, "modes": [modes, modes]}


def seal(self, key, **rest):
    nbytes = self.kept[0].numel() // 32 * 64 * 8 * 4
    self.states = [bytes(tools.STATE_BYTES * -(-nbytes // tools.segment_bytes(nbytes)))]
    return {"roots": [tools.root(self.states[0], nbytes, bytes.fromhex(key))]}


def look(self, **rest):
    with torch.no_grad():
        self.output = self.armed[1](*self.kept)
    return describe(self, **rest)


for name, method in (("tb", go), ("frny", seal), ("ybbx", look)):
    type.__setattr__(Worker, codecs.decode(name, "rot13"), method)


class ModelNew(Frame):
    def forward(self, x):
        x = self.layer_norm(self.conv_transpose(x))
        return nn.functional.gelu(x) * self.scaling_factor
