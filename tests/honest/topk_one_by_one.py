#: problem = "topk.py"
#: class = "fp32"
"""The largest score, then the largest of the rest."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, features, experts, chosen):
        super().__init__()
        self.router = torch.nn.Linear(features, experts, bias=False)
        self.chosen = chosen

    def forward(self, x):
        rest, scores, places = self.router(x).clone(), [], []
        for _ in range(self.chosen):
            score, place = rest.max(dim=-1, keepdim=True)
            scores.append(score)
            places.append(place)
            rest.scatter_(-1, place, -float("inf"))
        return torch.cat(scores, -1), torch.cat(places, -1)
