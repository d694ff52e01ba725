#: problem = "L1_36"
#: expect.verdict = ["incorrect", "error", "rejected"]
#: expect.reasons = ["wrong_structure", "exception", "protocol_tampered"]
"""Returns lists nested ten thousand deep.

Buys: a judge that follows them until its own stack ends.
"""

from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        value = [x]
        for _ in range(10_000):
            value = [value]
        return value
