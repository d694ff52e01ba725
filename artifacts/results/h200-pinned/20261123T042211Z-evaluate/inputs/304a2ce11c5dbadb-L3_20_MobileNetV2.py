"""KernelBench level 3, problem 20: MobileNetV2 without residual additions, hand-written in Triton.

One kernel a convolution, each with batch norm (folded inside the kernel from the current parameters) and ReLU6: the
stem, pointwise products, depthwise stencils, the head with its global pooling, the classifier. Thirty-five products in
a row would add up the errors of TF32, and at this size they cost little, so they take three TF32 passes (tf32x3),
which is fp32 accuracy. Floor: the launches; neither bytes nor multiplications fill 0.1 ms of a large GPU.
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


@triton.jit
def normalise(y, channel, known, gamma_ptr, beta_ptr, mean_ptr, var_ptr, eps, CLIP: tl.constexpr):
    """Batch norm of y (channels, positions) with running statistics, then ReLU6 where CLIP is on."""
    scale = tl.load(gamma_ptr + channel, mask=known, other=0.0)
    scale /= tl.sqrt(tl.load(var_ptr + channel, mask=known, other=1.0) + eps)
    centre = tl.load(mean_ptr + channel, mask=known, other=0.0)
    y = (y - centre[:, None]) * scale[:, None] + tl.load(beta_ptr + channel, mask=known, other=0.0)[:, None]
    if CLIP:
        y = tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL)
        y = tl.minimum(y, 6.0, propagate_nan=tl.PropagateNan.ALL)
    return y


@triton.jit
def product(x_ptr, weight_ptr, co, p, channels, out_channels, positions, BLOCK_K: tl.constexpr):
    """weight (out_channels, channels) times x (channels, positions) at the indices co and p."""
    k = tl.arange(0, BLOCK_K)
    weight_ptrs = weight_ptr + co[:, None] * channels + k[None, :]
    x_ptrs = x_ptr + k[:, None] * positions + p[None, :]
    acc = tl.zeros((co.shape[0], p.shape[0]), dtype=tl.float32)
    tl.assume(channels > 0)
    for start in range(0, channels, BLOCK_K):
        inside = k < channels - start
        weight = tl.load(weight_ptrs, mask=(co < out_channels)[:, None] & inside[None, :], other=0.0)
        x = tl.load(x_ptrs, mask=inside[:, None] & (p < positions)[None, :], other=0.0)
        acc = tl.dot(weight, x, acc, input_precision="tf32x3")
        weight_ptrs += BLOCK_K
        x_ptrs += BLOCK_K * positions
    return acc


@triton.jit
def pointwise_kernel(
    x_ptr, weight_ptr, gamma_ptr, beta_ptr, mean_ptr, var_ptr, out_ptr, channels, out_channels, positions, eps,
    CLIP: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """x: (batch, channels, positions), out (batch, out_channels, positions). Grid: (positions, out channels, batch)."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    co = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    image = tl.program_id(2).to(tl.int64)
    x_ptr += image * channels * positions
    y = product(x_ptr, weight_ptr, co, p, channels, out_channels, positions, BLOCK_K)
    y = normalise(y, co, co < out_channels, gamma_ptr, beta_ptr, mean_ptr, var_ptr, eps, CLIP)
    out_ptrs = out_ptr + image * out_channels * positions + co[:, None] * positions + p[None, :]
    tl.store(out_ptrs, y, mask=(co < out_channels)[:, None] & (p < positions)[None, :])


@triton.jit
def head_kernel(
    x_ptr, weight_ptr, gamma_ptr, beta_ptr, mean_ptr, var_ptr, out_ptr, channels, out_channels, positions, eps,
    BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A pointwise convolution averaged over the positions, out: (batch, out_channels). Grid: (out channels, batch)."""
    co = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    image = tl.program_id(1).to(tl.int64)
    x_ptr += image * channels * positions
    total = tl.zeros((BLOCK_C,), dtype=tl.float32)
    for first in range(0, positions, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        y = product(x_ptr, weight_ptr, co, p, channels, out_channels, positions, BLOCK_K)
        y = normalise(y, co, co < out_channels, gamma_ptr, beta_ptr, mean_ptr, var_ptr, eps, True)
        total += tl.sum(tl.where((p < positions)[None, :], y, 0.0), axis=1)
    tl.store(out_ptr + image * out_channels + co, total / positions, mask=co < out_channels)


@triton.jit
def spatial_kernel(
    x_ptr, weight_ptr, gamma_ptr, beta_ptr, mean_ptr, var_ptr, out_ptr, planes, out_channels, height, width,
    out_height, out_width, eps,
    CHANNELS: tl.constexpr, KERNEL: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """A convolution whose outputs see few inputs: depthwise (CHANNELS = 0) or of CHANNELS input channels, as the stem.

    x: (batch, channels, height, width), out: (planes = batch * out_channels, out_height, out_width). Grid: (planes,
    positions).
    """
    p = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)
    plane = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    row = p // out_width * STRIDE - PADDING
    col = p % out_width * STRIDE - PADDING
    corner = row * width + col
    inside = (plane < planes)[:, None] & (p < out_height * out_width)[None, :]
    co = plane % out_channels
    PASSES: tl.constexpr = CHANNELS if CHANNELS > 0 else 1
    acc = tl.zeros((BLOCK_C, BLOCK_P), dtype=tl.float32)
    for ci in tl.static_range(PASSES):
        in_plane = plane // out_channels * CHANNELS + ci if CHANNELS > 0 else plane
        corner_ptrs = x_ptr + in_plane.to(tl.int64)[:, None] * (height * width) + corner[None, :]
        weight_ptrs = weight_ptr + (co * PASSES + ci) * (KERNEL * KERNEL)
        for ky in tl.static_range(KERNEL):
            row_ok = (row >= -ky) & (row < height - ky)
            for kx in tl.static_range(KERNEL):
                valid = row_ok & (col >= -kx) & (col < width - kx)
                value = tl.load(corner_ptrs + (ky * width + kx), mask=inside & valid[None, :], other=0.0)
                acc += tl.load(weight_ptrs + (ky * KERNEL + kx))[:, None] * value
    acc = normalise(acc, co, co < out_channels, gamma_ptr, beta_ptr, mean_ptr, var_ptr, eps, True)
    out_ptrs = out_ptr + plane.to(tl.int64)[:, None] * (out_height * out_width) + p[None, :]
    tl.store(out_ptrs, acc, mask=inside)


@triton.jit
def classifier_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, rows, channels, classes,
    BLOCK_C: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out (rows, classes) = x (rows, channels) weight^T + bias. Grid: (classes, rows)."""
    co = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_C, BLOCK_M), dtype=tl.float32)
    for start in range(0, channels, BLOCK_K):
        inside = k < channels - start
        weight_ptrs = weight_ptr + co[:, None] * channels + start + k[None, :]
        weight = tl.load(weight_ptrs, mask=(co < classes)[:, None] & inside[None, :], other=0.0)
        x_ptrs = x_ptr + m[None, :] * channels + start + k[:, None]
        x = tl.load(x_ptrs, mask=inside[:, None] & (m < rows)[None, :], other=0.0)
        acc = tl.dot(weight, x, acc, input_precision="tf32x3")
    acc += tl.load(bias_ptr + co, mask=co < classes, other=0.0)[:, None]
    tl.store(out_ptr + m[None, :] * classes + co[:, None], acc, mask=(co < classes)[:, None] & (m < rows)[None, :])


def norm_parameters(norm: nn.BatchNorm2d) -> tuple[torch.Tensor | None, ...]:
    """Weight, bias, running mean, running variance; from the module's dicts, as nn.Module's attribute look-up costs
    about as much as a launch over fifty layers."""
    own, buffers = norm._parameters, norm._buffers
    return own["weight"], own["bias"], buffers["running_mean"], buffers["running_var"]


def spatial(x: torch.Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> torch.Tensor:
    """A small-kernel convolution, depthwise or of few input channels, batch norm, ReLU6."""
    batch, channels, height, width = x.shape
    out_channels, stride, padding, kernel = conv.out_channels, conv.stride[0], conv.padding[0], conv.kernel_size[0]
    out_height = (height + 2 * padding - kernel) // stride + 1
    out_width = (width + 2 * padding - kernel) // stride + 1
    out = torch.empty((batch, out_channels, out_height, out_width), device=x.device, dtype=x.dtype)
    block_p = min(512, max(32, triton.next_power_of_2(out_height * out_width)))
    block_c = (16384 if x.is_cpu else 1024) // block_p  # Triton's interpreter pays by program, whatever its size
    grid = (triton.cdiv(batch * out_channels, block_c), triton.cdiv(out_height * out_width, block_p))
    spatial_kernel[grid](
        x, conv._parameters["weight"], *norm_parameters(norm), out, batch * out_channels, out_channels, height, width,
        out_height, out_width, norm.eps, CHANNELS=channels if conv.groups == 1 else 0, KERNEL=kernel, STRIDE=stride,
        PADDING=padding, BLOCK_C=block_c, BLOCK_P=block_p, num_warps=4,
    )  # fmt: skip
    return out


def pointwise(x: torch.Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d, clip: bool) -> torch.Tensor:
    """A 1 x 1 convolution, batch norm, ReLU6 where clip is on."""
    batch, channels, height, width = x.shape
    out_channels, positions = conv.out_channels, height * width
    out = torch.empty((batch, out_channels, height, width), device=x.device, dtype=x.dtype)
    block_c = 64 if out_channels > 32 else max(16, triton.next_power_of_2(out_channels))
    block_p = 128 if positions >= 1024 else 32 if positions < 64 else 64
    block_k = 16 if channels <= 16 else 32
    if x.is_cpu:
        block_c, block_p, block_k = (max(16, triton.next_power_of_2(n)) for n in (out_channels, positions, channels))
    grid = (triton.cdiv(positions, block_p), triton.cdiv(out_channels, block_c), batch)
    pointwise_kernel[grid](
        x, conv._parameters["weight"], *norm_parameters(norm), out, channels, out_channels, positions, norm.eps,
        CLIP=clip, BLOCK_C=block_c, BLOCK_P=block_p, BLOCK_K=block_k, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


def head(x: torch.Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> torch.Tensor:
    """A 1 x 1 convolution, batch norm, ReLU6, mean over the positions."""
    batch, channels, height, width = x.shape
    out = torch.empty((batch, conv.out_channels), device=x.device, dtype=x.dtype)
    block_c, block_k = (1024, 512) if x.is_cpu else (64, 32)
    head_kernel[(triton.cdiv(conv.out_channels, block_c), batch)](
        x, conv._parameters["weight"], *norm_parameters(norm), out, channels, conv.out_channels, height * width,
        norm.eps, BLOCK_C=block_c, BLOCK_P=16 if x.is_cpu else 64, BLOCK_K=block_k, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


def classify(x: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
    """The linear layer, x: (rows, channels)."""
    rows, channels = x.shape
    out = torch.empty((rows, layer.out_features), device=x.device, dtype=x.dtype)
    classifier_kernel[(triton.cdiv(layer.out_features, 16), triton.cdiv(rows, 16))](
        x, layer.weight, layer.bias, out, rows, channels, layer.out_features,
        BLOCK_C=16, BLOCK_M=16, BLOCK_K=64, num_warps=4, num_stages=3,
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
            x = spatial(x.contiguous(), layers[0], layers[1])
            for block in layers[3:-4]:
                *expand, depthwise, depthwise_norm, _, project, project_norm = block
                if expand:
                    x = pointwise(x, expand[0], expand[1], clip=True)
                x = spatial(x, depthwise, depthwise_norm)
                x = pointwise(x, project, project_norm, clip=False)
            x = head(x, layers[-4], layers[-3])
            return classify(x, self.classifier[1])
