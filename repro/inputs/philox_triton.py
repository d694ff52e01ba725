"""The GPU side of `repro.inputs.philox`: the same words, at memory speed."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def _philox(c0, c1, index, stream, k0, k1):
    c0, c1 = c0.to(tl.uint32), c1.to(tl.uint32)
    c2 = (c0 * 0).to(tl.uint32) + index.to(tl.uint32)
    c3 = (c0 * 0).to(tl.uint32) + stream
    k0, k1 = k0.to(tl.uint32), k1.to(tl.uint32)
    for _ in tl.static_range(10):
        a_high, b_high = tl.umulhi(c0, 0xD2511F53), tl.umulhi(c2, 0xCD9E8D57)
        a_low, b_low = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = b_high ^ c1 ^ k0, b_low, a_high ^ c3 ^ k1, a_low
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit(do_not_specialize=["start", "count", "k0", "k1", "index", "low", "span"])
def words_kernel(out, start, count, k0, k1, index, low, span, INTEGER: tl.constexpr, LANE: tl.constexpr):
    """Fill a tile of 4 * LANE elements in each program: uniform floats, or integers in [low, low + span)."""
    start, count = start.to(tl.int64), count.to(tl.int64)
    low, span = low.to(tl.int64), span.to(tl.int64)
    tile = start // (4 * LANE) + tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, LANE).to(tl.int64)
    counter = tile * LANE + offsets
    stream = 2 if INTEGER else 0
    words = _philox(counter, counter >> 32, index, stream, k0, k1)
    for lane in tl.static_range(4):
        element = lane * LANE + tile * 4 * LANE + offsets - start
        if INTEGER:
            value = low + ((words[lane].to(tl.uint64) * span.to(tl.uint64)) >> 32).to(tl.int64)
        else:
            value = (words[lane] >> 8).to(tl.float32) * 5.9604644775390625e-08
        tl.store(out + element, value.to(out.dtype.element_ty), mask=(element >= 0) & (element < count))


@triton.jit
def _halves(word):
    return ((word & 0xFFFF) + (word >> 16)).to(tl.int32)


@triton.jit(do_not_specialize=["start", "count", "k0", "k1", "index"])
def normal_kernel(out, start, count, k0, k1, index, factor, BLOCK: tl.constexpr):
    """Make each element from one Philox block: the centred sum of its eight 16-bit halves times `factor`."""
    start, count = start.to(tl.int64), count.to(tl.int64)
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    counter = start + element
    w0, w1, w2, w3 = _philox(counter, counter >> 32, index, 1, k0, k1)
    total = _halves(w0) + _halves(w1) + _halves(w2) + _halves(w3)
    value = (2 * total - 8 * 65535).to(tl.float32) * factor
    tl.store(out + element, value.to(out.dtype.element_ty), mask=element < count)
