#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""A right kernel, and setattr on the event class.

Buys: whatever the kernel takes, an event pair says a microsecond.
"""

import torch
from frames.L1_36 import Frame

setattr(torch.cuda.Event, "elapsed_time", lambda start, end: 1e-3)  # noqa: B010


class ModelNew(Frame):
    pass
