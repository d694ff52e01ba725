#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""A right kernel, and the plain spelling of an attack on the program that runs it.

Buys: as A04_module_clocks.
"""

import sys

from frames.L1_36 import Frame

main = sys.modules["__main__"]
main._clock_ns = lambda: 0
main._elapsed = lambda start, end: 1e-3


class ModelNew(Frame):
    pass
