#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""A right kernel that attaches to its parent as a debugger would.

Buys: with the judge's memory writable, its clock, its limits and its verdict are too. It lets go again at once.
"""

import ctypes
import os

from frames.L1_36 import Frame

ATTACH, DETACH = 16, 17
libc = ctypes.CDLL(None)
if libc.ptrace(ATTACH, os.getppid(), None, None) == 0:
    os.waitpid(os.getppid(), 0x40000000)  # __WALL
    libc.ptrace(DETACH, os.getppid(), None, None)


class ModelNew(Frame):
    pass
