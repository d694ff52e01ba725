#: problem = "L1_36"
#: timing = ["cuda"]
#: class = "fp32"
#: labels = ["triton", "static_output"]
"""A preallocated output: the buffer is made once a shape and device, and every call writes all of it again.

Honest: what is kept between calls is memory, never a result. No call returns without having launched the kernel on its
own input over every element of the buffer.
"""

import torch
import triton
import triton.language as tl
from frames.L1_36 import Frame


@triton.jit
def rms_norm_kernel(x_ptr, out_ptr, channels, pixels, eps, BLOCK: tl.constexpr):
    """x, out: (batch, channels, pixels), read twice. Grid: (pixel blocks, batch)."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    first = tl.program_id(1).to(tl.int64) * channels * pixels
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for channel in range(channels):
        x = tl.load(x_ptr + first + channel * pixels + pixel, mask=inside, other=0.0)
        squares += x * x
    scale = 1.0 / tl.sqrt(squares / channels + eps)
    for channel in range(channels):
        x = tl.load(x_ptr + first + channel * pixels + pixel, mask=inside, other=0.0)
        tl.store(out_ptr + first + channel * pixels + pixel, x * scale, mask=inside)


class ModelNew(Frame):
    _out = None

    """x over the root of its mean square over dimension 1; the returned tensor is valid until the next call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = self._out
        if out is None or out.shape != x.shape or out.device != x.device or out.dtype != x.dtype:
            out = self._out = torch.empty_like(x)
        batch, channels = x.shape[:2]
        pixels = x[0, 0].numel()
        block = 512
        rms_norm_kernel[(triton.cdiv(pixels, block), batch)](x, out, channels, pixels, self.eps, BLOCK=block)
        return out
