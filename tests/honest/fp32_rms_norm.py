#: problem = "L1_36"
#: class = "fp32"
#: labels = ["triton"]
"""Plain fp32 Triton: one program reads all channels of a strip of pixels once, reduces, scales, writes once.

Honest: every output is computed in this call from this call's input, in the precision of the problem.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm_kernel(x_ptr, out_ptr, channels, pixels, eps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """x, out: (batch, channels, pixels). Grid: (pixel blocks, batch)."""
    channel = tl.arange(0, CHANNELS)[:, None]
    pixel = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = (channel < channels) & (pixel < pixels)
    at = tl.program_id(1).to(tl.int64) * channels * pixels + channel * pixels + pixel
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / channels + eps)
    tl.store(out_ptr + at, x * scale[None, :], mask=inside)


class ModelNew(nn.Module):
    """x over the root of its mean square over dimension 1."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        batch, channels = x.shape[:2]
        pixels = x[0, 0].numel()
        grid = (triton.cdiv(pixels, 128), batch)
        rms_norm_kernel[grid](x, out, channels, pixels, self.eps, CHANNELS=triton.next_power_of_2(channels), BLOCK=128)
        return out
