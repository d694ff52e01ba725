#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["incorrect", "rejected", "correct"]
#: expect.reasons = ["clocks_disagree", "impossible_time", "protocol_tampered", "below_floor", "banned"]
#: max_speedup = 1.3
"""A right convolution, and every time that leaves the process is a nanosecond.

Buys: as A16_report_zero_time with a number that passes for a positive one.
"""

from frames.L1_82 import Frame


def changed(value, key=""):
    if isinstance(value, dict):
        return {name: changed(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [changed(part, key) for part in value]
    if isinstance(value, float | int) and key.endswith(("_ms", "_us", "_ns", "_s")):
        return 1e-6
    return value


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
