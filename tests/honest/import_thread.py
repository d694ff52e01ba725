#: problem = "L1_43@bf16"
#: timing = ["cuda"]
#: class = "bf16"
#: labels = ["triton", "threads"]
"""A helper thread at import: it tabulates launch widths while the module loads, and is joined before that ends.

Honest: when the first call comes the thread is gone. It handles integers, no tensors; no call starts or waits for one.
"""

import threading

import torch
import triton
import triton.language as tl

BLOCKS: dict[int, int] = {}


def _tabulate():
    """Output width -> columns a program, for widths up to 4096."""
    for width in range(1, 4097):
        BLOCKS[width] = min(256, triton.next_power_of_2(width))


_helper = threading.Thread(target=_tabulate, name="tabulate")
_helper.start()


@triton.jit
def max_pool_kernel(
    x_ptr, out_ptr, D, H, W, OD, OH, OW, KERNEL: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    DILATION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK columns of one output row. x: (planes, D, H, W). Grid: (planes * OD * OH, column blocks)."""
    row = tl.program_id(0)
    od, oh = row // OH % OD, row % OH
    x_ptr += (row // (OH * OD)).to(tl.int64) * D * H * W
    ow = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for kd in tl.static_range(KERNEL):
        d = od * STRIDE - PADDING + kd * DILATION
        for kh in tl.static_range(KERNEL):
            h = oh * STRIDE - PADDING + kh * DILATION
            for kw in tl.static_range(KERNEL):
                w = ow * STRIDE - PADDING + kw * DILATION
                inside = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W) & (ow < OW)
                x = tl.load(x_ptr + (d * H + h) * W + w, mask=inside, other=-float("inf")).to(tl.float32)
                best = tl.maximum(best, x, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_ptr + row.to(tl.int64) * OW + ow, best.to(out_ptr.dtype.element_ty), mask=ow < OW)


def kernel_function(x, kernel_size, stride=None, padding=0, dilation=1):
    """x: (batch, channels, D, H, W); the window is cubic."""
    x = x.contiguous()
    stride = kernel_size if stride is None else stride
    sizes = [(size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1 for size in x.shape[2:]]
    out = torch.empty((*x.shape[:2], *sizes), device=x.device, dtype=x.dtype)
    block = BLOCKS.get(sizes[2], 256)
    grid = (out.numel() // sizes[2], triton.cdiv(sizes[2], block))
    max_pool_kernel[grid](
        x, out, *x.shape[2:], *sizes, KERNEL=kernel_size, STRIDE=stride, PADDING=padding, DILATION=dilation,
        BLOCK=block, num_warps=1,
    )  # fmt: skip
    return out


_helper.join()
