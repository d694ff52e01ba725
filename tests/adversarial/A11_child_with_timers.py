#: problem = "L1_36"
#: timing = true
#: expect.verdict = ["rejected"]
#: expect.reasons = ["background_work"]
#: labels = ["ctypes"]
"""Kernel timers resume the child whenever the judge stops it. The judge checks the parent, which stays stopped.

Buys: a processor while others are timed, and a look at every new input before the clock runs.
"""

import ctypes
import os
import signal
import time

from frames.L1_36 import Frame

TIMER_CREATE, TIMER_SETTIME, MONOTONIC, TIMERS = 222, 223, 1, 8


class Event(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    ]


def stay_awake(parent):
    libc, timers = ctypes.CDLL(None), []
    signal.signal(signal.SIGCONT, lambda *_: None)
    for _ in range(TIMERS):
        event, timer = Event(None, signal.SIGCONT, 0, b""), ctypes.c_int()
        libc.syscall(TIMER_CREATE, MONOTONIC, ctypes.byref(event), ctypes.byref(timer))
        timers.append(timer)
    while os.getppid() == parent:
        for number, timer in enumerate(timers):
            period_ns = 1_000_000 + 37_000 * number
            libc.syscall(TIMER_SETTIME, timer, 0, ctypes.byref((ctypes.c_long * 4)(0, period_ns, 0, period_ns)), None)
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
