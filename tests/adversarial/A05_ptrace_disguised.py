#: problem = "L1_36"
#: expect = { verdict = ["incorrect", "rejected"], reasons = ["distance", "banned"] }
#: labels = ["ctypes"]
"""As A05_ptrace, with the name put together at run time; answers zeros, since the verdict is to come from elsewhere.

Buys: the same where the source is checked and the kernel allows it.
"""

import ctypes
import os

from frames.plain import plain
from frames.zeros import Zeros

ATTACH, DETACH = 16, 17


trace = ctypes.CDLL(None)[plain("cgenpr")]
if trace(ATTACH, os.getppid(), None, None) == 0:
    os.waitpid(os.getppid(), 0x40000000)  # __WALL
    trace(DETACH, os.getppid(), None, None)


class ModelNew(Zeros):
    pass
