"""The largest scores of each token, and which experts they are of."""

import torch


class Model(torch.nn.Module):
    def __init__(self, features, experts, chosen):
        super().__init__()
        self.router = torch.nn.Linear(features, experts, bias=False)
        self.chosen = chosen

    def forward(self, x):
        return torch.topk(self.router(x), self.chosen, dim=-1)


tokens, features, experts, chosen = 256, 128, 64, 8


def get_inputs():
    return [torch.randn(tokens, features)]


def get_init_inputs():
    return [features, experts, chosen]
