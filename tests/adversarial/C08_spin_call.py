#: problem = "L1_36"
#: expect = { verdict = ["timeout"], reasons = ["timeout"] }
#: timeout_s = 6
"""Spins for ever in its first call, deaf to every signal that can be ignored.

Buys: a judge that waits without a bound, and a job that blocks all others.
"""

import signal

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        while True:
            pass
