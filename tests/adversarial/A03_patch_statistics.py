#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect = { verdict = ["correct", "rejected"], reasons = ["banned"] }
#: max_speedup = 1.3
"""A right kernel, and a `median` and a `mean` that return the smallest thousandth.

Buys: a harness that sums its samples up in this process prints what the solution wants.
"""

import math
import statistics

from frames.L1_82 import Frame


def smallest(data, *ignored):
    return min(data) / 1000


statistics.median = statistics.mean = statistics.fmean = smallest
math.fsum = lambda data: 1e-9


class ModelNew(Frame):
    pass
