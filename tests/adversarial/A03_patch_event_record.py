#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""A right kernel, and events that never record.

Buys: start and end no longer stand where the harness put them.
"""

import torch
from frames.L1_36 import Frame

torch.cuda.Event.record = lambda event, stream=None: None


class ModelNew(Frame):
    pass
