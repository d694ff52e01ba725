#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["correct", "rejected", "incorrect"]
#: expect.reasons = ["clocks_disagree", "impossible_time", "protocol_tampered", "below_floor", "banned"]
#: max_speedup = 1.3
"""A right kernel, and every method of the program around it answers with times divided by fifty.

Buys: whatever clock was read, the number that leaves the process is the solution's.
"""

from frames.forged_times import changed
from frames.L1_82 import Frame


def wrap(method):
    def call(*arguments, **named):
        return changed(method(*arguments, **named))

    return call


for kind in object.__subclasses__():
    if kind.__module__ == "__main__" or "worker" in kind.__module__:
        for name, method in list(vars(kind).items()):
            if callable(method) and not name.startswith("__"):
                type.__setattr__(kind, name, wrap(method))


class ModelNew(Frame):
    pass
