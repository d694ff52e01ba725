#: problem = "L1_82"
#: size = "full"
#: device = ["cuda"]
#: timing = true
#: expect.verdict = ["rejected"]
#: expect.reasons = ["clocks_disagree", "below_floor", "banned"]
"""Answers a timed call before it has done anything, and works when it is asked to seal its output.

Buys: all of the time, where the two have one clock, or the seal has none; a kernel could seal what it computes as it
does so, because the key is known by then.
"""

import codecs

import torch
from frames.L1_82 import Frame
from frames.worker import Worker

go, seal = Worker.go, Worker.seal
said = {}


def early(self):
    said.clear()
    modes = self.modes() | {"grad": False}
    if self.armed[3] is None:
        return go(self)
    return {"device_ms": 0.9, "host_ms": 0.95, "launch_ms": 0.05, "modes": [modes, modes]}


def late(self, key):
    if not said:
        with torch.no_grad():
            self.output = self.armed[1](*self.armed[0])
        torch.cuda.synchronize()
    return seal(self, key)


for name, method in (("tb", early), ("frny", late)):
    type.__setattr__(Worker, codecs.decode(name, "rot13"), method)


class ModelNew(Frame):
    pass
