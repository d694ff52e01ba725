#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["correct", "rejected", "incorrect"]
#: expect.reasons = ["clocks_disagree", "impossible_time", "protocol_tampered", "below_floor", "banned"]
#: max_speedup = 1.3
"""A right kernel, and every clock that the modules around it bound before the import is slowed down.

Buys: binding `perf_counter_ns` and `Event.elapsed_time` early does not help where the names can be bound again.
"""

import sys

from frames.L1_82 import Frame


def slowed(clock):
    """The clock, fifty times slower; also right for a function that returns a duration."""

    def read(*arguments):
        value = clock(*arguments)
        return type(value)(value / 50) if isinstance(value, int | float) else value

    return read


for module in [module for name, module in sys.modules.items() if "main" in name or "worker" in name]:
    for name, value in list(module.__dict__.items()):
        if callable(value) and any(word in name.lower() for word in ("clock", "elapsed", "perf")):
            module.__dict__[name] = slowed(value)


class ModelNew(Frame):
    pass
