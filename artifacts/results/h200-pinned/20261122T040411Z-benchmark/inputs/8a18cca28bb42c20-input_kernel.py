"""3D transposed convolution, first version: gather form over every output position, tl.dot over the channels.

o = stride*i - padding + dilation*k ties output o to input i through tap k, so each output adds up the taps for which
(o + padding - dilation*k) / stride is a whole number inside the input; the other taps multiply masked zeros.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def conv_transpose_kernel(
    x_ptr, w_ptr, out_ptr, C_IN: tl.constexpr, C_OUT: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, OD: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PD: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    DD: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """BLOCK_M output positions of one sample x BLOCK_N output channels."""
    sample = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    co = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    od, oh, ow = m // (OH * OW), m // OW % OH, m % OW
    w_at = (tl.arange(0, BLOCK_K)[:, None] * C_OUT + co[None, :]) * (KD * KH * KW)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for kd in range(KD):
        td = od + PD - kd * DD
        in_d = (td >= 0) & (td < D * SD) & (td % SD == 0)
        for kh in range(KH):
            th = oh + PH - kh * DH
            in_h = in_d & (th >= 0) & (th < H * SH) & (th % SH == 0)
            at_h = (td // SD * H + th // SH) * W
            for kw in range(KW):
                tw = ow + PW - kw * DW
                inside = in_h & (tw >= 0) & (tw < W * SW) & (tw % SW == 0)
                at = at_h + tw // SW
                for start in range(0, C_IN, BLOCK_K):
                    ci = start + tl.arange(0, BLOCK_K)
                    x_at = ((sample * C_IN + ci) * (D * H * W))[None, :] + at[:, None]
                    x = tl.load(x_ptr + x_at, mask=inside[:, None] & (ci < C_IN)[None, :], other=0.0)
                    w_tap = w_ptr + ((start * C_OUT * KD + kd) * KH + kh) * KW + kw
                    w = tl.load(w_tap + w_at, mask=(ci < C_IN)[:, None] & (co < C_OUT)[None, :], other=0.0)
                    if UPCAST:
                        x, w = x.to(tl.float32), w.to(tl.float32)
                    acc = tl.dot(x, w, acc, input_precision="ieee")
    positions = OD * OH * OW
    out_at = (sample * C_OUT + co)[None, :] * positions + m[:, None]
    tl.store(out_ptr + out_at, acc, mask=(m < positions)[:, None] & (co < C_OUT)[None, :])


def triple(value: int | tuple[int, ...]) -> tuple[int, int, int]:
    """One number for each of depth, height and width."""
    return (value, value, value) if isinstance(value, int) else (value[0], value[1], value[2])


def kernel_function(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
) -> torch.Tensor:
    """x: (batch, C_in, D, H, W); weight: (C_in, C_out, KD, KH, KW); returns (batch, C_out, OD, OH, OW)."""
    x, weight = x.contiguous(), weight.contiguous()
    s, p, d = triple(stride), triple(padding), triple(dilation)
    batch, c_in, *size = x.shape
    c_out, k = weight.shape[1], weight.shape[2:]
    od, oh, ow = ((size[i] - 1) * s[i] - 2 * p[i] + d[i] * (k[i] - 1) + 1 for i in range(3))
    out = torch.empty((batch, c_out, od, oh, ow), device=x.device, dtype=x.dtype)
    block_m, block_n = 128, 32
    grid = (triton.cdiv(od * oh * ow, block_m), triton.cdiv(c_out, block_n), batch)
    conv_transpose_kernel[grid](
        x, weight, out, c_in, c_out, *size, od, oh, ow, *k, *s, *p, *d,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=32,
        UPCAST=x.device.type == "cpu",  # Triton's interpreter multiplies the raw bits of bf16
        num_warps=4, num_stages=2,
    )  # fmt: skip
    return out
