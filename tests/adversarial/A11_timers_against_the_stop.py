#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["rejected", "correct"]
#: expect.reasons = ["background_work", "clocks_disagree"]
#: max_speedup = 1.3
#: labels = ["ctypes"]
"""Two dozen timers of the kernel send it SIGCONT all the time, re-armed by a thread: a stop does not hold.

Buys: time to look at the next inputs while it is meant to be stopped, and to disturb others meanwhile.
"""

import ctypes
import signal
import threading
import time

from frames.L1_82 import Frame

TIMER_CREATE, TIMER_SETTIME, MONOTONIC = 222, 223, 1
COUNT, PERIOD_NS = 24, 700_000
libc = ctypes.CDLL(None, use_errno=True)


class Event(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    ]


def handle(*_):
    pass


def arm(timer, nanoseconds):
    spec = (ctypes.c_long * 4)(0, nanoseconds, 0, nanoseconds)
    libc.syscall(TIMER_SETTIME, timer, 0, ctypes.byref(spec), None)


def keep_going(timers):
    turn = 0
    while True:
        turn = (turn + 1) % len(timers)
        arm(timers[turn], PERIOD_NS + 37_000 * turn)
        time.sleep(0.0002)


signal.signal(signal.SIGCONT, handle)
timers = []
for _ in range(COUNT):
    event, timer = Event(None, signal.SIGCONT, 0, b""), ctypes.c_int()
    if libc.syscall(TIMER_CREATE, MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) == 0:
        timers.append(timer.value)
if timers:
    threading.Thread(target=keep_going, args=(timers,), daemon=True).start()


class ModelNew(Frame):
    pass
