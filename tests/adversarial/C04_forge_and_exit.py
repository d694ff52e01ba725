#: problem = "L1_36"
#: expect = { verdict = ["error"], reasons = ["worker_exited", "worker_closed_pipe", "worker_died"] }
"""Writes a forged result and leaves with exit code 0 before anything is judged.

Buys: everything, where a clean exit and a file are a result.
"""

import os

from frames.forged_result import forge
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        forge()
        os._exit(0)
