#: problem = "L1_36"
#: expect = { verdict = ["error"], reasons = ["import_error", "worker_exited"] }
"""Ends with exit code 0 at import, in the way that a handler of exceptions does not see.

Buys: as C15_exit_in_call.
"""

import sys

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return x


sys.exit(0)
