#: problem = "L1_36"
#: expect = { verdict = ["error", "rejected", "incorrect"], reasons = [] }
"""Closes every descriptor that it inherited.

Buys: a judge that takes a closed pipe for the end of the checks.
"""

import os

from frames.L1_36 import Frame

os.closerange(3, 64)


class ModelNew(Frame):
    pass
