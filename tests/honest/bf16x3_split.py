#: problem = "L2_99"
#: class = ["fp32", "tf32"]
#: labels = ["triton"]
"""fp32 from bf16 tensor cores: each operand becomes three bf16 pieces, and the six largest products are summed.

Honest: the pieces hold all 24 bits of the mantissa, what is dropped is under 2^-24 of the result. bf16 in the source
does not make this a bf16 kernel; the measured class does not ask how the digits were made.
"""

import torch
import triton
import triton.language as tl
from frames.gelu_softmax import gelu_softmax
from frames.L2_99 import Frame


@triton.jit
def split3(x):
    """x as high + middle + low, each bf16."""
    high = x.to(tl.bfloat16)
    rest = x - high.to(tl.float32)
    middle = rest.to(tl.bfloat16)
    return high, middle, (rest - middle.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, out_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out (M, N) = x (M, K) weight (N, K)^T. Grid: (row blocks, column blocks)."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    small = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w = tl.load(weight_ptr + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        x0, x1, x2 = split3(x)
        w0, w1, w2 = split3(tl.trans(w))
        small = tl.dot(x1, w1, small)
        small = tl.dot(x2, w0, small)
        small = tl.dot(x0, w2, small)
        small = tl.dot(x1, w0, small)
        small = tl.dot(x0, w1, small)
        acc = tl.dot(x0, w0, acc)
    tl.store(out_ptr + m[:, None] * N + n[None, :], acc + small, mask=(m < M)[:, None] & (n < N)[None, :])


class ModelNew(Frame):
    """softmax(GELU(linear(x))) over dimension 1, exact GELU."""

    def forward(self, x):
        x = x.contiguous()
        (M, K), N = x.shape, self.linear.out_features
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        linear_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64))](
            x, self.linear.weight, out, M, N, K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_stages=2
        )
        return gelu_softmax(out, self.linear.bias)
