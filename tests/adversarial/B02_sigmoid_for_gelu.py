#: problem = "L2_34"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""x sigmoid(1.702 x) for GELU.

Buys: the error function. It is up to 0.02 off, which hides in the norm of the loosest class.
"""

import torch
from frames.L2_34 import Frame


class ModelNew(Frame):
    def forward(self, x):
        y = self.layer_norm(self.conv_transpose(x))
        return y * torch.sigmoid(1.702 * y) * self.scaling_factor
