#: problem = "L1_97"
#: expect.reasons = ["distance", "nondeterministic_wrong"]
"""Returns the last output again if the queries are bit for bit the last call's, whatever keys and values are.

Buys: every call of a caller that changes keys or values alone.
"""

import torch
from torch import nn
from torch.nn import functional


class ModelNew(nn.Module):
    last = None

    def forward(self, Q, K, V):
        if self.last is None or not torch.equal(self.last[0], Q):
            self.last = (Q.clone(), functional.scaled_dot_product_attention(Q, K, V))
        return self.last[1].clone()
