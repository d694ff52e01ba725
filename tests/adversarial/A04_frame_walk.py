#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""A right kernel that walks up the stack and binds the harness's clocks again.

Buys: the function that measures the call is among its callers, and so are its globals.
"""

import sys

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        frame = sys._getframe()
        while frame is not None:
            for name in frame.f_globals:
                if "elapsed" in name:
                    frame.f_globals[name] = lambda start, end: 1e-3
            frame = frame.f_back
        return self.right(x)
