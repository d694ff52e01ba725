"""KernelBench level 3, problem 43: causal self-attention as minGPT writes it, hand-written in Triton.

Two products with their biases and, between them, flash attention, which never writes the scores. TF32 tensor cores; the
hardware truncates what it is given, which biases every product, so each kernel rounds what the next one multiplies, the
weights are rounded in short passes, and x in registers. The first product leaves V transposed, as TF32 tensor
cores want their right operand. The mask is the causal one that the constructor registers. Floor: the multiplications
at TF32 peak.
"""

import math

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 32  # three stages: 80 to 96 KB of shared memory


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
def linear_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    turned_ptr,
    rows,
    features,
    depth,
    straight,
    ROUND_X: tl.constexpr,
    ROUND_OUT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WHOLE_K: tl.constexpr,
):
    """x weight^T + bias, x: (rows, depth), weight: (features, depth), rounded already; so is x unless ROUND_X.

    The first `straight` features go to out (rows, straight), the others transposed to turned (features - straight,
    rows). Grid: feature blocks fastest; the weight stays in the L2 cache, x is streamed.
    """
    n_blocks = tl.cdiv(features, BLOCK_N)
    m = tl.program_id(0) // n_blocks * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % n_blocks * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + tl.where(m < rows, m, 0).to(tl.int64)[:, None] * depth + k[None, :]
    weight_ptrs = weight_ptr + tl.where(n < features, n, 0).to(tl.int64)[:, None] * depth + k[None, :]

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(depth > 0)  # otherwise ptxas serialises the tensor-core instructions of sm_90
    for start in range(0, depth, BLOCK_K):
        if WHOLE_K:
            x = tl.load(x_ptrs)
            weight = tl.load(weight_ptrs)
        else:
            x = tl.load(x_ptrs, mask=k[None, :] < depth - start, other=0.0)
            weight = tl.load(weight_ptrs, mask=k[None, :] < depth - start, other=0.0)
        if ROUND_X:
            x = round_tf32(x)
        acc = tl.dot(x, tl.trans(weight), acc, input_precision="tf32")
        x_ptrs += BLOCK_K
        weight_ptrs += BLOCK_K

    y = acc + tl.load(bias_ptr + n, mask=n < features, other=0.0)[None, :]
    if ROUND_OUT:
        y = round_tf32(y)
    inside = m[:, None] < rows
    first = tl.program_id(0) % n_blocks * BLOCK_N
    if first < straight:
        out_ptrs = out_ptr + m.to(tl.int64)[:, None] * straight + n[None, :]
        tl.store(out_ptrs, y, mask=inside & (n < straight)[None, :])
    if first + BLOCK_N > straight:
        turned_ptrs = turned_ptr + (n - straight).to(tl.int64)[None, :] * rows + m[:, None]
        tl.store(turned_ptrs, y, mask=inside & ((n >= straight) & (n < features))[None, :])


@triton.jit
def attention_kernel(
    qk_ptr,
    v_ptr,
    out_ptr,
    length,
    heads,
    rows,
    scale,
    D: tl.constexpr,
    D1: tl.constexpr,
    D2: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Causal attention of a block of queries of one head; everything is rounded to TF32, the output too.

    qk: (batch * length, 2 * heads * D), queries before keys; v: (heads * D, batch * length), that is transposed;
    out: (batch * length, heads * D). The head dimension is taken in two pieces, D1 and D2 (0: none), powers of two.
    Grid: batch * heads * query blocks, query blocks fastest and longest rows first.
    """
    blocks = tl.cdiv(length, BLOCK_Q)
    first = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_Q
    head = tl.program_id(0) // blocks % heads
    row0 = (tl.program_id(0) // blocks // heads).to(tl.int64) * length
    width = heads * D
    m = first + tl.arange(0, BLOCK_Q)
    t = tl.arange(0, BLOCK_T)
    d1 = tl.arange(0, D1)
    q_ptrs = qk_ptr + (row0 + m)[:, None] * (2 * width) + head * D
    k_ptrs = qk_ptr + (row0 + t)[:, None] * (2 * width) + width + head * D
    v_ptrs = v_ptr + row0 + t[None, :] + (head * D).to(tl.int64) * rows
    q1 = tl.load(q_ptrs + d1[None, :], mask=(m < length)[:, None] & (d1 < D)[None, :], other=0.0)
    acc1 = tl.zeros((BLOCK_Q, D1), dtype=tl.float32)
    if D2 > 0:
        d2 = D1 + tl.arange(0, D2)
        q2 = tl.load(q_ptrs + d2[None, :], mask=(m < length)[:, None] & (d2 < D)[None, :], other=0.0)
        acc2 = tl.zeros((BLOCK_Q, D2), dtype=tl.float32)

    largest = tl.full((BLOCK_Q,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_Q,), dtype=tl.float32)
    end = tl.minimum(first + BLOCK_Q, length)
    tl.assume(end > 0)
    for start in range(0, end, BLOCK_T):
        known = start + t < length
        k1 = tl.load(k_ptrs + d1[None, :], mask=known[:, None] & (d1 < D)[None, :], other=0.0)
        scores = tl.dot(q1, tl.trans(k1), input_precision="tf32")
        if D2 > 0:
            k2 = tl.load(k_ptrs + d2[None, :], mask=known[:, None] & (d2 < D)[None, :], other=0.0)
            scores = tl.dot(q2, tl.trans(k2), scores, input_precision="tf32")
        seen = (m[:, None] >= start + t[None, :]) & known[None, :]
        scores = tl.where(seen, scores * scale, -float("inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_largest[:, None])
        fade = tl.exp2(largest - new_largest)
        total = total * fade + tl.sum(p, axis=1)
        largest = new_largest
        p = round_tf32(p)
        v1 = tl.load(v_ptrs + d1[:, None].to(tl.int64) * rows, mask=(d1 < D)[:, None] & known[None, :], other=0.0)
        acc1 = tl.dot(p, tl.trans(v1), acc1 * fade[:, None], input_precision="tf32")
        if D2 > 0:
            v2 = tl.load(v_ptrs + d2[:, None].to(tl.int64) * rows, mask=(d2 < D)[:, None] & known[None, :], other=0.0)
            acc2 = tl.dot(p, tl.trans(v2), acc2 * fade[:, None], input_precision="tf32")
        k_ptrs += BLOCK_T * 2 * width
        v_ptrs += BLOCK_T

    out_ptrs = out_ptr + (row0 + m)[:, None] * width + head * D
    share = 1.0 / total
    mask = (m < length)[:, None] & (d1 < D)[None, :]
    tl.store(out_ptrs + d1[None, :], round_tf32(acc1 * share[:, None]), mask=mask)
    if D2 > 0:
        mask = (m < length)[:, None] & (d2 < D)[None, :]
        tl.store(out_ptrs + d2[None, :], round_tf32(acc2 * share[:, None]), mask=mask)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """A contiguous copy of x rounded to TF32."""
    x = x.contiguous()
    out = torch.empty_like(x)
    round_kernel[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), BLOCK=2048)
    return out


def linear(
    x: torch.Tensor, layer: nn.Linear, turned: int = 0, round_x: bool = False, round_out: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """x (rows, depth) through the layer; its last `turned` features come transposed, as the second tensor."""
    rows, depth = x.shape
    features = layer.out_features
    out = torch.empty((rows, features - turned), device=x.device, dtype=x.dtype)
    out_turned = torch.empty((turned, rows), device=x.device, dtype=x.dtype)
    linear_kernel[(triton.cdiv(rows, BLOCK_M) * triton.cdiv(features, BLOCK_N),)](
        x,
        rounded(layer.weight),
        layer.bias,
        out,
        out_turned,
        rows,
        features,
        depth,
        features - turned,
        ROUND_X=round_x,
        ROUND_OUT=round_out,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        WHOLE_K=depth % BLOCK_K == 0,
        num_warps=8,
        num_stages=3,
        maxnreg=128,  # two programs a multiprocessor
    )
    return out, out_turned


def attention(qk: torch.Tensor, v: torch.Tensor, length: int, heads: int) -> torch.Tensor:
    """Causal attention; shapes as in attention_kernel."""
    rows, width = qk.shape[0], v.shape[0]
    depth = width // heads
    piece = max(16, 1 << (depth.bit_length() - 1))
    rest = 0 if depth <= piece else max(16, triton.next_power_of_2(depth - piece))
    block_q, block_t, stages = 64, 32, 2  # 72 KB of shared memory at a head dimension of 96
    if piece + rest > 128:
        block_q, block_t, stages = (32, 16, 2) if piece + rest <= 256 else (16, 16, 1)
    out = torch.empty((rows, width), device=qk.device, dtype=qk.dtype)
    attention_kernel[(rows // length * heads * triton.cdiv(length, block_q),)](
        qk,
        v,
        out,
        length,
        heads,
        rows,
        math.log2(math.e) / math.sqrt(depth),
        D=depth,
        D1=piece,
        D2=rest,
        BLOCK_Q=block_q,
        BLOCK_T=block_t,
        num_warps=4,
        num_stages=stages,
    )
    return out


class ModelNew(nn.Module):
    """One projection to q, k and v, causal softmax attention, output projection; dropouts are idle in evaluation."""

    def __init__(self, n_embd: int, n_head: int, attn_pdrop: float, resid_pdrop: float, max_seqlen: int) -> None:
        super().__init__()
        assert n_embd % n_head == 0
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.attn_dropout = nn.Dropout(attn_pdrop)
        self.resid_dropout = nn.Dropout(resid_pdrop)
        mask = torch.tril(torch.ones(max_seqlen, max_seqlen))
        self.register_buffer("bias", mask.view(1, 1, max_seqlen, max_seqlen))
        self.n_head = n_head
        self.n_embd = n_embd

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, sequence, n_embd); returns the same shape."""
        batch, length, width = x.shape
        if x.numel() == 0:
            return torch.empty_like(x)
        with torch.cuda.device_of(x):
            flat = x.contiguous().view(batch * length, width)
            qk, v = linear(flat, self.c_attn, turned=width, round_x=True, round_out=True)
            y = attention(qk, v, length, self.n_head)
            out, _ = linear(y, self.c_proj)
        return out.view(batch, length, width)
