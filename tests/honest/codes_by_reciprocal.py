#: problem = "codes.py"
#: class = "fp32"
"""A product with the reciprocal of the scale: a value between two codes may be rounded to the other one."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        largest = x.abs().amax(dim=1, keepdim=True)
        return torch.round(x * (127 / largest)).to(torch.int32), largest / 127
