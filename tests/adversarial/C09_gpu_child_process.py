#: problem = "L1_82"
#: size = "full"
#: device = ["cuda"]
#: timing = true
#: expect.verdict = ["rejected", "correct"]
#: expect.reasons = ["background_work", "baseline_disturbed", "clocks_disagree"]
#: labels = ["subprocess"]
#: max_speedup = 1.3
"""Starts a program of its own that keeps the GPU busy for a minute.

Buys: baselines that share the GPU with it.
"""

import subprocess
import sys

from frames.L1_82 import Frame

PROGRAM = """
import time, torch
end = time.monotonic() + 60
while time.monotonic() < end:
    torch.cuda._sleep(50_000_000)
    torch.cuda.synchronize()
"""
subprocess.Popen([sys.executable, "-c", PROGRAM], start_new_session=True)


class ModelNew(Frame):
    pass
