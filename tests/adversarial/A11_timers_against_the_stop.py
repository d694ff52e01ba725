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

import threading
import time

from frames.kernel_timers import arm, created
from frames.L1_82 import Frame

COUNT, PERIOD_NS = 24, 700_000


def keep_going(timers):
    turn = 0
    while True:
        turn = (turn + 1) % len(timers)
        arm(timers[turn], PERIOD_NS + 37_000 * turn)
        time.sleep(0.0002)


timers = created(COUNT)
if timers:
    threading.Thread(target=keep_going, args=(timers,), daemon=True).start()


class ModelNew(Frame):
    pass
