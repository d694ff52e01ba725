#: problem = "L1_36"
"""Answers zeros, and ends with exit code 0 whatever the process would have ended with.

Buys: as C15_exit_in_call, after the checks.
"""

import atexit
import os

from frames.zeros import Zeros

atexit.register(os._exit, 0)


class ModelNew(Zeros):
    pass
