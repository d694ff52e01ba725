#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""A right kernel, and a benchmark function of Triton that always says a microsecond.

Buys: every harness that times with `triton.testing.do_bench`.
"""

import triton
import triton.testing
from frames.L1_36 import Frame

triton.testing.do_bench = lambda *arguments, **named: 1e-3


class ModelNew(Frame):
    pass
