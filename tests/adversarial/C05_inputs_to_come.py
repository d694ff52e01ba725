#: problem = "L1_36"
#: expect = { verdict = ["timeout", "error", "incorrect", "rejected", "correct"], reasons = [] }
#: labels = ["threads"]
#: timeout_s = 15
"""Reads every shared buffer and every pipe without being asked, to see inputs before the call that brings them.

Buys: work ahead of the clock. What it reads stays on the pipe's far side, so the worker stalls where it succeeds.
"""

import os
import select
import threading
import time

from frames.L1_36 import Frame

LIFE_S = 20


def listen():
    end = time.monotonic() + LIFE_S
    while time.monotonic() < end:
        for fd in range(3, 64):
            try:
                if select.select([fd], [], [], 0)[0]:
                    os.read(fd, 1)
            except (OSError, ValueError):
                continue
        time.sleep(0.0005)


threading.Thread(target=listen, daemon=True).start()


class ModelNew(Frame):
    pass
