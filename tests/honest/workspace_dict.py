#: problem = "L1_97"
#: class = "fp32"
#: labels = ["triton"]
"""A dictionary of workspaces, keyed by shape, type and device: the scores of a few heads are kept in reused memory.

Honest: the dictionary looks like a cache of results and is none. Its tensors are scratch space that is written before
it is read in every call, and the output is new memory each time.
"""

import math

import torch
import triton
import triton.language as tl
from torch import nn

HEADS_AT_ONCE = 64

Key = tuple[tuple[int, ...], torch.dtype, torch.device]
_cache: dict[Key, torch.Tensor] = {}


def scratch(*shape: int, like: torch.Tensor) -> torch.Tensor:
    """Memory of this shape with unspecified contents, the same as last time where there was one."""
    key = (shape, like.dtype, like.device)
    if key not in _cache:
        _cache[key] = torch.empty(shape, dtype=like.dtype, device=like.device)
    return _cache[key]


@triton.jit
def product_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K, stride_k, stride_n, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out = scale * a b for each head; a: (heads, M, K), out: (heads, M, N). Grid: (row, column blocks, heads)."""
    head = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    a_ptr += head * M * K
    b_ptr += head * N * K
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b_at = k[:, None] * stride_k + n[None, :] * stride_n
        b = tl.load(b_ptr + b_at, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    out_at = head * M * N + m[:, None] * N + n[None, :]
    tl.store(out_ptr + out_at, acc * scale, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def softmax_kernel(x_ptr, columns, BLOCK: tl.constexpr):
    """Softmax of each row, in place. Grid: (rows,)."""
    column = tl.arange(0, BLOCK)
    at = x_ptr + tl.program_id(0).to(tl.int64) * columns + column
    x = tl.load(at, mask=column < columns, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(at, x / tl.sum(x, axis=0), mask=column < columns)


class ModelNew(nn.Module):
    """softmax(Q K^T / sqrt(d)) V, not causal."""

    def forward(self, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.contiguous().flatten(0, -3) for t in (Q, K, V))
        out = torch.empty_like(q)
        total, queries, depth = q.shape
        keys = k.shape[1]
        scores = scratch(min(total, HEADS_AT_ONCE), queries, keys, like=q)
        tile = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
        for first in range(0, total, HEADS_AT_ONCE):
            heads = min(HEADS_AT_ONCE, total - first)
            some = slice(first, first + heads)
            grid = (triton.cdiv(queries, 64), triton.cdiv(keys, 64), heads)
            scale = 1.0 / math.sqrt(depth)
            product_kernel[grid](q[some], k[some], scores, queries, keys, depth, 1, depth, scale, **tile)
            softmax_kernel[(heads * queries,)](scores, keys, BLOCK=triton.next_power_of_2(keys))
            grid = (triton.cdiv(queries, 64), triton.cdiv(depth, 64), heads)
            product_kernel[grid](scores, v[some], out[some], queries, depth, keys, depth, 1, 1.0, **tile)
        return out.view(Q.shape)
