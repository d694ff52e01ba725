#: problem = "L1_36"
#: device = ["cuda"]
#: timing = ["cuda"]
#: class = "fp32"
#: labels = ["triton", "side_stream"]
"""Work on a stream of its own, joined on both sides: the side stream waits for the caller's, the caller's for it.

Honest: a read of the output on the caller's stream, or a timing event there, comes after the kernel. The allocator
knows both streams, so that no memory is handed out again too early.
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
        self._side: torch.cuda.Stream | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        batch, channels = x.shape[:2]
        pixels = x[0, 0].numel()
        if self._side is None:
            self._side = torch.cuda.Stream(device=x.device)
        caller = torch.cuda.current_stream(x.device)
        self._side.wait_stream(caller)
        with torch.cuda.stream(self._side):
            grid = (triton.cdiv(pixels, 128), batch)
            rms_norm_kernel[grid](
                x, out, channels, pixels, self.eps, CHANNELS=triton.next_power_of_2(channels), BLOCK=128
            )
        caller.wait_stream(self._side)
        x.record_stream(self._side)
        out.record_stream(self._side)
        return out
