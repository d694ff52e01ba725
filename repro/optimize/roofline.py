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
# The search ends at this fraction of the floor: no kernel was seen nearer to it than 0.92 (docs/optimise.md).
REACHED = 0.92


def diagnose(
    work: Work | None,
    dtype: str,
    time_ms: float | None,
    floor_ms: float | None,
    ceilings: Ceilings | None,
    counters: Counters | None = None,
    occupancy: float | None = None,
) -> Diagnosis:
    """Return what bounds a program of this time. counters: totals of `counters.measure`, in per cent."""
    fraction = floor_ms / time_ms if floor_ms and time_ms else None
    told = {name: counters.get(f"{name}_pct") for name in ("dram", "l1", "l2", "sm", "tensor")} if counters else {}
    if told.get("dram") is not None and told.get("sm") is not None:
        share = {name: value / 100 for name, value in told.items() if value is not None}
        if share["dram"] >= HELD:
            bound = "memory"
        else:
            bound = "compute" if max(share.get("sm", 0.0), share.get("l1", 0.0)) >= HELD else "latency"
        return Diagnosis(bound, "hardware counters", **share, floor_ms=floor_ms, floor_fraction=fraction,
                         occupancy=occupancy)  # fmt: skip
    rates = (
        {"float32": ceilings.fp32_tflop_s, "bfloat16": ceilings.bf16_tflop_s, "float16": ceilings.fp16_tflop_s}
        if ceilings
        else {}
    )
    rate = rates.get(dtype)
    if work is None or not time_ms or not ceilings or not rate:
        why = "no GPU" if not ceilings else "the problem's work at this size is unknown"
        return Diagnosis("unknown", why, floor_ms=floor_ms, floor_fraction=fraction, occupancy=occupancy)
    moved = (work.read_elements + work.written_elements) * ITEMSIZE[dtype]
    dram = moved / time_ms / 1e9 / ceilings.copy_tb_s
    arithmetic = work.flop / time_ms / 1e9 / rate
    bound = "memory" if dram >= HELD else "compute" if arithmetic >= HELD else "latency"
    return Diagnosis(bound, "computed, no counters", dram=dram, sm=arithmetic, floor_ms=floor_ms,
                     floor_fraction=fraction, occupancy=occupancy)  # fmt: skip
