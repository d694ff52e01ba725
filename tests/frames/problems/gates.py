"""A router: gates over the chosen experts, their numbers, and a loss that balances the load."""

import torch


class Model(torch.nn.Module):
    def __init__(self, features, experts, chosen):
        super().__init__()
        self.router = torch.nn.Linear(features, experts)
        self.chosen = chosen

    def forward(self, x):
        shares = torch.softmax(self.router(x), dim=1)
        values, places = torch.topk(shares, self.chosen, dim=1)
        load = torch.zeros_like(shares).scatter(1, places, 1.0).mean(0)
        return 8 * x * values.sum(1, keepdim=True), values / values.sum(1, keepdim=True), (load * shares.mean(0)).sum()


tokens, features, experts, chosen = 256, 128, 16, 4


def get_inputs():
    return [torch.randn(tokens, features)]


def get_init_inputs():
    return [features, experts, chosen]
