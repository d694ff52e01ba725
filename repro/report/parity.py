"""The section on the published protocol: its times beside ours, where `--parity` took them."""

from __future__ import annotations

from typing import Any

from repro.report import elements
from repro.report.elements import Element
from repro.report.sources import Source

TEXT = (
    "Published protocol: mean of `do_bench(warmup=500, rep=100)` (milliseconds), all variants in one process on shared "
    "inputs, nothing verified, times as that process reports them. Ours: median device time of verified calls, cold "
    "L2, inputs that no call saw before. The published script's grad mode is not known; here it is torch's default, "
    "enabled. A speedup is over torch.compile, or over eager where that is absent."
)
UNMEASURED = "The published protocol ran too. Its times here are not a measurement; `benchmark --json` holds them."
VARIANTS = {"eager_ms": "eager", "compile_ms": "compile", "input_kernel_ms": "input", "optimized_ms": "optimised"}


def section(sources: list[Source]) -> Element:
    """One line an artifact, and why a variant has no time."""
    rows: list[list[Any]] = []
    missing: list[list[Any]] = []
    unmeasured = False
    for source in sources:
        for artifact in source.report.get("artifacts", []):
            found = artifact["parity"]
            if found is None or artifact["no_measurement"] or not found["measurement"]:
                unmeasured |= found is not None
                continue
            pairs = [time for pair in found["ms"].values() for time in pair]
            rows.append([artifact["problem"], source.letter, *pairs, *found["speedup"]])
            missing += [[artifact["problem"], source.letter, name, why] for name, why in found["reasons"].items()]
    columns = [("problem", "text"), ("bundle", "text")]
    columns += [(f"{name} ms, {of}", "ms") for name in VARIANTS.values() for of in ("published protocol", "ours")]
    columns += [(f"speedup, {of}", "ratio") for of in ("published protocol", "ours")]
    tables = [
        elements.table("parity", "Times by both protocols", columns, rows),
        elements.table("parity-missing", "Variants without a time",
                       [("problem", "text"), ("bundle", "text"), ("variant", "text"), ("why", "text")], missing),
    ]  # fmt: skip
    text = [TEXT] if rows else [UNMEASURED] if unmeasured else []
    return elements.section("parity", "By the published protocol", text=text, tables=tables)
