#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""A right kernel, and a clock of the host that runs a thousand times slower.

Buys: a harness that reads `time.perf_counter` through the module measures a thousandth.
"""

import time

from frames.L1_36 import Frame

real = time.perf_counter
time.perf_counter = lambda: real() / 1000
time.perf_counter_ns = lambda: int(real() * 1e6)


class ModelNew(Frame):
    pass
