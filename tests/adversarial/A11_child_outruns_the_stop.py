#: problem = "L1_36"
#: device = ["cpu"]
#: timing = true
#: expect.verdict = ["rejected", "incorrect"]
#: expect.reasons = ["background_work", "timed_output_wrong"]
#: labels = ["ctypes"]
"""A child computes from the inputs while the judge waits for its parent, which is in one long system call, to stop.

Timers of the kernel send the child SIGCONT. A stop drops those that wait, with their timers: it arms them all the time.

Buys: the whole call, where a judge waits for the stop only when the inputs exist.
"""

import mmap
import os
import time

import numpy as np
import torch
from frames.kernel_timers import arm, created
from frames.L1_36 import Frame

LONG = mmap.mmap(-1, 64 << 20)
LONG[::4096] = b"x" * len(LONG[::4096])
SINK = os.memfd_create("sink")
TURNS = np.frombuffer(mmap.mmap(-1, 4096), dtype=np.int64)  # launched, computed
ASKED = [""]
Channel = next(
    kind for kind in object.__subclasses__() if kind.__name__ == "Channel" and kind.__module__.endswith(".wire")
)
receive, send = Channel.receive, Channel.send


def received(self, *values, **named):
    message = receive(self, *values, **named)
    ASKED[0] = message.get("op", "")
    return message


def sent(self, *values, **named):
    launched = ASKED[0] == "launch"
    TURNS[0] += launched
    told = send(self, *values, **named)
    if launched:
        os.pwrite(SINK, LONG, 0)
    return told


type.__setattr__(Channel, "receive", received)
type.__setattr__(Channel, "send", sent)


def normalised(x):
    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + np.float32(1e-5))


def outrun(x, out, parent):
    timers = created(6)
    words = x.view(np.uint32).reshape(-1)
    while os.getppid() == parent:
        for number, timer in enumerate(timers):
            arm(timer, 1_500_000 + 400_000 * number)
        turn = TURNS[0]
        if turn > TURNS[1] and words[-1] != 0xFFFFFFFF:
            out[:] = normalised(x)
            TURNS[1] = turn
        else:
            time.sleep(0.0002)
    os._exit(0)


class ModelNew(Frame):
    out = None
    seen = 0

    def forward(self, x):
        inputs = x.numpy()
        if self.out is None:
            self.out = np.frombuffer(mmap.mmap(-1, inputs.nbytes), dtype=np.float32).reshape(inputs.shape)
            parent = os.getpid()
            if os.fork() == 0:
                outrun(inputs, self.out, parent)
        if ASKED[0] == "go" and TURNS[0] > self.seen and self.out.shape == inputs.shape:
            self.seen = int(TURNS[0])
            while TURNS[1] < self.seen:
                pass
            return torch.from_numpy(self.out.copy())
        return torch.from_numpy(normalised(inputs))
