#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["deferred_write"] }
"""Right, and the program around it answers with nothing when it is asked what its output is by now.

Buys: a judge that takes for granted what an answer holds ends with it, and so do all other solutions there.
"""

from frames.L1_36 import Frame

for kind in object.__subclasses__():
    if "worker" in kind.__module__ and hasattr(kind, "again"):
        type.__setattr__(kind, "again", lambda self: {})


class ModelNew(Frame):
    pass
