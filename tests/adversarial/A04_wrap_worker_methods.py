#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["correct", "rejected", "incorrect"]
#: expect.reasons = ["clocks_disagree", "impossible_time", "protocol_tampered", "below_floor", "banned"]
#: max_speedup = 1.3
"""A right kernel, and every method of the program around it answers with times divided by fifty.

Buys: whatever clock was read, the number that leaves the process is the solution's.
"""

from frames.forged_times import changed
from frames.L1_82 import Frame
from frames.wrapped_methods import wrap_all

wrap_all(changed)


class ModelNew(Frame):
    pass
