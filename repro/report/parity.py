"""Other protocols beside the judge's.

The published one's times have a section of the report (`benchmark --parity`). KernelBench's verdicts and fast_p stand
beside the judge's (`evaluate --parity kernelbench`).
"""

from __future__ import annotations

from collections.abc import Sequence

from repro.records.verdict import Speedup, Verdict
from repro.report import elements
from repro.report.elements import Cell, Head, Section
from repro.report.model import Solution
from repro.report.sources import Source

TEXT = (
    "Published protocol: mean of `do_bench(warmup=500, rep=100)` (milliseconds), all variants in one process on shared "
    "inputs, nothing verified, times as that process reports them. Ours: median device time of verified calls, cold "
    "L2, inputs that no call saw before. The published script's grad mode is not known; here it is torch's default, "
    "enabled. A speedup is over torch.compile, or over eager where that is absent."
)
UNMEASURED = "The published protocol ran too. Its times here are not a measurement; `benchmark --json` holds them."
VARIANTS = {"eager_ms": "eager", "compile_ms": "compile", "input_kernel_ms": "input", "optimized_ms": "optimised"}


def section(sources: list[Source]) -> Section:
    """One line an artifact, and why a variant has no time."""
    rows: list[list[Cell]] = []
    missing: list[list[Cell]] = []
    unmeasured = False
    for source in sources:
        for artifact in source.report.artifacts:
            found = artifact.parity
            if found is None or artifact.no_measurement or not found.measurement:
                unmeasured |= found is not None
                continue
            pairs = [time for pair in found.ms.values() for time in pair]
            rows.append([artifact.problem, source.letter, *pairs, *found.speedup])
            missing += [[artifact.problem, source.letter, name, why] for name, why in found.reasons.items()]
    columns: list[Head] = ["problem", "bundle"]
    columns += [(f"{name} ms, {of}", "ms") for name in VARIANTS.values() for of in ("published protocol", "ours")]
    columns += [(f"speedup, {of}", "ratio") for of in ("published protocol", "ours")]
    tables = [
        elements.table("parity", "Times by both protocols", columns, rows),
        elements.table("parity-missing", "Variants without a time", ["problem", "bundle", "variant", "why"], missing),
    ]
    text = [TEXT] if rows else [UNMEASURED] if unmeasured else []
    return elements.section("parity", "By the published protocol", text=text, tables=tables)


# Thresholds of fast_p: the share of all solutions that are correct and more than p times as fast as eager.
FAST = (0, 1, 2)


def kernelbench(entry: Verdict | Solution) -> str | None:
    """What KernelBench's protocol says of one solution, as `correct 1.20x`; None where it was not asked for."""
    found = entry.kernelbench
    if not found:
        return None
    if found.correct is None:
        return "not run"
    speedup = f" {found.speedup:.2f}x" if found.measurement and found.speedup else ""
    return ("correct" if found.correct else "wrong") + speedup


def fast(entries: Sequence[Verdict | Solution]) -> dict[str, dict[str, float]]:
    """fast_p of the solutions that both protocols were asked for: {"kernelbench", "judge"} -> p -> share; {} for none.

    Above 0 only where times are measurements. A speedup that the judge's clock cannot confirm counts as 1.
    """
    both = [(entry.kernelbench, entry) for entry in entries if entry.kernelbench]
    if not both:
        return {}
    judged = {
        "kernelbench": [(bool(k.correct), k.speedup) for k, _ in both],
        "judge": [(e.verdict == "correct", _confirmed(e.speedup.get("eager"))) for _, e in both],
    }
    ps = [p for p in FAST if p == 0 or all(k.measurement for k, _ in both)]
    return {by: {str(p): _share(found, p) for p in ps} for by, found in judged.items()}


def _confirmed(speedup: Speedup | None) -> float | None:
    return None if speedup is None else 1.0 if speedup.word == "UNCONFIRMED" else speedup.ratio


def _share(judged: list[tuple[bool, float | None]], p: float) -> float:
    fast = sum(correct and (p == 0 or (speedup or 0) > p) for correct, speedup in judged)
    return fast / len(judged)


def sentence(entries: Sequence[Verdict | Solution]) -> str:
    """One line on both protocols: fast_p, and where their verdicts differ."""
    found = fast(entries)
    both = [(entry.kernelbench, entry) for entry in entries if entry.kernelbench]
    shares = "; ".join(
        f"{name}: " + ", ".join(f"fast_{p} {share:.2f}" for p, share in found[by].items())
        for by, name in (("kernelbench", "by KernelBench's protocol"), ("judge", "by the judge"))
    )
    differ = sum(bool(k.correct) != (entry.verdict == "correct") for k, entry in both)
    return f"{shares}; verdicts differ on {differ} of {len(both)}"
