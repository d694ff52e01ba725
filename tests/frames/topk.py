"""topk.py, the largest scores of each token: its constructor."""

import torch


class Frame(torch.nn.Module):
    def __init__(self, features, experts, chosen):
        super().__init__()
        self.router = torch.nn.Linear(features, experts, bias=False)
        self.chosen = chosen
