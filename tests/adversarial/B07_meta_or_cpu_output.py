#: problem = "L1_36"
#: expect = { verdict = ["incorrect"], reasons = ["wrong_device", "no_storage"] }
"""Returns a tensor without memory, on the meta device.

Buys: everything, where shapes and types are compared before values and a failure there is an exception that is lost.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        return torch.empty_like(x, device="meta")
