"""RMS normalisation in Triton."""

import triton
import triton.language as tl


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
