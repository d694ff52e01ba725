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
from frames.slowed_clock import slow_down

for module in [module for name, module in sys.modules.items() if "main" in name or "worker" in name]:
    slow_down(module.__dict__)


class ModelNew(Frame):
    pass
