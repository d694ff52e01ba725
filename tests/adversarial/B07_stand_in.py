#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["wrong_structure", "wrong_type"] }
"""Returns an object that has a tensor's attributes and equals whatever it is compared with.

Buys: a check that asks for shape and dtype and then compares with `==`.
"""

from frames.L1_36 import Frame


class StandIn:
    def __init__(self, x):
        self.shape, self.dtype, self.device = x.shape, x.dtype, x.device

    def __eq__(self, other):
        return True

    def __sub__(self, other):
        return 0

    def __getattr__(self, name):
        return lambda *ignored, **named: self


class ModelNew(Frame):
    def forward(self, x):
        return StandIn(x)
