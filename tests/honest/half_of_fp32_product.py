#: problem = "half_product.py"
#: class = ["fp32", "tf32"]
"""A product in float32 that is rounded once, to float16."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.addmm(torch.zeros_like(b), a, b).half()
