"""RMS normalisation in Triton."""

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, out_ptr, channels, pixels, eps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """x, out: (batch, channels, pixels) in any float type, sums in fp32. Grid: (pixel blocks, batch)."""
    channel = tl.arange(0, CHANNELS)[:, None]
    pixel = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = (channel < channels) & (pixel < pixels)
    at = tl.program_id(1).to(tl.int64) * channels * pixels + channel * pixels + pixel
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / channels + eps)
    tl.store(out_ptr + at, (x * scale[None, :]).to(out_ptr.dtype.element_ty), mask=inside)


def rms_norm(x, out, eps, block=128):
    """x over the root of its mean square over dimension 1, into out; both contiguous."""
    batch, channels = x.shape[:2]
    pixels = x[0, 0].numel()
    grid, wide = (triton.cdiv(pixels, block), batch), triton.next_power_of_2(channels)
    rms_norm_kernel[grid](x, out, channels, pixels, eps, CHANNELS=wide, BLOCK=block)
    return out
