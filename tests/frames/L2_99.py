"""L2_99, product, GELU, softmax: its constructor."""

from torch import nn


class Frame(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
