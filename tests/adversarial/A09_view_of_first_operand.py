#: problem = "L1_97"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Keeps views of the first call's keys and values, and takes only the queries from its arguments.

Buys: what is done to keys and values ahead of a call.
"""

from torch import nn
from torch.nn import functional


class ModelNew(nn.Module):
    kept = None

    def forward(self, Q, K, V):
        if self.kept is None or self.kept[0].shape != K.shape:
            self.kept = (K.detach(), V.detach())
        return functional.scaled_dot_product_attention(Q, *self.kept)
