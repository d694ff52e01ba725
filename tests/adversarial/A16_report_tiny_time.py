#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["incorrect", "rejected", "correct"]
#: expect.reasons = ["clocks_disagree", "impossible_time", "protocol_tampered", "below_floor", "banned"]
#: max_speedup = 1.3
"""A right convolution, and every time that leaves the process is a nanosecond.

Buys: as A16_report_zero_time with a number that passes for a positive one.
"""

from frames.forged_times import changed
from frames.L1_82 import Frame
from frames.wrapped_methods import wrap_all

wrap_all(lambda value: changed(value, told=lambda time: 1e-6))


class ModelNew(Frame):
    pass
