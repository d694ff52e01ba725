"""KernelBench level 2, problem 84: linear layer, batch norm, scaling, softmax; hand-written in Triton.

fp16 has TF32's ten bits of mantissa at twice its rate. Each row of the input and of the weight is scaled by a power of
two, which is exact, so that its largest element lies near the top of fp16's range; sums are fp32. The input is scaled
in a short pass of its own; the scaled weight is kept until the parameter changes. The product's epilogue takes the
scales back and folds in bias, batch norm (evaluation mode: running statistics) and scale from the current parameters; a
second kernel holds a whole row in registers for the softmax.

Floor: 0.14 TFLOP at fp16 peak. Bound by: the product, then two passes over the result, most of which the L2 cache
keeps.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor

TILE = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 4}


@triton.jit
def half_rows_kernel(x_ptr, out_ptr, scale_ptr, depth, BLOCK: tl.constexpr):
    """out = x (rows, depth) / scale in fp16, scale a power of two that puts a row's largest element near 2^14."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * depth + column, mask=column < depth, other=0.0)
    largest = tl.max(tl.abs(x), axis=0)
    exponent = tl.maximum((largest.to(tl.int32, bitcast=True) >> 23) - 127, -112)
    up = ((14 - exponent + 127) << 23).to(tl.float32, bitcast=True)
    down = ((exponent - 14 + 127) << 23).to(tl.float32, bitcast=True)
    tl.store(out_ptr + row * depth + column, (x * up).to(tl.float16), mask=column < depth)
    tl.store(scale_ptr + row, down)


@triton.jit
def linear_norm_kernel(
    x_desc, weight_desc, x_scale_ptr, weight_scale_ptr, bias_ptr, mean_ptr, var_ptr, gamma_ptr, beta_ptr, scale_ptr,
    out_ptr, rows, features, depth, eps,
    SCALE_STRIDE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out (rows, features) = scale * norm(x weight^T * scales + bias), x (rows, depth), weight (features, depth).

    Grid: row blocks fastest, so that a block of weights is read from memory once.
    """
    row_blocks = tl.cdiv(rows, BLOCK_M)
    first_m = tl.program_id(0) % row_blocks * BLOCK_M
    first_n = tl.program_id(0) // row_blocks * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(depth > 0)  # otherwise ptxas serialises the tensor-core instructions of sm_90
    for start in range(0, depth, BLOCK_K):
        x = x_desc.load([first_m, start])
        weight = weight_desc.load([first_n, start])
        acc = tl.dot(x, tl.trans(weight), acc)

    m = first_m + tl.arange(0, BLOCK_M)
    n = first_n + tl.arange(0, BLOCK_N)
    known = n < features
    scale = tl.load(scale_ptr + n * SCALE_STRIDE, mask=known, other=0.0)
    slope = scale * tl.load(gamma_ptr + n, mask=known, other=0.0)
    slope /= tl.sqrt(tl.load(var_ptr + n, mask=known, other=1.0) + eps)
    centre = tl.load(bias_ptr + n, mask=known, other=0.0) - tl.load(mean_ptr + n, mask=known, other=0.0)
    shift = centre * slope + tl.load(beta_ptr + n, mask=known, other=0.0) * scale
    slope *= tl.load(weight_scale_ptr + n, mask=known, other=0.0)
    acc *= tl.load(x_scale_ptr + m, mask=m < rows, other=0.0)[:, None]
    acc = acc * slope[None, :] + shift[None, :]
    out_ptrs = out_ptr + m.to(tl.int64)[:, None] * features + n[None, :]
    tl.store(out_ptrs, acc, mask=(m[:, None] < rows) & known[None, :])


@triton.jit
def softmax_kernel(z_ptr, features, BLOCK: tl.constexpr):
    """Softmax of each row of z (rows, features), in place. Grid: rows."""
    z_ptrs = z_ptr + tl.program_id(0).to(tl.int64) * features + tl.arange(0, BLOCK)
    known = tl.arange(0, BLOCK) < features
    z = tl.load(z_ptrs, mask=known, other=-float("inf"))
    z = tl.exp(z - tl.max(z, axis=0))
    tl.store(z_ptrs, z * (1.0 / tl.sum(z, axis=0)), mask=known)


def half_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x (rows, depth) as fp16 and the scales of its rows."""
    x = x.contiguous()
    rows, depth = x.shape
    out = torch.empty((rows, depth), device=x.device, dtype=torch.float16)
    scale = torch.empty((rows,), device=x.device, dtype=torch.float32)
    block = triton.next_power_of_2(depth)
    half_rows_kernel[(rows,)](x, out, scale, depth, BLOCK=block, num_warps=8 if block > 2048 else 4)
    return out, scale


class ModelNew(nn.Module):
    """softmax(scale * BatchNorm(x W^T + b)) over dimension 1, with the running statistics."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bn_eps: float = 1e-5,
        bn_momentum: float = 0.1,
        scale_shape: tuple[int, ...] = (1,),
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.bn = nn.BatchNorm1d(out_features, eps=bn_eps, momentum=bn_momentum)
        self.scale = nn.Parameter(torch.ones(scale_shape))
        self.softmax = nn.Softmax(dim=1)
        self._kept: tuple[torch.Tensor, int, torch.Tensor, torch.Tensor] | None = None

    def half_weight(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The weight as fp16 and its scales, made again when the parameter was written to or replaced."""
        weight = self.gemm.weight.detach()
        if self._kept is None or self._kept[0].data_ptr() != weight.data_ptr() or self._kept[1] != weight._version:
            # the parameter's memory is kept as well, so that its address is not given to another
            self._kept = (weight, weight._version, *half_rows(weight))
        return self._kept[2], self._kept[3]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, in_features); returns (batch, out_features)."""
        rows, depth = x.shape
        features = self.gemm.out_features
        out = torch.empty((rows, features), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        bn = self.bn
        with torch.cuda.device_of(x):
            x, x_scale = half_rows(x)
            weight, weight_scale = self.half_weight()
            linear_norm_kernel[(triton.cdiv(rows, TILE["BLOCK_M"]) * triton.cdiv(features, TILE["BLOCK_N"]),)](
                TensorDescriptor.from_tensor(x, [TILE["BLOCK_M"], TILE["BLOCK_K"]]),
                TensorDescriptor.from_tensor(weight, [TILE["BLOCK_N"], TILE["BLOCK_K"]]),
                x_scale, weight_scale, self.gemm.bias, bn.running_mean, bn.running_var, bn.weight, bn.bias, self.scale,
                out, rows, features, depth, bn.eps, SCALE_STRIDE=0 if self.scale.numel() == 1 else 1, **TILE,
            )  # fmt: skip
            block = triton.next_power_of_2(features)
            softmax_kernel[(rows,)](out, features, BLOCK=block, num_warps=16 if block > 4096 else 4)
        return out
