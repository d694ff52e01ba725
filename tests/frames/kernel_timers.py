"""Timers of the kernel that send this process SIGCONT, and so resume it where it was stopped."""

import ctypes
import signal

TIMER_CREATE, TIMER_SETTIME, MONOTONIC = 222, 223, 1
libc = ctypes.CDLL(None, use_errno=True)


class Event(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    ]


def created(count):
    """Return as many timers, less those that the kernel refuses."""
    signal.signal(signal.SIGCONT, lambda *_: None)
    timers = []
    for _ in range(count):
        event, timer = Event(None, signal.SIGCONT, 0, b""), ctypes.c_int()
        if libc.syscall(TIMER_CREATE, MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) == 0:
            timers.append(timer.value)
    return timers


def arm(timer, period_ns):
    spec = (ctypes.c_long * 4)(0, period_ns, 0, period_ns)
    libc.syscall(TIMER_SETTIME, timer, 0, ctypes.byref(spec), None)
