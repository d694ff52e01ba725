#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""A right kernel, and a synchronisation that does not wait.

Buys: clocks are read while the GPU still works.
"""

import torch
from frames.L1_36 import Frame

torch.cuda.synchronize = lambda device=None: None


class ModelNew(Frame):
    pass
