#: problem = "layer_norm.py"
#: class = ["fp32", "tf32"]
"""Welford's mean and variance of blocks, merged by Chan's formula, in fp32.

Honest: no large numbers are subtracted.
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        count, mean, spread = 0, x.new_zeros(x.shape[0], 1), x.new_zeros(x.shape[0], 1)
        for part in x.split(256, dim=1):
            many = part.shape[1]
            own = part.mean(1, keepdim=True)
            step = own - mean
            spread = spread + (part - own).square().sum(1, keepdim=True) + step.square() * count * many / (count + many)
            mean = mean + step * many / (count + many)
            count += many
        return (x - mean) * torch.rsqrt(spread / count + self.norm.eps) * self.norm.weight + self.norm.bias
