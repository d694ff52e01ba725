#: problem = "L1_36"
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = ["distance", "background_work"]
#: engine = ["docker"]
"""Answers zeros; a child in a session of its own goes on writing the forged result for some seconds.

Buys: the last word, also where the solution's process is killed.
"""

import os
import time

from frames.forged_result import forge
from frames.zeros import Zeros

LIFE_S = 20

if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + LIFE_S
    while time.monotonic() < end:
        forge()
        time.sleep(0.05)
    os._exit(0)


class ModelNew(Zeros):
    pass
