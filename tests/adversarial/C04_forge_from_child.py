#: problem = "L1_36"
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = ["distance", "background_work"]
#: engine = ["docker"]
"""Answers zeros; a child in a session of its own goes on writing the forged result for some seconds.

Buys: the last word, also where the solution's process is killed.
"""

import os
import time

import torch
from frames.forged_result import forge
from frames.L1_36 import Frame

LIFE_S = 20

if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + LIFE_S
    while time.monotonic() < end:
        forge()
        time.sleep(0.05)
    os._exit(0)


class ModelNew(Frame):
    def forward(self, x):
        return torch.zeros_like(x)
