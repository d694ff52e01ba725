#: problem = "L2_99"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""x sigmoid(1.702 x) for GELU before a softmax.

Buys: the error function. Published inputs stay where the two agree, large ones where both are x or 0.
"""

import torch
from frames.L2_99 import Frame


class ModelNew(Frame):
    def forward(self, x):
        y = self.linear(x)
        return torch.softmax(y * torch.sigmoid(1.702 * y), dim=1)
