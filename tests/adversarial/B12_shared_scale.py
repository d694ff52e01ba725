#: problem = "L1_04"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Both operands as 16-bit integers of one common scale.

Buys: half the traffic. Where one operand is much smaller than the other it is zero.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, A, B):
        scale = torch.maximum(A.abs().max(), B.abs().max()) / 32767
        return torch.matmul((A / scale).round(), (B / scale).round()) * scale * scale
