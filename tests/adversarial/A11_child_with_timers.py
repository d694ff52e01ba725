#: problem = "L1_36"
#: timing = true
#: expect.verdict = ["rejected"]
#: expect.reasons = ["background_work"]
#: labels = ["ctypes"]
"""Kernel timers resume the child whenever the judge stops it. The judge checks the parent, which stays stopped.

Buys: a processor while others are timed, and a look at every new input before the clock runs.
"""

import os
import time

from frames.kernel_timers import arm, created
from frames.L1_36 import Frame


def stay_awake(parent):
    timers = created(8)
    while os.getppid() == parent:
        for number, timer in enumerate(timers):
            arm(timer, 1_000_000 + 37_000 * number)
        time.sleep(0.0002)
    os._exit(0)


class ModelNew(Frame):
    child = 0

    def forward(self, x):
        if not self.child:
            parent = os.getpid()
            self.child = os.fork()
            if self.child == 0:
                stay_awake(parent)
        return x / (x.pow(2).mean(dim=1, keepdim=True) + self.eps).sqrt()
