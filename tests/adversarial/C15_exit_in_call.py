#: problem = "L1_36"
#: expect = { verdict = ["error"], reasons = ["worker_exited", "worker_closed_pipe", "worker_died"] }
"""Ends the process with exit code 0 in its first call.

Buys: success, where the exit code is the verdict.
"""

import os

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        os._exit(0)
