#: problem = "topk.py"
#: class = "fp32"
"""The largest score, then the largest of the rest."""

import torch
from frames.topk import Frame


class ModelNew(Frame):
    def forward(self, x):
        rest, scores, places = self.router(x).clone(), [], []
        for _ in range(self.chosen):
            score, place = rest.max(dim=-1, keepdim=True)
            scores.append(score)
            places.append(place)
            rest.scatter_(-1, place, -float("inf"))
        return torch.cat(scores, -1), torch.cat(places, -1)
