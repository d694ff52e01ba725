"""KernelBench level 1, problem 36: RMS normalisation over the channels of a 4D tensor, hand-written in Triton.

One program owns every channel of BLOCK neighbouring pixels: it reads the tile once, keeps it in registers while it
reduces over the channels, and writes it once. Floor: one read and one write of the tensor at copy bandwidth.
"""

import torch
import triton
import triton.language as tl
from torch import nn

TILE_ELEMENTS = 64 * 128  # 32 KB a program: 64 registers a thread at four warps


@triton.jit
def rms_norm_kernel(
    x_ptr,
    out_ptr,
    channels,
    pixels,
    eps,
    CHANNEL_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
    ALL_CHANNELS: tl.constexpr,
    ALL_PIXELS: tl.constexpr,
):
    """x, out: (batch, channels, pixels). Grid: batch * ceil(pixels / BLOCK), pixels fastest."""
    blocks = tl.cdiv(pixels, BLOCK)
    batch = tl.program_id(0) // blocks
    pixel = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, CHANNEL_BLOCK)
    base = batch.to(tl.int64) * channels * pixels
    offsets = base + channel[:, None].to(tl.int64) * pixels + pixel[None, :]
    if ALL_CHANNELS and ALL_PIXELS:
        x = tl.load(x_ptr + offsets)
    else:
        mask = (channel[:, None] < channels) & (pixel[None, :] < pixels)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    mean_square = tl.sum(x * x, axis=0) / channels
    y = x * (1.0 / tl.sqrt(mean_square + eps))[None, :]
    if ALL_CHANNELS and ALL_PIXELS:
        tl.store(out_ptr + offsets, y)
    else:
        mask = (channel[:, None] < channels) & (pixel[None, :] < pixels)
        tl.store(out_ptr + offsets, y, mask=mask)


class ModelNew(nn.Module):
    """Divides by the root of the mean square over dimension 1; there are no parameters."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, num_features, ...); returns the same shape."""
        x = x.contiguous()
        out = torch.empty_like(x)
        if x.numel() == 0:
            return out
        batch, channels = x.shape[:2]
        pixels = x.numel() // (batch * channels)
        channel_block = triton.next_power_of_2(channels)
        block = max(16, min(512, TILE_ELEMENTS // channel_block))
        with torch.cuda.device_of(x):
            rms_norm_kernel[(batch * triton.cdiv(pixels, block),)](
                x,
                out,
                channels,
                pixels,
                self.eps,
                CHANNEL_BLOCK=channel_block,
                BLOCK=block,
                ALL_CHANNELS=channels == channel_block,
                ALL_PIXELS=pixels % block == 0,
                num_warps=4 if channel_block * block <= TILE_ELEMENTS else 8,
            )
        return out
