#: problem = "L1_36"
#: expect = { verdict = ["correct", "rejected"], reasons = ["background_work"] }
"""Right; it and a child of its in another session have names that are no text, and one breaks a line.

Buys: a judge that reads what /proc says of processes as text ends with it, and the child lives on.
"""

import ctypes
import os
import time

from frames.L1_36 import Frame

SET_NAME = 15


def take(name):
    ctypes.CDLL(None).prctl(SET_NAME, name, 0, 0, 0)


class ModelNew(Frame):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        take(b"\xff\rUid:\t0")
        if os.fork() == 0:
            os.setsid()
            take(b"\xff\xfe) Z")
            time.sleep(45)
            os._exit(0)
