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
from frames.mobile_net import inverted_residual
from torch import nn

# expansion, channels out, blocks, stride of the first block
INVERTED_RESIDUALS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


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


class ModelNew(nn.Module):
    """`features` (stem, inverted residuals, head, global pooling) and `classifier`, in evaluation mode."""

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        channels = 32
        features: list[nn.Module] = [
            nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU6(inplace=True),
        ]
        for expansion, channels_out, blocks, first_stride in INVERTED_RESIDUALS:
            for block in range(blocks):
                features.append(inverted_residual(channels, channels_out, first_stride if block == 0 else 1, expansion))
                channels = channels_out
        features += [
            nn.Conv2d(channels, 1280, 1, bias=False),
            nn.BatchNorm2d(1280),
            nn.ReLU6(inplace=True),
            nn.AdaptiveAvgPool2d((1, 1)),
        ]
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(1280, num_classes))
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captured_for: tuple[object, ...] = ()

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

    def capture(self, x: torch.Tensor) -> None:
        """Warms up on a side stream (kernels are compiled, libraries loaded), then records one call."""
        self._graph = None
        self._input = x.clone()
        side = torch.cuda.Stream(device=x.device)
        side.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(side):
            for _ in range(2):
                self.compute(self._input)
        torch.cuda.current_stream(x.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._output = self.compute(self._input)
        self._graph = graph

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tensors = [*self.parameters(), *self.buffers()]
        needed = (x.shape, x.dtype, x.device, *(t.data_ptr() for t in tensors))
        if self._graph is None or self._captured_for != needed:
            self.capture(x)
            self._captured_for = needed
        assert self._graph is not None
        self._input.copy_(x)
        self._graph.replay()
        return self._output.clone()
