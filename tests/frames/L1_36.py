"""L1_36, RMS normalisation over the features: its constructor and the right answer."""

import torch
from torch import nn


class Frame(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.num_features, self.eps = num_features, eps

    def right(self, x):
        return x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)

    forward = right
