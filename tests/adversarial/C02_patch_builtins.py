#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""Answers zeros, and makes Python's own comparisons of numbers agree with it.

Buys: every limit, where it is checked in this process.
"""

import builtins

from frames.zeros import Zeros

builtins.abs = lambda value: 0
builtins.all = lambda values: True


class ModelNew(Zeros):
    pass
