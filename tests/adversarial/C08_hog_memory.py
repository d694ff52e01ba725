#: problem = "L1_36"
#: expect = { verdict = ["correct", "error", "rejected"], reasons = ["out_of_memory", "killed"] }
"""Right, and holds three gigabytes of the host's memory.

Buys: a judge that runs out of memory and takes it for a fault of its own. Memory of that size is a solution's right.
"""

from frames.L1_36 import Frame

HELD_BYTES = 3 << 30
held = bytearray(HELD_BYTES)
held[:: 1 << 12] = b"x" * len(held[:: 1 << 12])


class ModelNew(Frame):
    pass
