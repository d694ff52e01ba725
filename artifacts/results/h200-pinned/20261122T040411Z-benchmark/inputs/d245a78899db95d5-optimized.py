"""RMS normalisation over dimension 1, every value read once: a [channels x strip] tile stays in registers.

The problem only moves memory, so one read and one write are the floor. A program loads its tile with 16-byte loads,
reduces it over the channels in fp32, scales and stores it; no tile waits for another, so what keeps memory busy is the
number of programs on a multiprocessor, and that is a matter of registers. Between the two uses of a tile its 16-bit
values stay packed, two a register: 56 registers a thread and nine programs instead of five. The compiler would unpack
once and keep fp32, hence `kept_packed`.

Loads and stores carry no eviction hint: evict_first, right in theory for data used once, costs 3 % on an H200.
Neighbouring programs take neighbouring strips of one sample; other orders are slower.

Above 1024 channels a tile would not fit, above 2^31 values a sample needs 64-bit offsets: there two passes take over.
"""

import math

import torch
import triton
import triton.language as tl

TILE = 8192  # values a program: 64 for each of 128 threads
LEAST_STRIP = 16  # positions
MOST_CHANNELS = 1024
MOST_OFFSET = 2**31 - 2**16  # inside a sample; the rest is room for the ragged edge of the last tile


@triton.jit
def kept_packed(raw, zero):
    """raw, by way of an exclusive or with a zero that the compiler does not know, so that it must unpack raw again."""
    return (raw.to(tl.int16, bitcast=True) ^ zero.to(tl.int16)).to(raw.dtype, bitcast=True)


@triton.jit
def tile_kernel(
    x_ptr, out_ptr, positions, strips, eps, zero,
    C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Normalises the BLOCK positions of one (sample, strip). EVEN: no ragged edge; PACKED: values of 16 bits."""
    sample = tl.program_id(0) // strips
    offsets = tl.program_id(0) % strips * BLOCK + tl.arange(0, BLOCK)
    channels = tl.arange(0, BLOCK_C)
    start = sample.to(tl.int64) * C * positions
    x_ptr += start
    out_ptr += start
    # Inside a sample 32 bits are enough, at half the registers.
    at = channels[:, None] * positions + offsets[None, :]
    inside = None if EVEN else (channels < C)[:, None] & (offsets < positions)[None, :]
    raw = tl.load(x_ptr + at, mask=inside, other=None if EVEN else 0.0)
    x = raw.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / C + eps)
    if PACKED:
        x = kept_packed(raw, zero).to(tl.float32)
    tl.store(out_ptr + at, x * scale[None, :], mask=inside)


@triton.jit
def two_pass_kernel(x_ptr, out_ptr, channels, positions, strips, eps, BLOCK: tl.constexpr):
    """As tile_kernel for any number of channels and positions, at the price of reading x twice."""
    sample = (tl.program_id(0) // strips).to(tl.int64)
    offsets = (tl.program_id(0) % strips).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < positions
    at = sample * channels * positions + offsets
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for channel in range(0, channels):
        x = tl.load(x_ptr + at + tl.cast(channel, tl.int64) * positions, mask=inside, other=0.0).to(tl.float32)
        squares += x * x
    scale = 1.0 / tl.sqrt(squares / channels + eps)
    for channel in range(0, channels):
        here = at + tl.cast(channel, tl.int64) * positions
        x = tl.load(x_ptr + here, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptr + here, x * scale, mask=inside)


def kernel_function(x: torch.Tensor, num_features: int = 64, eps: float = 1e-5) -> torch.Tensor:
    """x: (batch, channels, ...); returns the same shape. num_features is the model's; the shape of x decides."""
    x = x.contiguous()
    batch, channels, *rest = x.shape
    positions = math.prod(rest)
    out = torch.empty_like(x)
    block_c = triton.next_power_of_2(channels)
    if channels > MOST_CHANNELS or block_c * positions > MOST_OFFSET:
        block = 256
        strips = triton.cdiv(positions, block)
        two_pass_kernel[(batch * strips,)](x, out, channels, positions, strips, eps, BLOCK=block, num_warps=4)
        return out
    block = min(max(TILE // block_c, LEAST_STRIP), 512)
    strips = triton.cdiv(positions, block)
    tile_kernel[(batch * strips,)](
        x, out, positions, strips, eps, 0,
        C=channels, BLOCK_C=block_c, BLOCK=block, EVEN=block_c == channels and positions % block == 0,
        PACKED=x.element_size() == 2, num_warps=4,
    )  # fmt: skip
    return out
