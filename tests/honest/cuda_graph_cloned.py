#: problem = "L3_20"
#: device = ["cuda"]
#: timing = ["cuda"]
#: class = ["fp32", "tf32"]
#: labels = ["triton", "cuda_graph"]
"""A CUDA graph for a network of a hundred small launches: input copied in, one replay, output cloned.

Honest: the graph is captured on the first call and replayed, first call included, on the input of each call. It reads
parameters and statistics where they are, so weights loaded in place count at once; tensors that moved, or another
shape, mean a new capture. The clone gives the caller memory of its own.
"""

import torch
import triton
import triton.language as tl
from frames.cuda_graph import Graphed
from frames.mobile_net import Frame
from torch import nn


@triton.jit
def norm_clip_kernel(
    y_ptr, mean_ptr, var_ptr, gamma_ptr, beta_ptr, count, channels, positions, eps,
    CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Batch norm with running statistics, then ReLU6 where CLIP is on, in place. Grid: (blocks,)."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    channel = index // positions % channels
    y = tl.load(y_ptr + index, mask=index < count, other=0.0) - tl.load(mean_ptr + channel)
    y = y / tl.sqrt(tl.load(var_ptr + channel) + eps) * tl.load(gamma_ptr + channel) + tl.load(beta_ptr + channel)
    if CLIP:
        y = tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL)
        y = tl.minimum(y, 6.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + index, y, mask=index < count)


class ModelNew(Graphed, Frame):
    """`features` (stem, inverted residuals, head, global pooling) and `classifier`, in evaluation mode."""

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """The whole computation, without a graph."""
        layers = [m for m in self.features.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d | nn.ReLU6)]
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            for position, conv in enumerate(layers):
                if not isinstance(conv, nn.Conv2d):
                    continue
                norm = layers[position + 1]
                clip = position + 2 < len(layers) and isinstance(layers[position + 2], nn.ReLU6)
                x = conv(x).contiguous()
                norm_clip_kernel[(triton.cdiv(x.numel(), 1024),)](
                    x, norm.running_mean, norm.running_var, norm.weight, norm.bias, x.numel(), x.shape[1],
                    x.shape[2] * x.shape[3], norm.eps, CLIP=clip, BLOCK=1024,
                )  # fmt: skip
        return self.classifier(x.mean((2, 3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.replayed(x).clone()
