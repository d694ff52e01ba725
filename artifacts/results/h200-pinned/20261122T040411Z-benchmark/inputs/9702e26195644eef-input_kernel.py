"""3D max pooling, first version: 256 outputs a program, one a lane, and a loop over the taps of the window.

Positions in the padding count as minus infinity; a NaN in the window is the result, as in PyTorch.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def max_pool_kernel(
    x_ptr, out_ptr, total, D, H, W, OD, OH, OW, KD, KH, KW, SD, SH, SW, PD, PH, PW, DD, DH, DW, BLOCK: tl.constexpr
):
    """BLOCK outputs; K, S, P and the second D are kernel, stride, padding and dilation."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ow = index % OW
    oh = index // OW % OH
    od = index // OW // OH % OD
    image = index // OW // OH // OD
    best = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for kd in range(0, KD):
        d = od * SD - PD + kd * DD
        for kh in range(0, KH):
            h = oh * SH - PH + kh * DH
            for kw in range(0, KW):
                w = ow * SW - PW + kw * DW
                inside = (index < total) & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
                x = tl.load(x_ptr + ((image * D + d) * H + h) * W + w, mask=inside, other=float("-inf"))
                best = tl.maximum(best, x.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_ptr + index, best, mask=index < total)


def triple(value: int | tuple[int, ...]) -> tuple[int, int, int]:
    """One number for each of depth, height and width."""
    return (value, value, value) if isinstance(value, int) else (value[0], value[1], value[2])


def kernel_function(
    x: torch.Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
) -> torch.Tensor:
    """x: (..., depth, height, width); returns the pooled tensor (ceil_mode False)."""
    x = x.contiguous()
    k, p, d = triple(kernel_size), triple(padding), triple(dilation)
    s = k if stride is None else triple(stride)
    size = x.shape[-3:]
    od, oh, ow = ((size[i] + 2 * p[i] - d[i] * (k[i] - 1) - 1) // s[i] + 1 for i in range(3))
    out = torch.empty((*x.shape[:-3], od, oh, ow), device=x.device, dtype=x.dtype)
    block = 256
    grid = (triton.cdiv(out.numel(), block),)
    max_pool_kernel[grid](x, out, out.numel(), *size, od, oh, ow, *k, *s, *p, *d, BLOCK=block, num_warps=4)
    return out
