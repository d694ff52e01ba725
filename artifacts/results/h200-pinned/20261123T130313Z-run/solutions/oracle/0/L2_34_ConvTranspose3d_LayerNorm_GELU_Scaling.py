"""KernelBench level 2, problem 34: 3D transposed convolution, layer norm over the width, GELU, scaling; in Triton.

One kernel. A program gathers whole output rows of a block of channels, so the norm, GELU and scale happen before the
only write. Even and odd columns have their own sums, because at stride 2 they see different taps; rows of a program
share their taps, because they lie one stride apart. Products on TF32 tensor cores, operands rounded to nearest (the
hardware truncates): the weight while it is packed by tap, x in registers. Any kernel size, stride and padding work;
strides other than 1 and 2 multiply zeros. Floor: the write of the output, and the multiplications at TF32 peak.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def round_tf32(x):
    """Nearest TF32 value, ties away from zero; NaN stays NaN."""
    bits = x.to(tl.uint32, bitcast=True)
    nearest = ((bits + 0x1000) & 0xFFFFE000).to(tl.float32, bitcast=True)
    return tl.where(x == x, nearest, x)


@triton.jit
def pack_kernel(weight_ptr, out_ptr, channels, out_channels, taps, count, BLOCK: tl.constexpr):
    """out (taps, out_channels, channels) = weight (channels, out_channels, taps) rounded to TF32."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = index % channels
    out_channel = index // channels % out_channels
    tap = index // channels // out_channels
    inside = index < count
    weight = tl.load(weight_ptr + (channel * out_channels + out_channel) * taps + tap, mask=inside, other=0.0)
    tl.store(out_ptr + index, round_tf32(weight), mask=inside)


@triton.jit
def gather(
    x_ptr,
    packed_ptr,
    channels,
    out_channels,
    depth,
    height,
    width,
    od,
    row_class,
    row,
    t,
    co,
    PARITY: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    CI: tl.constexpr,
):
    """Sums (positions, out channels) of the output columns 2 t + PARITY of the rows row_class + STRIDE * row.

    Along an axis the taps of output o are those k that o + PADDING - k divides by STRIDE; the quotient is the input.
    """
    STEP: tl.constexpr = 2 if STRIDE % 2 == 0 else 1
    FIRST: tl.constexpr = (PARITY + PADDING) % STEP
    KW_COUNT: tl.constexpr = (KERNEL - FIRST + STEP - 1) // STEP
    kd_first = (od + PADDING) % STRIDE
    kh_first = (row_class + PADDING) % STRIDE
    kd_count = tl.maximum((KERNEL - kd_first + STRIDE - 1) // STRIDE, 0)
    kh_count = tl.maximum((KERNEL - kh_first + STRIDE - 1) // STRIDE, 0)
    ci_blocks = tl.cdiv(channels, CI)
    steps = kd_count * kh_count * KW_COUNT * ci_blocks
    if KERNEL >= STRIDE:
        tl.assume(steps > 0)  # otherwise ptxas serialises the tensor-core instructions of sm_90
    acc = tl.zeros((t.shape[0], co.shape[0]), dtype=tl.float32)
    for step in range(0, steps):
        ci = step % ci_blocks * CI + tl.arange(0, CI)
        i_kw = step // ci_blocks % KW_COUNT
        i_kh = step // (ci_blocks * KW_COUNT) % kh_count
        i_kd = step // (ci_blocks * KW_COUNT) // kh_count
        in_plane = (od + PADDING - kd_first) // STRIDE - i_kd
        in_row = row + (row_class + PADDING - kh_first) // STRIDE - i_kh
        valid = (in_row >= 0) & (in_row < height) & (in_plane >= 0) & (in_plane < depth)
        if STRIDE == 2:
            column = t + ((PARITY + PADDING - FIRST) // 2 - i_kw)
            valid = valid & (column >= 0)
        else:
            reach = 2 * t + (PARITY + PADDING - FIRST) - STEP * i_kw
            column = reach // STRIDE
            valid = valid & (reach >= 0) & (reach % STRIDE == 0)
        valid = valid & (column < width)
        x_index = ((in_plane * height + in_row) * width + column)[:, None] + ci[None, :] * (depth * height * width)
        x = tl.load(x_ptr + x_index, mask=valid[:, None] & (ci < channels)[None, :], other=0.0)
        tap = (kd_first + STRIDE * i_kd) * KERNEL + kh_first + STRIDE * i_kh
        tap = tap * KERNEL + FIRST + STEP * i_kw
        weight_index = (tap * out_channels + co[:, None]) * channels + ci[None, :]
        known = (co < out_channels)[:, None] & (ci < channels)[None, :]
        weight = tl.load(packed_ptr + weight_index, mask=known, other=0.0)
        acc = tl.dot(round_tf32(x), tl.trans(weight), acc, input_precision="tf32")
    return acc


@triton.jit
def gelu(z):
    """Exact GELU."""
    return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))


@triton.jit
def conv_norm_gelu_kernel(
    x_ptr,
    packed_ptr,
    bias_ptr,
    gamma_ptr,
    beta_ptr,
    out_ptr,
    channels,
    out_channels,
    depth,
    height,
    width,
    out_depth,
    out_height,
    out_width,
    eps,
    factor,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    PAIRS: tl.constexpr,
    CO: tl.constexpr,
    CI: tl.constexpr,
):
    """x: (batch, channels, depth, height, width), packed as pack_kernel leaves it, out in the layout of x.

    A tile is ROWS rows, STRIDE apart, of 2 * PAIRS columns (all of them) and CO channels. Grid: (STRIDE * row blocks,
    out_depth * channel blocks, batch).
    """
    row_class = tl.program_id(0) % STRIDE
    row_first = tl.program_id(0) // STRIDE * ROWS
    od = tl.program_id(1) % out_depth
    co = tl.program_id(1) // out_depth * CO + tl.arange(0, CO)
    image = tl.program_id(2).to(tl.int64)
    position = tl.arange(0, ROWS * PAIRS)
    row = row_first + position // PAIRS
    t = position % PAIRS
    x_ptr += image * channels * depth * height * width
    even = gather(x_ptr, packed_ptr, channels, out_channels, depth, height, width, od, row_class, row, t, co,
                  0, KERNEL, STRIDE, PADDING, CI)  # fmt: skip
    odd = gather(x_ptr, packed_ptr, channels, out_channels, depth, height, width, od, row_class, row, t, co,
                 1, KERNEL, STRIDE, PADDING, CI)  # fmt: skip
    if HAS_BIAS:
        bias = tl.load(bias_ptr + co, mask=co < out_channels, other=0.0)[None, :]
        even += bias
        odd += bias
    column = 2 * tl.arange(0, PAIRS)
    even_ok = (column < out_width)[None, :, None]
    odd_ok = (column + 1 < out_width)[None, :, None]
    even = tl.where(even_ok, tl.reshape(even, (ROWS, PAIRS, CO)), 0.0)
    odd = tl.where(odd_ok, tl.reshape(odd, (ROWS, PAIRS, CO)), 0.0)
    mean = tl.sum(even + odd, axis=1, keep_dims=True) / out_width
    even = tl.where(even_ok, even - mean, 0.0)
    odd = tl.where(odd_ok, odd - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(even * even + odd * odd, axis=1, keep_dims=True) / out_width + eps)

    both = tl.reshape(tl.join(even * scale, odd * scale), (ROWS, PAIRS, CO, 2))
    both = tl.reshape(tl.permute(both, (2, 0, 1, 3)), (CO, ROWS * PAIRS * 2))
    place = tl.arange(0, ROWS * PAIRS * 2)
    ow = place % (2 * PAIRS)
    oh = row_class + STRIDE * (row_first + place // (2 * PAIRS))
    gamma = tl.load(gamma_ptr + ow, mask=ow < out_width, other=0.0)
    beta = tl.load(beta_ptr + ow, mask=ow < out_width, other=0.0)
    both = gelu(both * gamma[None, :] + beta[None, :]) * factor
    out_plane = out_depth * out_height * out_width
    out_ptr += image * out_channels * out_plane + od * out_height * out_width
    out_ptrs = out_ptr + co[:, None].to(tl.int64) * out_plane + (oh * out_width + ow)[None, :]
    tl.store(out_ptrs, both, mask=(co < out_channels)[:, None] & ((oh < out_height) & (ow < out_width))[None, :])


def packed(weight: torch.Tensor) -> torch.Tensor:
    """weight (channels, out_channels, k, k, k) as (k * k * k, out_channels, channels), rounded to TF32."""
    channels, out_channels = weight.shape[:2]
    taps = weight[0, 0].numel()
    out = torch.empty((taps, out_channels, channels), device=weight.device, dtype=weight.dtype)
    grid = (triton.cdiv(out.numel(), 1024),)
    pack_kernel[grid](weight.contiguous(), out, channels, out_channels, taps, out.numel(), BLOCK=1024)
    return out


class ModelNew(nn.Module):
    """gelu(LayerNorm(conv_transpose(x))) * scaling_factor; the norm covers the last dimension."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int,
        padding: int,
        bias: bool = True,
        eps: float = 1e-5,
        scaling_factor: float = 1.0,
    ) -> None:
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=bias
        )
        self.layer_norm = nn.LayerNorm(out_channels, eps=eps)
        self.scaling_factor = scaling_factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, in_channels, D, H, W); returns (batch, out_channels, 2D, 2H, 2W) at kernel 4, stride 2."""
        x = x.contiguous()
        conv, norm = self.conv_transpose, self.layer_norm
        kernel, stride, padding = conv.kernel_size[0], conv.stride[0], conv.padding[0]
        batch, channels, depth, height, width = x.shape
        out_depth, out_height, out_width = ((size - 1) * stride - 2 * padding + kernel for size in x.shape[2:])
        if (out_width,) != tuple(norm.normalized_shape):
            raise ValueError(f"the layer norm covers {norm.normalized_shape}, but rows of {out_width} come in")
        shape = (batch, conv.out_channels, out_depth, out_height, out_width)
        out = torch.empty(shape, device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        pairs = triton.next_power_of_2(triton.cdiv(out_width, 2))
        pairs = max(pairs, 16)
        rows = max(1, 128 // pairs)
        co = min(64, max(16, triton.next_power_of_2(conv.out_channels)))
        row_blocks = triton.cdiv(triton.cdiv(out_height, stride), rows)
        grid = (stride * row_blocks, out_depth * triton.cdiv(conv.out_channels, co), batch)
        with torch.cuda.device_of(x):
            conv_norm_gelu_kernel[grid](
                x,
                packed(conv.weight),
                norm.bias if conv.bias is None else conv.bias,
                norm.weight,
                norm.bias,
                out,
                channels,
                conv.out_channels,
                depth,
                height,
                width,
                out_depth,
                out_height,
                out_width,
                norm.eps,
                self.scaling_factor,
                KERNEL=kernel,
                STRIDE=stride,
                PADDING=padding,
                HAS_BIAS=conv.bias is not None,
                ROWS=rows,
                PAIRS=pairs,
                CO=co,
                CI=32 if channels > 16 else 16,
                num_warps=8,
                num_stages=3,
                maxnreg=128,  # two programs a multiprocessor
            )
        return out
