"""Causal attention in Triton, by an online softmax."""

import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    qkv_ptr, out_ptr, length, heads, scale,
    DEPTH: tl.constexpr, WIDE: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """qkv: (batch, length, 3 * heads * DEPTH), out without the 3. Grid: (query blocks, heads, batch)."""
    head = tl.program_id(1)
    first = tl.program_id(0) * BLOCK_Q
    width = heads * DEPTH
    qkv_ptr += tl.program_id(2).to(tl.int64) * length * 3 * width + head * DEPTH
    out_ptr += tl.program_id(2).to(tl.int64) * length * width + head * DEPTH
    m = first + tl.arange(0, BLOCK_Q)
    d = tl.arange(0, WIDE)
    q_mask = (m < length)[:, None] & (d < DEPTH)[None, :]
    q = tl.load(qkv_ptr + m[:, None] * 3 * width + d[None, :], mask=q_mask, other=0.0)
    largest = tl.full((BLOCK_Q,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_Q,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_Q, WIDE), dtype=tl.float32)
    for start in range(0, tl.minimum(first + BLOCK_Q, length), BLOCK_T):
        t = start + tl.arange(0, BLOCK_T)
        mask = (t < length)[:, None] & (d < DEPTH)[None, :]
        row = qkv_ptr + t[:, None] * 3 * width + d[None, :]
        k = tl.load(row + width, mask=mask, other=0.0)
        v = tl.load(row + 2 * width, mask=mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where((m[:, None] >= t[None, :]) & (t < length)[None, :], scores, -float("inf"))
        above = tl.maximum(largest, tl.max(scores, axis=1))
        p = tl.exp(scores - above[:, None])
        fade = tl.exp(largest - above)
        total = total * fade + tl.sum(p, axis=1)
        acc = tl.dot(p, v, acc * fade[:, None], input_precision="ieee")
        largest = above
    tl.store(out_ptr + m[:, None] * width + d[None, :], acc / total[:, None], mask=q_mask)
