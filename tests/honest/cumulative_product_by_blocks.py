#: problem = "cumulative_product.py"
#: class = ["fp32", "tf32"]
"""Products within blocks of 256 columns, times the product of all blocks before.

Honest: a scan in two levels.
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        carry, parts = torch.ones_like(x[:, :1]), []
        for part in x.split(256, dim=1):
            parts.append(torch.cumprod(part, dim=1) * carry)
            carry = parts[-1][:, -1:]
        return torch.cat(parts, dim=1)
