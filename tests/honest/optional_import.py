#: problem = "L1_36@bf16"
#: class = "bf16"
#: labels = ["triton"]
"""An optional package behind try/except: profiler ranges where nvtx is installed, nothing where it is not.

Honest: both branches compute the same; an ImportError alone is caught, at import, and no failure of the kernel is
hidden.
"""

import contextlib

import torch
import triton
import triton.language as tl

try:
    import nvtx
except ImportError:
    nvtx = None


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


def profiled(name: str) -> contextlib.AbstractContextManager[object]:
    """A named range for the profiler, or nothing."""
    return contextlib.nullcontext() if nvtx is None else nvtx.annotate(name)


def kernel_function(x: torch.Tensor, num_features: int = 64, eps: float = 1e-5) -> torch.Tensor:
    """x: (batch, channels, ...); returns the same shape. num_features is the model's; the shape of x decides."""
    with profiled("rms_norm"):
        x = x.contiguous()
        out = torch.empty_like(x)
        batch, channels = x.shape[:2]
        pixels = x[0, 0].numel()
        grid = (triton.cdiv(pixels, 128), batch)
        wide = triton.next_power_of_2(channels)
        rms_norm_kernel[grid](x, out, channels, pixels, eps, CHANNELS=wide, BLOCK=128)
        return out
