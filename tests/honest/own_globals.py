#: problem = "L2_37"
#: class = ["fp32", "tf32"]
#: labels = ["triton", "torch_fallback"]
"""Module globals with the names of the problem's, and other values: a judge that mixes the two modules up fails.

Honest: they are this file's own names (leftovers of a small test); the sizes that count come from the arguments.
"""

import torch
from frames.L2_37 import Frame
from frames.swish_norm import swish_norm_

batch_size = 1
in_features = 3
out_features = 4
num_groups = 2
bias_shape = (4,)
N = 3


class ModelNew(Frame):
    """GroupNorm(swish(linear(x)) + bias)."""

    def forward(self, x):
        return swish_norm_(torch.mm(x, self.matmul.weight.t()), self)
