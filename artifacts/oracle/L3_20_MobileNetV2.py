"""KernelBench level 3, problem 20: MobileNetV2 without residual additions, hand-written in Triton.

Activations lie with their channels last, so that a pointwise convolution is a matrix product whose operands are both
contiguous along the sum, over all positions of all images, and a depthwise one reads whole channel runs. Batch norm is
folded into weights and biases, which lie in one piece of memory and are made again when a parameter changes; the first
kernel brings them into the L2 cache. The widest activation, 112 x 112 x 96 an image, is never written: before the first
strides of 2 one kernel expands, filters and projects, and computes each expanded position 2.25 times. From sm_90 on a
kernel's programs start while those of the one before end, and wait for its results.

Products take one TF32 pass, as the reference's convolutions do by default. Tensor cores cut operands off to TF32, so
what the next product reads is rounded to the nearest, as are weights: a third of the error of thirty-five products in a
row.

Floor: a chain of 49 kernels, each of which needs the one before; 0.1 GB and 6 GFLOP take less than 0.1 ms of a large
GPU. Measured 0.394 ms (H200, torch 2.11 and Triton 3.6, which is not the pinned stack); 0.431 with batch norm in the
kernels and no early starts. Kernels in us: stem 19, 15 depthwise 90, 29 pointwise 174, 2 whole blocks 43, head 6,
classifier 8; the other 54 lie between them, 1 each. A kernel is bound by latency, with few warps. ncu of them before
(off-pin; SM's throughput, warps): stem 36 %, 26 %; whole block 41 %, 11 %; pointwise 46 %, 22 %; none over 30 % of the
memory's bandwidth.
Slower, ms: the projection filters what it reads, in layers of 65536 output positions and more 0.407, of 16384 0.442, of
4096 0.481, of 1024 0.690 (other tiles 0.503 to 0.748). With that, no early starts and no loads ahead 0.691; other tiles
of the rest 0.684 to 0.710.
"""

from itertools import accumulate
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import nn

INVERTED_RESIDUALS = (  # expansion, channels out, blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
EARLY_ARCH = 90  # from which on a kernel may start before the one before it has ended
LINE = 32  # floats of a cache line
# Tiles: positions, channels out, channels in, stages.
EXPAND = (64, 64, 32, 3)
PROJECT = (32, 32, 128, 3)
DEPTHWISE = (64, 32, 4)  # positions, channels, warps
WHOLE = ((128, 16), (64, 32))  # positions, hidden channels; of 16 channels in, of more
HEAD = (64, 64, 3)  # channels out, channels in, stages
CLASSES = (16, 128, 4)
# Arguments that decide nothing about how memory is read: one kernel serves all their values.
SIZES = ("rows", "height", "width", "out_height", "out_width", "positions")


class Folded(NamedTuple):
    """A convolution or linear layer with its batch norm: weight (see `fold`), bias, stride."""

    weight: torch.Tensor
    bias: torch.Tensor
    stride: int


@triton.jit
def nearest(x):
    """x rounded to TF32's ten bits, halves away from zero; what is no number stays none."""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


@triton.jit
def clip(y):
    """ReLU6."""
    y = tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.minimum(y, 6.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def wait_for_input(EARLY: tl.constexpr):
    """EARLY: this kernel started before the one before it had ended; let the next one do so, and wait for that end."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def product(x_ptr, weight_ptr, p, co, rows, channels, out_channels, BLOCK_K: tl.constexpr, WEIGHT_FIRST: tl.constexpr):
    """x (rows, channels) times weight (out_channels, channels)^T at the indices p and co."""
    k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + p.to(tl.int64)[:, None] * channels + k[None, :]
    weight_ptrs = weight_ptr + co[:, None] * channels + k[None, :]
    if WEIGHT_FIRST:
        acc = tl.zeros((co.shape[0], p.shape[0]), dtype=tl.float32)
    else:
        acc = tl.zeros((p.shape[0], co.shape[0]), dtype=tl.float32)
    tl.assume(channels > 0)
    for start in range(0, channels, BLOCK_K):
        x = tl.load(x_ptrs, mask=(p < rows)[:, None] & (k < channels - start)[None, :], other=0.0)
        weight = tl.load(weight_ptrs, mask=(co < out_channels)[:, None] & (k < channels - start)[None, :], other=0.0)
        if WEIGHT_FIRST:
            acc = tl.dot(weight, tl.trans(x), acc, input_precision="tf32")
        else:
            acc = tl.dot(x, tl.trans(weight), acc, input_precision="tf32")
        x_ptrs += BLOCK_K
        weight_ptrs += BLOCK_K
    if WEIGHT_FIRST:
        return tl.trans(acc)
    return acc


@triton.jit(do_not_specialize=(*SIZES, "out_channels"))
def pointwise_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, rows, channels, out_channels,
    CLIP: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
    WEIGHT_FIRST: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """x: (rows, channels), out: (rows, out_channels). Grid: (rows, out channels)."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    co = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    bias = tl.load(bias_ptr + co, mask=co < out_channels, other=0.0)
    wait_for_input(EARLY)
    y = product(x_ptr, weight_ptr, p, co, rows, channels, out_channels, BLOCK_K, WEIGHT_FIRST) + bias[None, :]
    if CLIP:
        y = clip(y)
    out_ptrs = out_ptr + p.to(tl.int64)[:, None] * out_channels + co[None, :]
    tl.store(out_ptrs, nearest(y), mask=(p < rows)[:, None] & (co < out_channels)[None, :])


@triton.jit(do_not_specialize=SIZES)
def head_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, positions, channels, out_channels,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """A pointwise convolution averaged over the positions, out: (batch, out_channels). Grid: (out channels, batch)."""
    co = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    image = tl.program_id(1).to(tl.int64)
    bias = tl.load(bias_ptr + co, mask=co < out_channels, other=0.0)
    wait_for_input(EARLY)
    x_ptr += image * positions * channels
    total = tl.zeros((BLOCK_C,), dtype=tl.float32)
    for first in range(0, positions, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        y = clip(product(x_ptr, weight_ptr, p, co, positions, channels, out_channels, BLOCK_K, True) + bias[None, :])
        total += tl.sum(tl.where((p < positions)[:, None], y, 0.0), axis=0)
    tl.store(out_ptr + image * out_channels + co, nearest(total / positions), mask=co < out_channels)


@triton.jit
def classifier_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, rows, channels, classes,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """out (rows, classes) = x (rows, channels) weight^T + bias. Grid: (rows, classes)."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    co = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    bias = tl.load(bias_ptr + co, mask=co < classes, other=0.0)
    wait_for_input(EARLY)
    y = product(x_ptr, weight_ptr, p, co, rows, channels, classes, BLOCK_K, False) + bias[None, :]
    tl.store(out_ptr + p[:, None] * classes + co[None, :], y, mask=(p < rows)[:, None] & (co < classes)[None, :])


@triton.jit(do_not_specialize=SIZES)
def stem_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, folded_ptr, rows, height, width, out_height, out_width, out_channels, lines,
    CHANNELS: tl.constexpr, STRIDE: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, LINE: tl.constexpr,
    PREFETCH: tl.constexpr,
):  # fmt: skip
    """3 x 3 over the few channels of an image, x: (batch, CHANNELS, height, width), out: (rows, out_channels), weight:
    (CHANNELS, 3, 3, out_channels). PREFETCH: also bring the lines of folded, all weights, into the L2 cache."""
    if PREFETCH:
        line = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l",
            [folded_ptr + tl.minimum(line, lines - 1).to(tl.int64) * LINE], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
        tl.extra.cuda.gdc_launch_dependents()
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    co = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    image = (p // (out_height * out_width)).to(tl.int64)
    row = p // out_width % out_height * STRIDE - 1
    col = p % out_width * STRIDE - 1
    acc = tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32)
    acc += tl.load(bias_ptr + co, mask=co < out_channels, other=0.0)[None, :]
    for ci in tl.static_range(CHANNELS):
        corner = x_ptr + (image * CHANNELS + ci) * (height * width) + row * width + col
        for ky in tl.static_range(3):
            for kx in tl.static_range(3):
                valid = (p < rows) & (row >= -ky) & (row < height - ky) & (col >= -kx) & (col < width - kx)
                value = tl.load(corner + (ky * width + kx), mask=valid, other=0.0)
                tap = (ci * 9 + ky * 3 + kx) * out_channels + co
                acc += value[:, None] * tl.load(weight_ptr + tap, mask=co < out_channels, other=0.0)[None, :]
    out_ptrs = out_ptr + p.to(tl.int64)[:, None] * out_channels + co[None, :]
    tl.store(out_ptrs, nearest(clip(acc)), mask=(p < rows)[:, None] & (co < out_channels)[None, :])


@triton.jit(do_not_specialize=SIZES)
def depthwise_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, rows, channels, height, width, out_height, out_width,
    STRIDE: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Depthwise 3 x 3 and ReLU6, x: (batch, height, width, channels), weight: (9, channels), out: (rows, channels),
    a row an output position. Grid: (rows, channels)."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    wait_for_input(EARLY)
    image = (p // (out_height * out_width)).to(tl.int64)
    row = p // out_width % out_height * STRIDE - 1
    col = p % out_width * STRIDE - 1
    corner = x_ptr + ((image * height + row) * width + col)[:, None] * channels + c[None, :]
    known = c < channels
    acc = tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32)
    acc += tl.load(bias_ptr + c, mask=known, other=0.0)[None, :]
    for ky in tl.static_range(3):
        for kx in tl.static_range(3):
            valid = (p < rows) & (row >= -ky) & (row < height - ky) & (col >= -kx) & (col < width - kx)
            value = tl.load(corner + (ky * width + kx) * channels, mask=valid[:, None] & known[None, :], other=0.0)
            acc += value * tl.load(weight_ptr + (ky * 3 + kx) * channels + c, mask=known, other=0.0)[None, :]
    out_ptrs = out_ptr + p.to(tl.int64)[:, None] * channels + c[None, :]
    tl.store(out_ptrs, nearest(clip(acc)), mask=(p < rows)[:, None] & known[None, :])


@triton.jit(do_not_specialize=(*SIZES, "out_channels"))
def block_kernel(
    x_ptr, weight0_ptr, bias0_ptr, weight_ptr, bias_ptr, weight2_ptr, bias2_ptr, out_ptr, rows, in_channels, channels,
    height, width, out_height, out_width, out_channels,
    STRIDE: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_I: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Expansion (0), depthwise convolution and projection (2), x: (batch, height, width, in_channels), out: (rows,
    out_channels). BLOCK_I holds all channels that come in, BLOCK_C all that go out. Grid: (rows,)."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    co = tl.arange(0, BLOCK_C)
    ci = tl.arange(0, BLOCK_I)
    bias2 = tl.load(bias2_ptr + co, mask=co < out_channels, other=0.0)
    wait_for_input(EARLY)
    image = (p // (out_height * out_width)).to(tl.int64)
    row = p // out_width % out_height * STRIDE - 1
    col = p % out_width * STRIDE - 1
    corner = x_ptr + ((image * height + row) * width + col)[:, None] * in_channels + ci[None, :]
    acc = tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32)
    tl.assume(channels > 0)
    for start in range(0, channels, BLOCK_K):
        c = start + tl.arange(0, BLOCK_K)
        known = c < channels
        inside = (ci < in_channels)[:, None] & known[None, :]
        weight0 = tl.load(weight0_ptr + c[None, :] * in_channels + ci[:, None], mask=inside, other=0.0)
        bias0 = tl.load(bias0_ptr + c, mask=known, other=0.0)
        y = tl.zeros((BLOCK_P, BLOCK_K), dtype=tl.float32)
        y += tl.load(bias_ptr + c, mask=known, other=0.0)[None, :]
        for ky in tl.static_range(3):
            for kx in tl.static_range(3):
                valid = (p < rows) & (row >= -ky) & (row < height - ky) & (col >= -kx) & (col < width - kx)
                inside = valid[:, None] & (ci < in_channels)[None, :]
                x = tl.load(corner + (ky * width + kx) * in_channels, mask=inside, other=0.0)
                y0 = clip(tl.dot(x, weight0, input_precision="tf32") + bias0[None, :])
                tap = tl.load(weight_ptr + (ky * 3 + kx) * channels + c, mask=known, other=0.0)
                y += tl.where(valid[:, None], y0, 0.0) * tap[None, :]
        inside = (co < out_channels)[:, None] & known[None, :]
        weight2 = tl.load(weight2_ptr + co[:, None] * channels + c[None, :], mask=inside, other=0.0)
        acc = tl.dot(nearest(clip(y)), tl.trans(weight2), acc, input_precision="tf32")
    out_ptrs = out_ptr + p.to(tl.int64)[:, None] * out_channels + co[None, :]
    tl.store(out_ptrs, nearest(acc + bias2[None, :]), mask=(p < rows)[:, None] & (co < out_channels)[None, :])


def padded(channels: int) -> int:
    """Channels that a position takes in memory, so that its run begins on 64 bytes; those beyond are 0."""
    return triton.cdiv(channels, 16) * 16


def round_weight(weight: torch.Tensor) -> torch.Tensor:
    """As `nearest`, on all that is a number."""
    rounded = ((weight.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
    return torch.where(weight == weight, rounded, weight)


def fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of the convolution with its batch norm. What is to be multiplied by tensor cores, (channels out,
    channels in), is rounded and padded with zeros; others are (taps, channels out)."""
    scale = norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps)
    bias = norm.bias.detach() - norm.running_mean * scale
    weight = conv.weight.detach().flatten(1) * scale[:, None]
    if conv.kernel_size[0] != 1:
        return weight.t(), bias
    rows, columns = padded(weight.shape[0]), padded(weight.shape[1])
    whole = weight.new_zeros((rows, columns))
    whole[: weight.shape[0], : weight.shape[1]] = round_weight(weight)
    return whole, torch.cat((bias, bias.new_zeros(rows - bias.shape[0])))


def early(x: torch.Tensor) -> dict[str, bool]:
    """Options of a kernel that may start before the one before it has ended."""
    can = not (x.is_cpu or triton.knobs.runtime.interpret)
    can = can and triton.runtime.driver.active.get_current_target().arch >= EARLY_ARCH
    return {"EARLY": True, "launch_pdl": True} if can else {"EARLY": False}


def strided(size: int, stride: int) -> int:
    """Positions of a 3 x 3 convolution with padding 1 along a side of `size`."""
    return (size - 1) // stride + 1


def stem(x: torch.Tensor, layer: Folded, folded: torch.Tensor, start: dict[str, bool]) -> torch.Tensor:
    """A 3 x 3 convolution of (batch, few channels, height, width), ReLU6; channels last from here on."""
    batch, channels, height, width = x.shape
    out_height, out_width = strided(height, layer.stride), strided(width, layer.stride)
    out_channels = layer.bias.shape[0]
    rows = batch * out_height * out_width
    out = torch.empty((batch, out_height, out_width, out_channels), device=x.device, dtype=x.dtype)
    block_p = 1024 if x.is_cpu else 128  # Triton's interpreter pays by program, whatever its size
    stem_kernel[(triton.cdiv(rows, block_p), triton.cdiv(out_channels, 32))](
        x, layer.weight, layer.bias, out, folded, rows, height, width, out_height, out_width, out_channels,
        folded.numel() // LINE, CHANNELS=channels, STRIDE=layer.stride, BLOCK_P=block_p, BLOCK_C=32, LINE=LINE,
        PREFETCH=start["EARLY"], num_warps=4,
    )  # fmt: skip
    return out


def pointwise(x: torch.Tensor, layer: Folded, clip: bool, start: dict[str, bool]) -> torch.Tensor:
    """A 1 x 1 convolution, ReLU6 where clip is on."""
    batch, height, width, channels = x.shape
    rows, out_channels = batch * height * width, layer.bias.shape[0]
    out = torch.empty((batch, height, width, out_channels), device=x.device, dtype=x.dtype)
    most, weight_first = triton.next_power_of_2(out_channels), out_channels > channels
    block_p, block_c, block_k, stages = EXPAND if weight_first else PROJECT
    block_k = min(block_k, triton.next_power_of_2(channels))
    if x.is_cpu:
        block_p, block_c, block_k = 512, most, triton.next_power_of_2(channels)
    block_c = min(block_c, most)
    pointwise_kernel[(triton.cdiv(rows, block_p), triton.cdiv(out_channels, block_c))](
        x, layer.weight, layer.bias, out, rows, channels, out_channels, CLIP=clip, BLOCK_P=block_p, BLOCK_C=block_c,
        BLOCK_K=block_k, WEIGHT_FIRST=weight_first, num_warps=4, num_stages=stages, **start,
    )  # fmt: skip
    return out


def depthwise(x: torch.Tensor, layer: Folded, start: dict[str, bool]) -> torch.Tensor:
    """A depthwise 3 x 3 convolution, ReLU6."""
    batch, height, width, channels = x.shape
    out_height, out_width = strided(height, layer.stride), strided(width, layer.stride)
    rows = batch * out_height * out_width
    out = torch.empty((batch, out_height, out_width, channels), device=x.device, dtype=x.dtype)
    block_p, block_c, warps = DEPTHWISE
    if x.is_cpu:
        block_p, block_c = 128, triton.next_power_of_2(channels)
    depthwise_kernel[(triton.cdiv(rows, block_p), triton.cdiv(channels, block_c))](
        x, layer.weight, layer.bias, out, rows, channels, height, width, out_height, out_width, STRIDE=layer.stride,
        BLOCK_P=block_p, BLOCK_C=block_c, num_warps=warps, **start,
    )  # fmt: skip
    return out


def whole_block(
    x: torch.Tensor, expand: Folded, conv: Folded, project: Folded, start: dict[str, bool]
) -> torch.Tensor:  # fmt: skip
    """A whole inverted residual of few channels in and out."""
    batch, height, width, in_channels = x.shape
    out_height, out_width = strided(height, conv.stride), strided(width, conv.stride)
    rows, channels, out_channels = batch * out_height * out_width, conv.bias.shape[0], project.bias.shape[0]
    out = torch.empty((batch, out_height, out_width, out_channels), device=x.device, dtype=x.dtype)
    block_p, block_k = WHOLE[in_channels > 16]
    if x.is_cpu:
        block_p, block_k = 128, triton.next_power_of_2(channels)
    block_kernel[(triton.cdiv(rows, block_p),)](
        x, expand.weight, expand.bias, conv.weight, conv.bias, project.weight, project.bias, out, rows, in_channels,
        channels, height, width, out_height, out_width, out_channels, STRIDE=conv.stride, BLOCK_P=block_p,
        BLOCK_C=triton.next_power_of_2(out_channels), BLOCK_K=block_k, BLOCK_I=triton.next_power_of_2(in_channels),
        num_warps=4, num_stages=2, **start,
    )  # fmt: skip
    return out


def head(x: torch.Tensor, layer: Folded, start: dict[str, bool]) -> torch.Tensor:
    """A 1 x 1 convolution, ReLU6, mean over the positions."""
    batch, height, width, channels = x.shape
    out_channels = layer.bias.shape[0]
    out = torch.empty((batch, out_channels), device=x.device, dtype=x.dtype)
    block_c, block_k, stages = (2048, 512, 1) if x.is_cpu else HEAD
    head_kernel[(triton.cdiv(out_channels, block_c), batch)](
        x, layer.weight, layer.bias, out, height * width, channels, out_channels, BLOCK_P=16 if x.is_cpu else 64,
        BLOCK_C=block_c, BLOCK_K=block_k, num_warps=4, num_stages=stages, **start,
    )  # fmt: skip
    return out


def classify(x: torch.Tensor, layer: Folded, classes: int, start: dict[str, bool]) -> torch.Tensor:
    """The linear layer, x: (rows, channels)."""
    rows, channels = x.shape
    out = torch.empty((rows, classes), device=x.device, dtype=x.dtype)
    block_c, block_k, stages = CLASSES
    classifier_kernel[(triton.cdiv(rows, 16), triton.cdiv(classes, block_c))](
        x, layer.weight, layer.bias, out, rows, channels, classes,
        BLOCK_P=16, BLOCK_C=block_c, BLOCK_K=block_k, num_warps=4, num_stages=stages, **start,
    )  # fmt: skip
    return out


def inverted_residual(channels_in: int, channels_out: int, stride: int, expansion: int) -> nn.Sequential:
    """Expand, depthwise, project; no skip connection."""
    hidden = channels_in * expansion
    layers: list[nn.Module] = []
    if expansion != 1:
        layers += [nn.Conv2d(channels_in, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
    layers += [
        nn.Conv2d(hidden, hidden, 3, stride=stride, padding=1, groups=hidden, bias=False),
        nn.BatchNorm2d(hidden),
        nn.ReLU6(inplace=True),
        nn.Conv2d(hidden, channels_out, 1, bias=False),
        nn.BatchNorm2d(channels_out),
    ]
    return nn.Sequential(*layers)


class ModelNew(nn.Module):
    """`features` (stem, inverted residuals, head, global pooling) and `classifier`, in evaluation mode."""

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        channels = 32
        features: list[nn.Module] = [
            nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU6(inplace=True),
        ]
        for expansion, channels_out, blocks, first_stride in INVERTED_RESIDUALS:
            for block in range(blocks):
                stride = first_stride if block == 0 else 1
                features.append(inverted_residual(channels, channels_out, stride, expansion))
                channels = channels_out
        features += [
            nn.Conv2d(channels, 1280, 1, bias=False),
            nn.BatchNorm2d(1280),
            nn.ReLU6(inplace=True),
            nn.AdaptiveAvgPool2d((1, 1)),
        ]
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(1280, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)
        self._kept: tuple[list[tuple[torch.Tensor, int]], torch.Tensor, list[Folded]] | None = None

    def convolutions(self) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
        """In the order of their use, each with its batch norm."""
        modules = [m for m in self.features.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d)]
        return list(zip(modules[::2], modules[1::2], strict=True))

    def folded_layers(self) -> tuple[torch.Tensor, list[Folded]]:
        """All layers, and the memory that holds them; made again when a parameter was written to or replaced."""
        pairs, linear = self.convolutions(), self.classifier[1]
        now = [(p.detach(), p._version) for p in linear.parameters()]
        for conv, norm in pairs:
            tensors = (conv.weight, norm.weight, norm.bias, norm.running_mean, norm.running_var)
            now += [(t.detach(), t._version) for t in tensors]
        if self._kept is None or any(
            old.data_ptr() != t.data_ptr() or version != old_version
            for (old, old_version), (t, version) in zip(self._kept[0], now, strict=True)
        ):
            parts = [tensor for conv, norm in pairs for tensor in fold(conv, norm)]
            parts += [round_weight(linear.weight.detach()), linear.bias.detach()]
            ends = list(accumulate(triton.cdiv(part.numel(), LINE) * LINE for part in parts))
            memory = torch.zeros((ends[-1],), device=linear.weight.device, dtype=torch.float32)
            views = []
            for first, part in zip([0, *ends], parts, strict=False):
                view = memory[first : first + part.numel()].view(part.shape)
                views.append(view.copy_(part))
            strides = [conv.stride[0] for conv, _ in pairs] + [1]
            layers = [Folded(*pair) for pair in zip(views[::2], views[1::2], strides, strict=True)]
            # the parameters' memory is kept as well, so that its address is not given to others
            self._kept = (now, memory, layers)
        return self._kept[1:]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, 3, resolution, resolution); returns (batch, num_classes)."""
        classes = self.classifier[1].out_features
        if x.shape[0] == 0:
            return x.new_empty((0, classes))
        with torch.cuda.device_of(x):
            memory, layers = self.folded_layers()
            start, rest = early(x), iter(layers)
            x = stem(x.contiguous(), next(rest), memory, start)
            for expansion, _, blocks, _ in INVERTED_RESIDUALS:
                for _ in range(blocks):
                    expand = next(rest) if expansion != 1 else None
                    conv, project = next(rest), next(rest)
                    if expand and conv.stride == 2 and conv.bias.shape[0] <= 144:
                        x = whole_block(x, expand, conv, project, start)
                        continue
                    if expand:
                        x = pointwise(x, expand, True, start)
                    x = pointwise(depthwise(x, conv, start), project, False, start)
            return classify(head(x, next(rest), start), next(rest), classes, start)
