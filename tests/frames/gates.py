"""gates.py, a router with gates and a loss: its constructor."""

import torch


class Frame(torch.nn.Module):
    def __init__(self, features, experts, chosen):
        super().__init__()
        self.router = torch.nn.Linear(features, experts)
        self.chosen = chosen
