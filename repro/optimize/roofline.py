"""What bounds a program: its shares of memory bandwidth and arithmetic, from hardware counters or computed.

Without counters the shares are those of the problem's compulsory bytes and operations over the measured time. They do
not see bytes that a kernel moves twice, so a kernel far from both bounds is `latency`: it waits, or works in vain.
"""

from __future__ import annotations

from repro.problems.catalogue import ITEMSIZE, Work
from repro.records.profile import Counters
from repro.records.result import Ceilings
from repro.records.search import Diagnosis

# A program at this share of a bound is held by it.
HELD = 0.6
# The search ends at this fraction of the floor: no kernel was seen nearer to it than 0.92 (docs/records/searches.md).
REACHED = 0.92


def diagnose(
    work: Work | None,
    dtype: str,
    time_ms: float | None,
    floor_ms: float | None,
    ceilings: Ceilings | None,
    counters: Counters | None = None,
) -> Diagnosis:
    """Return what bounds a program of this time. counters: totals of `counters.measure`, in per cent."""
    fraction = floor_ms / time_ms if floor_ms and time_ms else None
    known = {name: (counters or {}).get(f"{name}_pct") for name in ("dram", "l1", "l2", "sm", "tensor")}
    shares, why = {name: value / 100 for name, value in known.items() if value is not None}, "hardware counters"
    if not {"dram", "sm"} <= shares.keys():  # those of memory and arithmetic
        shares, why = _computed(work, dtype, time_ms, ceilings)
    arithmetic = max(shares.get("sm", 0.0), shares.get("l1", 0.0))
    bound = "unknown" if not shares else "memory" if shares["dram"] >= HELD else (
        "compute" if arithmetic >= HELD else "latency")  # fmt: skip
    return Diagnosis(bound, why, **shares, floor_ms=floor_ms, floor_fraction=fraction)


def _computed(
    work: Work | None, dtype: str, time_ms: float | None, ceilings: Ceilings | None
) -> tuple[dict[str, float], str]:
    """Return the shares by the problem's work over the time, and how they are known; empty if they are not."""
    if not ceilings:
        return {}, "no GPU"
    rates = {"float32": ceilings.fp32_tflop_s, "bfloat16": ceilings.bf16_tflop_s, "float16": ceilings.fp16_tflop_s}
    rate = rates.get(dtype)
    if work is None or not time_ms or not rate:
        return {}, "the problem's work at this size is unknown"
    moved = (work.read_elements + work.written_elements) * ITEMSIZE[dtype]
    shares = {"dram": moved / time_ms / 1e9 / ceilings.copy_tb_s, "sm": work.flop / time_ms / 1e9 / rate}
    return shares, "computed, no counters"
