#: problem = "L3_20"
#: class = ["fp32", "tf32"]
#: labels = ["triton", "torch_fallback"]
"""Batch norms folded into the convolutions before them, and folded again whenever any of their tensors changed.

Honest: in evaluation mode a batch norm is an affine map, so the folded network is the same function. Addresses and
version counters of all weights and statistics are compared on every call; what is kept are weights, never results.
"""

import torch
import triton
import triton.language as tl
from frames.mobile_net import Frame
from torch import nn


@triton.jit
def shift_clip_kernel(y_ptr, shift_ptr, count, channels, positions, CLIP: tl.constexpr, BLOCK: tl.constexpr):
    """y += shift of its channel, then ReLU6 where CLIP is on, in place. Grid: (blocks,)."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + index, mask=index < count, other=0.0)
    y += tl.load(shift_ptr + index // positions % channels)
    if CLIP:
        y = tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL)
        y = tl.minimum(y, 6.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + index, y, mask=index < count)


class ModelNew(Frame):
    """`features` (stem, inverted residuals, head, global pooling) and `classifier`, in evaluation mode."""

    def __init__(self, num_classes=1000):
        super().__init__(num_classes)
        self._folded: list[tuple[nn.Conv2d, torch.Tensor, torch.Tensor, bool]] = []
        self._folded_from: tuple[object, ...] = ()

    def folded(self):
        """(convolution, folded weight, shift of a channel, whether ReLU6 follows), in their order."""
        tensors = [*self.features.parameters(), *self.features.buffers()]
        identity = tuple((t.data_ptr(), t._version) for t in tensors)
        if not self._folded or self._folded_from != identity:
            layers = [m for m in self.features.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d | nn.ReLU6)]
            self._folded = []
            for position, conv in enumerate(layers):
                if not isinstance(conv, nn.Conv2d):
                    continue
                norm = layers[position + 1]
                clip = position + 2 < len(layers) and isinstance(layers[position + 2], nn.ReLU6)
                scale = norm.weight.double() * (norm.running_var.double() + norm.eps).rsqrt()
                weight = (conv.weight.double() * scale[:, None, None, None]).to(conv.weight.dtype)
                shift = (norm.bias.double() - norm.running_mean.double() * scale).to(conv.weight.dtype)
                self._folded.append((conv, weight.detach(), shift.detach(), clip))
            self._folded_from = identity
        return self._folded

    def forward(self, x):
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            for conv, weight, shift, clip in self.folded():
                x = torch.conv2d(x, weight, None, conv.stride, conv.padding, conv.dilation, conv.groups).contiguous()
                shift_clip_kernel[(triton.cdiv(x.numel(), 1024),)](
                    x, shift, x.numel(), x.shape[1], x.shape[2] * x.shape[3], CLIP=clip, BLOCK=1024
                )
        last = self.classifier[1]
        return torch.nn.functional.linear(x.mean((2, 3)), last.weight, last.bias)
