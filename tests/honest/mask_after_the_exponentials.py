#: problem = "padded_keys.py"
#: class = ["fp32", "tf32"]
"""Exponentials of all scores, less the largest of the keys that count, with zeros for the other keys afterwards.

Honest: a key of weight zero takes no part, whatever its score.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, mask):
        scores, seen = q @ k.mT * q.shape[-1] ** -0.5, mask[:, None, :]
        largest = torch.where(seen, scores, -torch.inf).amax(-1, keepdim=True)
        weights = torch.where(seen, (scores - largest).clamp(max=0).exp(), 0.0)
        return weights @ v / weights.sum(-1, keepdim=True)
