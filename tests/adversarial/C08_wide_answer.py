#: problem = "L1_36"
#: expect.verdict = ["incorrect", "error", "rejected", "timeout"]
#: expect.reasons = ["wrong_structure", "protocol_tampered", "timeout"]
"""Returns a million tensors.

Buys: a judge that reads descriptions without a bound.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return [x] * 1_000_000
