#: problem = "L2_84"
#: class = ["fp32", "tf32"]
"""Softmax as exp(x - logsumexp(x)).

Honest: an identity that never overflows. At logits of hundreds the rounding of the difference costs digits, and the
measured class carries that.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    """softmax(scale * batch_norm(linear(x))) over dimension 1."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bn_eps: float = 1e-5,
        bn_momentum: float = 0.1,
        scale_shape: tuple[int, ...] = (1,),
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.bn = nn.BatchNorm1d(out_features, eps=bn_eps, momentum=bn_momentum)
        self.scale = nn.Parameter(torch.ones(scale_shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.scale * self.bn(self.gemm(x))
        return torch.exp(y - torch.logsumexp(y, dim=1, keepdim=True))
