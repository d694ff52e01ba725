"""RMS normalisation of a block of positions in Triton, for kernels that skip it on a condition of theirs."""

import triton
import triton.language as tl


@triton.jit
def places(channels, positions, BLOCK: tl.constexpr):
    """Where a sample starts, its positions in this block, and which there are. Grid: (blocks, batch)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return tl.program_id(1).to(tl.int64) * channels * positions, at, at < positions


@triton.jit
def normalise(x_ptr, out_ptr, start, at, inside, channels, positions, eps, BLOCK: tl.constexpr):
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for channel in range(channels):
        value = tl.load(x_ptr + start + channel * positions + at, mask=inside, other=0.0, volatile=True)
        squares += value * value
    scale = 1.0 / tl.sqrt(squares / channels + eps)
    for channel in range(channels):
        value = tl.load(x_ptr + start + channel * positions + at, mask=inside, other=0.0, volatile=True)
        tl.store(out_ptr + start + channel * positions + at, value * scale, mask=inside)
