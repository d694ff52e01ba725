"""KernelBench level 3, problem 20: MobileNetV2 without residual additions, hand-written in Triton.

Activations lie with their channels last, so that a pointwise convolution is a matrix product whose operands are both
contiguous along the sum, over all positions of all images, and a depthwise one reads whole channel runs. Batch norm is
folded inside the kernels from the current parameters. The widest activation, 112 x 112 x 96 an image, is never written:
before the first strides of 2 one kernel expands, filters and projects, and computes each expanded position 2.25 times.

Products take one TF32 pass, as the reference's convolutions do by default. Tensor cores cut operands off to TF32, so
kernels round what the next product reads, and their weights, to the nearest: a third of the error of thirty-five
products in a row. Floor: the launches; neither bytes nor multiplications fill 0.1 ms of a large GPU.
"""

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
# Arguments that decide nothing about how memory is read: one kernel serves all their values.
SIZES = ("rows", "height", "width", "out_height", "out_width", "positions")


@triton.jit
def nearest(x):
    """x rounded to TF32's ten bits, halves away from zero; what is no number stays none."""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


@triton.jit
def normalise(y, channel, known, gamma_ptr, beta_ptr, mean_ptr, var_ptr, eps, CLIP: tl.constexpr):
    """Batch norm of y (positions, channels) with running statistics, then ReLU6 where CLIP is on."""
    scale = tl.load(gamma_ptr + channel, mask=known, other=0.0)
    scale /= tl.sqrt(tl.load(var_ptr + channel, mask=known, other=1.0) + eps)
    centre = tl.load(mean_ptr + channel, mask=known, other=0.0)
    y = (y - centre[None, :]) * scale[None, :] + tl.load(beta_ptr + channel, mask=known, other=0.0)[None, :]
    if CLIP:
        y = tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL)
        y = tl.minimum(y, 6.0, propagate_nan=tl.PropagateNan.ALL)
    return y


@triton.jit
def rounded_weight(weight_ptr, co, k, out_channels, channels):
    """Weight (out_channels, channels) at the indices co and k, rounded."""
    inside = (co < out_channels)[:, None] & (k < channels)[None, :]
    return nearest(tl.load(weight_ptr + co[:, None] * channels + k[None, :], mask=inside, other=0.0))


@triton.jit
def product(
    x_ptr, weight_ptr, p, co, rows, wide, channels, out_channels, BLOCK_K: tl.constexpr, WEIGHT_FIRST: tl.constexpr
):
    """x (rows, wide) times weight (out_channels, channels)^T at the indices p and co. From channels on, x holds 0."""
    k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + p.to(tl.int64)[:, None] * wide + k[None, :]
    if WEIGHT_FIRST:
        acc = tl.zeros((co.shape[0], p.shape[0]), dtype=tl.float32)
    else:
        acc = tl.zeros((p.shape[0], co.shape[0]), dtype=tl.float32)
    tl.assume(channels > 0)
    for start in range(0, channels, BLOCK_K):
        x = tl.load(x_ptrs, mask=(p < rows)[:, None] & (k < wide - start)[None, :], other=0.0)
        weight = rounded_weight(weight_ptr, co, start + k, out_channels, channels)
        if WEIGHT_FIRST:
            acc = tl.dot(weight, tl.trans(x), acc, input_precision="tf32")
        else:
            acc = tl.dot(x, tl.trans(weight), acc, input_precision="tf32")
        x_ptrs += BLOCK_K
    if WEIGHT_FIRST:
        return tl.trans(acc)
    return acc


@triton.jit(do_not_specialize=(*SIZES, "out_channels"))
def pointwise_kernel(
    x_ptr, weight_ptr, gamma_ptr, beta_ptr, mean_ptr, var_ptr, out_ptr, rows, wide, channels, out_wide, out_channels,
    eps, CLIP: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
    WEIGHT_FIRST: tl.constexpr,
):  # fmt: skip
    """x: (rows, wide), out: (rows, out_wide), 0 from out_channels on. Grid: (rows, out channels)."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    co = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    y = product(x_ptr, weight_ptr, p, co, rows, wide, channels, out_channels, BLOCK_K, WEIGHT_FIRST)
    y = nearest(normalise(y, co, co < out_channels, gamma_ptr, beta_ptr, mean_ptr, var_ptr, eps, CLIP))
    out_ptrs = out_ptr + p.to(tl.int64)[:, None] * out_wide + co[None, :]
    tl.store(out_ptrs, y, mask=(p < rows)[:, None] & (co < out_wide)[None, :])


@triton.jit(do_not_specialize=SIZES)
def head_kernel(
    x_ptr, weight_ptr, gamma_ptr, beta_ptr, mean_ptr, var_ptr, out_ptr, positions, wide, channels, out_channels, eps,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr, WEIGHT_FIRST: tl.constexpr,
):  # fmt: skip
    """A pointwise convolution averaged over the positions, out: (batch, out_channels). Grid: (out channels, batch)."""
    co = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    image = tl.program_id(1).to(tl.int64)
    x_ptr += image * positions * wide
    total = tl.zeros((BLOCK_C,), dtype=tl.float32)
    for first in range(0, positions, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        y = product(x_ptr, weight_ptr, p, co, positions, wide, channels, out_channels, BLOCK_K, WEIGHT_FIRST)
        y = normalise(y, co, co < out_channels, gamma_ptr, beta_ptr, mean_ptr, var_ptr, eps, True)
        total += tl.sum(tl.where((p < positions)[:, None], y, 0.0), axis=0)
    tl.store(out_ptr + image * out_channels + co, nearest(total / positions), mask=co < out_channels)


@triton.jit
def classifier_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, rows, channels, classes,
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out (rows, classes) = x (rows, channels) weight^T + bias. Grid: (rows, classes)."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    co = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    y = product(x_ptr, weight_ptr, p, co, rows, channels, channels, classes, BLOCK_K, False)
    y += tl.load(bias_ptr + co, mask=co < classes, other=0.0)[None, :]
    tl.store(out_ptr + p[:, None] * classes + co[None, :], y, mask=(p < rows)[:, None] & (co < classes)[None, :])


@triton.jit(do_not_specialize=SIZES)
def stem_kernel(
    x_ptr, weight_ptr, gamma_ptr, beta_ptr, mean_ptr, var_ptr, out_ptr, rows, height, width, out_height, out_width,
    out_channels, eps,
    CHANNELS: tl.constexpr, STRIDE: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """3 x 3 over the few channels of an image, x: (batch, CHANNELS, height, width), out: (rows, out_channels)."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    co = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    image = (p // (out_height * out_width)).to(tl.int64)
    row = p // out_width % out_height * STRIDE - 1
    col = p % out_width * STRIDE - 1
    acc = tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32)
    for ci in tl.static_range(CHANNELS):
        corner = x_ptr + (image * CHANNELS + ci) * (height * width) + row * width + col
        for ky in tl.static_range(3):
            for kx in tl.static_range(3):
                valid = (p < rows) & (row >= -ky) & (row < height - ky) & (col >= -kx) & (col < width - kx)
                value = tl.load(corner + (ky * width + kx), mask=valid, other=0.0)
                tap = co * (CHANNELS * 9) + (ci * 9 + ky * 3 + kx)
                acc += value[:, None] * tl.load(weight_ptr + tap, mask=co < out_channels, other=0.0)[None, :]
    y = normalise(acc, co, co < out_channels, gamma_ptr, beta_ptr, mean_ptr, var_ptr, eps, True)
    out_ptrs = out_ptr + p.to(tl.int64)[:, None] * out_channels + co[None, :]
    tl.store(out_ptrs, nearest(y), mask=(p < rows)[:, None] & (co < out_channels)[None, :])


@triton.jit
def stencil(
    x_ptr, weight_ptr, p, c, rows, channels, height, width, out_height, out_width, STRIDE: tl.constexpr,
):  # fmt: skip
    """Depthwise 3 x 3 of x (images, height, width, channels) at output positions p and channels c: (p, c)."""
    image = (p // (out_height * out_width)).to(tl.int64)
    row = p // out_width % out_height * STRIDE - 1
    col = p % out_width * STRIDE - 1
    corner = x_ptr + ((image * height + row) * width + col)[:, None] * channels + c[None, :]
    acc = tl.zeros((p.shape[0], c.shape[0]), dtype=tl.float32)
    for ky in tl.static_range(3):
        for kx in tl.static_range(3):
            valid = (p < rows) & (row >= -ky) & (row < height - ky) & (col >= -kx) & (col < width - kx)
            inside = valid[:, None] & (c < channels)[None, :]
            value = tl.load(corner + (ky * width + kx) * channels, mask=inside, other=0.0)
            acc += value * tl.load(weight_ptr + c * 9 + (ky * 3 + kx), mask=c < channels, other=0.0)[None, :]
    return acc


@triton.jit(do_not_specialize=SIZES)
def depthwise_kernel(
    x_ptr, weight_ptr, gamma_ptr, beta_ptr, mean_ptr, var_ptr, out_ptr, rows, channels, height, width, out_height,
    out_width, eps, STRIDE: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """x: (batch, height, width, channels), out: (rows, channels), a row an output position. Grid: (rows, channels)."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    y = stencil(x_ptr, weight_ptr, p, c, rows, channels, height, width, out_height, out_width, STRIDE)
    y = nearest(normalise(y, c, c < channels, gamma_ptr, beta_ptr, mean_ptr, var_ptr, eps, True))
    out_ptrs = out_ptr + p.to(tl.int64)[:, None] * channels + c[None, :]
    tl.store(out_ptrs, y, mask=(p < rows)[:, None] & (c < channels)[None, :])


@triton.jit(do_not_specialize=(*SIZES, "out_channels"))
def block_kernel(
    x_ptr, weight0_ptr, gamma0_ptr, beta0_ptr, mean0_ptr, var0_ptr, weight_ptr, gamma_ptr, beta_ptr, mean_ptr, var_ptr,
    weight2_ptr, gamma2_ptr, beta2_ptr, mean2_ptr, var2_ptr, out_ptr, rows, wide, in_channels, channels, height,
    width, out_height, out_width, out_wide, out_channels, eps0, eps, eps2,
    STRIDE: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """Expansion (names end in 0), depthwise convolution and projection (2), x: (batch, height, width, wide), out:
    (rows, out_wide). BLOCK_I holds all channels that come in, BLOCK_C all that go out. Grid: (rows,)."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    co = tl.arange(0, BLOCK_C)
    ci = tl.arange(0, BLOCK_I)
    image = (p // (out_height * out_width)).to(tl.int64)
    row = p // out_width % out_height * STRIDE - 1
    col = p % out_width * STRIDE - 1
    corner = x_ptr + ((image * height + row) * width + col)[:, None] * wide + ci[None, :]
    acc = tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32)
    tl.assume(channels > 0)
    for start in range(0, channels, BLOCK_K):
        c = start + tl.arange(0, BLOCK_K)
        weight0 = tl.trans(rounded_weight(weight0_ptr, c, ci, channels, in_channels))
        y = tl.zeros((BLOCK_P, BLOCK_K), dtype=tl.float32)
        for ky in tl.static_range(3):
            for kx in tl.static_range(3):
                valid = (p < rows) & (row >= -ky) & (row < height - ky) & (col >= -kx) & (col < width - kx)
                inside = valid[:, None] & (ci < wide)[None, :]
                x = tl.load(corner + (ky * width + kx) * wide, mask=inside, other=0.0)
                y0 = tl.dot(x, weight0, input_precision="tf32")
                y0 = normalise(y0, c, c < channels, gamma0_ptr, beta0_ptr, mean0_ptr, var0_ptr, eps0, True)
                tap = tl.load(weight_ptr + c * 9 + (ky * 3 + kx), mask=c < channels, other=0.0)
                y += tl.where(valid[:, None], y0, 0.0) * tap[None, :]
        y = nearest(normalise(y, c, c < channels, gamma_ptr, beta_ptr, mean_ptr, var_ptr, eps, True))
        weight2 = rounded_weight(weight2_ptr, co, c, out_channels, channels)
        acc = tl.dot(y, tl.trans(weight2), acc, input_precision="tf32")
    acc = normalise(acc, co, co < out_channels, gamma2_ptr, beta2_ptr, mean2_ptr, var2_ptr, eps2, False)
    out_ptrs = out_ptr + p.to(tl.int64)[:, None] * out_wide + co[None, :]
    tl.store(out_ptrs, nearest(acc), mask=(p < rows)[:, None] & (co < out_wide)[None, :])


def norm_parameters(norm: nn.BatchNorm2d) -> tuple[torch.Tensor | None, ...]:
    """Weight, bias, running mean, running variance; from the module's dicts, as nn.Module's attribute look-up costs
    about as much as a launch over fifty layers."""
    own, buffers = norm._parameters, norm._buffers
    return own["weight"], own["bias"], buffers["running_mean"], buffers["running_var"]


def padded(channels: int) -> int:
    """Channels that a position takes in memory, so that its run begins on 64 bytes; those beyond are 0."""
    return triton.cdiv(channels, 16) * 16


def strided(size: int, conv: nn.Conv2d) -> int:
    """Positions of a 3 x 3 convolution with padding 1 along a side of `size`."""
    return (size - 1) // conv.stride[0] + 1


def stem(x: torch.Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> torch.Tensor:
    """A 3 x 3 convolution of (batch, few channels, height, width), batch norm, ReLU6; channels last from here on."""
    batch, channels, height, width = x.shape
    out_height, out_width, out_channels = strided(height, conv), strided(width, conv), conv.out_channels
    rows = batch * out_height * out_width
    out = torch.empty((batch, out_height, out_width, out_channels), device=x.device, dtype=x.dtype)
    block_p = 1024 if x.is_cpu else 128  # Triton's interpreter pays by program, whatever its size
    stem_kernel[(triton.cdiv(rows, block_p), triton.cdiv(out_channels, 32))](
        x, conv._parameters["weight"], *norm_parameters(norm), out, rows, height, width, out_height, out_width,
        out_channels, norm.eps, CHANNELS=channels, STRIDE=conv.stride[0], BLOCK_P=block_p, BLOCK_C=32, num_warps=4,
    )  # fmt: skip
    return out


def pointwise(x: torch.Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d, clip: bool) -> torch.Tensor:
    """A 1 x 1 convolution, batch norm, ReLU6 where clip is on."""
    batch, height, width, wide = x.shape
    rows, out_channels, out_wide = batch * height * width, conv.out_channels, padded(conv.out_channels)
    out = torch.empty((batch, height, width, out_wide), device=x.device, dtype=x.dtype)
    # Tiles and orientation: the fastest of some fifty on an H200, at the sizes of the problem.
    most, weight_first = triton.next_power_of_2(out_wide), out_channels > conv.in_channels
    block_p, block_c = (64, 64) if weight_first else (128, 32) if rows >= 16384 else (32, 32)
    block_k = 16 if wide == 16 else 32
    if x.is_cpu:
        block_p, block_c, block_k = 512, most, triton.next_power_of_2(wide)
    block_c = min(block_c, most)
    pointwise_kernel[(triton.cdiv(rows, block_p), triton.cdiv(out_wide, block_c))](
        x, conv._parameters["weight"], *norm_parameters(norm), out, rows, wide, conv.in_channels, out_wide,
        out_channels, norm.eps, CLIP=clip, BLOCK_P=block_p, BLOCK_C=block_c, BLOCK_K=block_k,
        WEIGHT_FIRST=weight_first, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


def depthwise(x: torch.Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> torch.Tensor:
    """A depthwise 3 x 3 convolution, batch norm, ReLU6."""
    batch, height, width, channels = x.shape
    out_height, out_width = strided(height, conv), strided(width, conv)
    rows = batch * out_height * out_width
    out = torch.empty((batch, out_height, out_width, channels), device=x.device, dtype=x.dtype)
    block_p, block_c = (128, triton.next_power_of_2(channels)) if x.is_cpu else (64, 32)
    depthwise_kernel[(triton.cdiv(rows, block_p), triton.cdiv(channels, block_c))](
        x, conv._parameters["weight"], *norm_parameters(norm), out, rows, channels, height, width, out_height,
        out_width, norm.eps, STRIDE=conv.stride[0], BLOCK_P=block_p, BLOCK_C=block_c, num_warps=4,
    )  # fmt: skip
    return out


def expanded(
    x: torch.Tensor,
    expand: nn.Conv2d,
    expand_norm: nn.BatchNorm2d,
    conv: nn.Conv2d,
    norm: nn.BatchNorm2d,
    project: nn.Conv2d,
    project_norm: nn.BatchNorm2d,
) -> torch.Tensor:
    """A whole inverted residual of few channels in and out."""
    batch, height, width, wide = x.shape
    out_height, out_width, out_wide = strided(height, conv), strided(width, conv), padded(project.out_channels)
    rows = batch * out_height * out_width
    out = torch.empty((batch, out_height, out_width, out_wide), device=x.device, dtype=x.dtype)
    block_p, block_k = (128, 16) if wide == 16 else (64, 32)
    if x.is_cpu:
        block_p, block_k = 128, triton.next_power_of_2(conv.in_channels)
    block_kernel[(triton.cdiv(rows, block_p),)](
        x, expand._parameters["weight"], *norm_parameters(expand_norm), conv._parameters["weight"],
        *norm_parameters(norm), project._parameters["weight"], *norm_parameters(project_norm), out, rows, wide,
        expand.in_channels, conv.in_channels, height, width, out_height, out_width, out_wide, project.out_channels,
        expand_norm.eps, norm.eps, project_norm.eps, STRIDE=conv.stride[0], BLOCK_P=block_p,
        BLOCK_C=triton.next_power_of_2(out_wide), BLOCK_K=block_k, BLOCK_I=triton.next_power_of_2(wide), num_warps=4,
        num_stages=2,
    )  # fmt: skip
    return out


def head(x: torch.Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> torch.Tensor:
    """A 1 x 1 convolution, batch norm, ReLU6, mean over the positions."""
    batch, height, width, wide = x.shape
    out = torch.empty((batch, conv.out_channels), device=x.device, dtype=x.dtype)
    block_c, block_k = (2048, 512) if x.is_cpu else (64, 32)
    head_kernel[(triton.cdiv(conv.out_channels, block_c), batch)](
        x, conv._parameters["weight"], *norm_parameters(norm), out, height * width, wide, conv.in_channels,
        conv.out_channels, norm.eps, BLOCK_P=16 if x.is_cpu else 64, BLOCK_C=block_c, BLOCK_K=block_k,
        WEIGHT_FIRST=True, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


def classify(x: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
    """The linear layer, x: (rows, channels)."""
    rows, channels = x.shape
    out = torch.empty((rows, layer.out_features), device=x.device, dtype=x.dtype)
    classifier_kernel[(triton.cdiv(rows, 16), triton.cdiv(layer.out_features, 16))](
        x, layer.weight, layer.bias, out, rows, channels, layer.out_features,
        BLOCK_P=16, BLOCK_C=16, BLOCK_K=64, num_warps=4, num_stages=4,
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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, 3, resolution, resolution); returns (batch, num_classes)."""
        layers = list(self.features)
        if x.shape[0] == 0:
            return x.new_empty((0, self.classifier[1].out_features))
        with torch.cuda.device_of(x):
            x = stem(x.contiguous(), layers[0], layers[1])
            for block in layers[3:-4]:
                *expand, conv, norm, _, project, project_norm = block
                if expand and conv.stride[0] == 2 and conv.in_channels <= 144:
                    x = expanded(x, expand[0], expand[1], conv, norm, project, project_norm)
                    continue
                if expand:
                    x = pointwise(x, expand[0], expand[1], clip=True)
                x = pointwise(depthwise(x, conv, norm), project, project_norm, clip=False)
            x = head(x, layers[-4], layers[-3])
            return classify(x, self.classifier[1])
