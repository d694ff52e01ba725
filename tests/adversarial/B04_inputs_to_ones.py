#: problem = "L1_36"
#: expect.reasons = ["input_modified", "distance"]
"""Sets the inputs to one and answers the constant that is right for ones.

Buys: as B04_zero_inputs, where zeros are looked for.
"""

import torch
from frames.L1_36 import Frame


class ModelNew(Frame):
    def forward(self, x):
        x.fill_(1.0)
        return torch.full_like(x, (1 + self.eps) ** -0.5)
