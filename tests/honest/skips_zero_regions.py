#: problem = "L1_77@bf16"
#: class = "bf16"
#: labels = ["triton"]
"""Work that is left out because its result is known: at stride 2 and dilation 2 seven outputs of eight are always zero.

Honest: o = stride * i - padding + dilation * k can only be congruent to -padding modulo gcd(stride, dilation). The
others are exactly zero for every input and every weight; the launch of zeros writes them, the kernel makes the rest.
"""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def reached_kernel(
    x_ptr, weight_ptr, out_ptr, total, channels, out_channels, D, H, W, OD, OH, OW, QD, QH, QW, first,
    STEP: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, DILATION: tl.constexpr, KERNEL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """BLOCK_M reachable positions times BLOCK_N output channels; position q is stored at STEP * q + first.

    x: (batch, channels, D, H, W); weight: (channels, out_channels, k, k, k). Grid: (positions, output channels).
    """
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    co = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    od = m // (QW * QH) % QD * STEP + first
    oh = m // QW % QH * STEP + first
    ow = m % QW * STEP + first
    sample = (m // (QW * QH * QD)).to(tl.int64)
    taps: tl.constexpr = KERNEL * KERNEL * KERNEL
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tap in range(taps):
        td = od + PADDING - tap // (KERNEL * KERNEL) * DILATION
        th = oh + PADDING - tap // KERNEL % KERNEL * DILATION
        tw = ow + PADDING - tap % KERNEL * DILATION
        inside = (m < total) & (td >= 0) & (th >= 0) & (tw >= 0)
        inside = inside & (td % STRIDE == 0) & (th % STRIDE == 0) & (tw % STRIDE == 0)
        inside = inside & (td // STRIDE < D) & (th // STRIDE < H) & (tw // STRIDE < W)
        place = (td // STRIDE * H + th // STRIDE) * W + tw // STRIDE
        for start in range(0, channels, BLOCK_K):
            ci = start + tl.arange(0, BLOCK_K)
            x_at = (sample * channels * D * H * W + place)[:, None] + (ci * D * H * W)[None, :]
            x = tl.load(x_ptr + x_at, mask=inside[:, None] & (ci < channels)[None, :], other=0.0)
            w_at = (ci[:, None] * out_channels + co[None, :]) * taps + tap
            known = (ci < channels)[:, None] & (co < out_channels)[None, :]
            acc = tl.dot(x, tl.load(weight_ptr + w_at, mask=known, other=0.0), acc)
    out_at = (sample[:, None] * out_channels + co[None, :]) * OD * OH * OW + ((od * OH + oh) * OW + ow)[:, None]
    known = (m < total)[:, None] & (co < out_channels)[None, :]
    tl.store(out_ptr + out_at, acc.to(out_ptr.dtype.element_ty), mask=known)


def kernel_function(x, weight, stride=1, padding=0, dilation=1):
    """x: (batch, channels, D, H, W); weight: (channels, out_channels, k, k, k), a cube."""
    x, weight = x.contiguous(), weight.contiguous()
    batch, channels, *size = x.shape
    out_channels, kernel = weight.shape[1], weight.shape[2]
    full = [(n - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1 for n in size]
    step = math.gcd(stride, dilation)
    first = -padding % step
    reached = [max(0, (n - first - 1) // step + 1) for n in full]
    out = torch.zeros((batch, out_channels, *full), device=x.device, dtype=x.dtype)
    total = batch * math.prod(reached)
    if total:
        reached_kernel[(triton.cdiv(total, 64), triton.cdiv(out_channels, 32))](
            x, weight, out, total, channels, out_channels, *size, *full, *reached, first,
            STEP=step, STRIDE=stride, PADDING=padding, DILATION=dilation, KERNEL=kernel,
            BLOCK_M=64, BLOCK_N=32, BLOCK_K=32,
        )  # fmt: skip
    return out
