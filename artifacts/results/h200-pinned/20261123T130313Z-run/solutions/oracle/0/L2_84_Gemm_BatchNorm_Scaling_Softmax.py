"""KernelBench level 2, problem 84: linear layer, batch norm, scaling, softmax; hand-written in Triton.

TF32 tensor cores with operands rounded to nearest (the hardware truncates, which biases every product and moves large
logits): the input in a pass of its own, the weight, eight times as large, in registers, for which it must be the left
operand, so the product is made transposed. Bias, batch norm (evaluation mode: running statistics) and scale are
folded in the epilogue from the current parameters; a second kernel takes the softmax of a row in place. Floor: the
multiplications at TF32 peak.
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 32  # three stages: 80 KB of shared memory


@triton.jit
def round_tf32(x):
    """Nearest TF32 value, ties away from zero; NaN stays NaN."""
    bits = x.to(tl.uint32, bitcast=True)
    nearest = ((bits + 0x1000) & 0xFFFFE000).to(tl.float32, bitcast=True)
    return tl.where(x == x, nearest, x)


@triton.jit
def round_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    """out = x rounded to TF32, elementwise."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, round_tf32(tl.load(x_ptr + index, mask=index < count)), mask=index < count)


@triton.jit
def linear_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    mean_ptr,
    var_ptr,
    gamma_ptr,
    beta_ptr,
    scale_ptr,
    out_ptr,
    rows,
    features,
    depth,
    eps,
    SCALE_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WHOLE_K: tl.constexpr,
):
    """out (rows, features) = scale * norm(x weight^T + bias); x (rows, depth) is rounded already.

    Grid: row blocks fastest, so that a block of weights is read from memory once.
    """
    row_blocks = tl.cdiv(rows, BLOCK_M)
    m = tl.program_id(0) % row_blocks * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) // row_blocks * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + tl.where(m < rows, m, 0).to(tl.int64)[:, None] * depth + k[None, :]
    weight_ptrs = weight_ptr + tl.where(n < features, n, 0).to(tl.int64)[:, None] * depth + k[None, :]

    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    tl.assume(depth > 0)  # otherwise ptxas serialises the tensor-core instructions of sm_90
    for start in range(0, depth, BLOCK_K):
        if WHOLE_K:
            x = tl.load(x_ptrs)
            weight = tl.load(weight_ptrs)
        else:
            x = tl.load(x_ptrs, mask=k[None, :] < depth - start, other=0.0)
            weight = tl.load(weight_ptrs, mask=k[None, :] < depth - start, other=0.0)
        acc = tl.dot(round_tf32(weight), tl.trans(x), acc, input_precision="tf32")
        x_ptrs += BLOCK_K
        weight_ptrs += BLOCK_K

    known = n < features
    slope = tl.load(gamma_ptr + n, mask=known, other=0.0) / tl.sqrt(tl.load(var_ptr + n, mask=known, other=1.0) + eps)
    centre = tl.load(bias_ptr + n, mask=known, other=0.0) - tl.load(mean_ptr + n, mask=known, other=0.0)
    beta = tl.load(beta_ptr + n, mask=known, other=0.0)
    scale = tl.load(scale_ptr + n * SCALE_STRIDE, mask=known, other=0.0)
    z = ((acc + centre[:, None]) * slope[:, None] + beta[:, None]) * scale[:, None]
    out_ptrs = out_ptr + m.to(tl.int64)[None, :] * features + n[:, None]
    tl.store(out_ptrs, z, mask=(m[None, :] < rows) & (n[:, None] < features))


@triton.jit
def softmax_kernel(z_ptr, features, BLOCK: tl.constexpr):
    """Softmax of each row of z (rows, features), in place. Grid: rows."""
    row_ptr = z_ptr + tl.program_id(0).to(tl.int64) * features
    column = tl.arange(0, BLOCK)
    largest = -float("inf")
    total = 0.0
    for start in range(0, features, BLOCK):
        x = tl.load(row_ptr + start + column, mask=start + column < features, other=-float("inf"))
        new_largest = tl.maximum(largest, tl.max(x, axis=0))
        total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(x - new_largest), axis=0)
        largest = new_largest
    for start in range(0, features, BLOCK):
        x = tl.load(row_ptr + start + column, mask=start + column < features, other=-float("inf"))
        tl.store(row_ptr + start + column, tl.exp(x - largest) / total, mask=start + column < features)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """A copy of x rounded to TF32."""
    out = torch.empty_like(x)
    round_kernel[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096, num_warps=8)
    return out


def softmax_(z: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of a contiguous (rows, features) tensor, in place."""
    block = min(8192, triton.next_power_of_2(z.shape[1]))
    softmax_kernel[(z.shape[0],)](z, z.shape[1], BLOCK=block, num_warps=8)
    return z


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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, in_features); returns (batch, out_features)."""
        rows, depth = x.shape
        features = self.gemm.out_features
        out = torch.empty((rows, features), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        with torch.cuda.device_of(x):
            linear_norm_kernel[(triton.cdiv(rows, BLOCK_M) * triton.cdiv(features, BLOCK_N),)](
                rounded(x.contiguous()),
                self.gemm.weight.contiguous(),
                self.gemm.bias,
                self.bn.running_mean,
                self.bn.running_var,
                self.bn.weight,
                self.bn.bias,
                self.scale,
                out,
                rows,
                features,
                depth,
                self.bn.eps,
                SCALE_STRIDE=0 if self.scale.numel() == 1 else 1,
                BLOCK_M=BLOCK_M,
                BLOCK_N=BLOCK_N,
                BLOCK_K=BLOCK_K,
                WHOLE_K=depth % BLOCK_K == 0,
                num_warps=8,
                num_stages=3,
            )
            return softmax_(out)
