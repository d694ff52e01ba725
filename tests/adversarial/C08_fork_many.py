#: problem = "L1_36"
#: expect = { verdict = ["correct", "rejected"], reasons = ["background_work"] }
#: labels = ["subprocess"]
"""Right, and leaves twenty sleeping children, each in a session of its own.

Buys: a machine that fills up cell by cell, where only the first process is ended.
"""

import os
import time

from frames.L1_36 import Frame

CHILDREN, LIFE_S = 20, 60
for _ in range(CHILDREN):
    if os.fork() == 0:
        os.setsid()
        time.sleep(LIFE_S)
        os._exit(0)


class ModelNew(Frame):
    pass
