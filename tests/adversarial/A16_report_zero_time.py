#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["incorrect", "rejected", "correct"]
#: expect.reasons = ["clocks_disagree", "impossible_time", "protocol_tampered", "below_floor", "banned"]
#: max_speedup = 1.3
"""A right kernel, and every time that leaves the process is zero.

Buys: a geometric mean over problems that one zero takes down to zero.
"""

from frames.forged_times import changed
from frames.L1_82 import Frame
from frames.wrapped_methods import wrap_all

wrap_all(lambda value: changed(value, told=lambda time: 0.0))


class ModelNew(Frame):
    pass
