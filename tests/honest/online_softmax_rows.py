#: problem = "softmax_rows.py"
#: class = ["fp32", "tf32"]
"""A running maximum and a running sum over blocks of columns.

Honest: the usual rescaling.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        top, total = x.new_full((x.shape[0], 1), -torch.inf), x.new_zeros(x.shape[0], 1)
        for part in x.split(128, dim=1):
            new = torch.maximum(top, part.amax(1, keepdim=True))
            total = total * torch.exp(top - new) + torch.exp(part - new).sum(1, keepdim=True)
            top = new
        return torch.exp(x - top) / total
