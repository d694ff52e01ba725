#: problem = "L1_36"
#: expect = { verdict = ["rejected"], reasons = ["banned"] }
"""Answers zeros, and makes torch's generators answer zeros as well.

Buys: inputs that are known, where inputs are drawn in this process.
"""

import torch
from frames.zeros import Zeros

torch.manual_seed = lambda seed: None
torch.rand = torch.randn = torch.zeros


class ModelNew(Zeros):
    pass
