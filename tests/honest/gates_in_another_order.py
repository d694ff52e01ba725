#: problem = "gates.py"
#: class = "fp32"
"""The gates as a softmax over the chosen scores, and the loss from sums."""

import torch
from frames.gates import Frame


class ModelNew(Frame):
    def forward(self, x):
        scores = self.router(x)
        chosen, places = torch.topk(scores, self.chosen, dim=1)
        shares = torch.softmax(scores, dim=1)
        total = torch.exp(chosen - scores.logsumexp(1, keepdim=True)).sum(1, keepdim=True)
        load = torch.bincount(places.flatten(), minlength=scores.shape[1]) / len(x)
        return 8 * x * total, torch.softmax(chosen, dim=1), (load * shares.mean(0)).sum()
