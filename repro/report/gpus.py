"""The section on the GPUs of a run: the A/A control of each unit."""

from __future__ import annotations

from scipy import special  # scipy.stats takes most of a second to import

from repro.records.verdict import Ratio
from repro.report import elements
from repro.report.elements import Cell, Section
from repro.report.sources import Source

# A unit counts as disturbed if so few of its 95 % intervals hold 1 by chance less often than this.
UNLIKELY = 0.01


def section(sources: list[Source]) -> Section:
    """One line a GPU that timed something, if there are several: its A/A controls, eager against eager."""
    rows: list[list[Cell]] = []
    for source in sources:
        for (node, gpu), found in _controls(source).items():
            cover = sum(aa.ci95[0] <= 1 <= aa.ci95[1] for aa in found)
            widest = max((aa.ci95[1] - aa.ci95[0]) / 2 for aa in found)
            furthest = max(abs(aa.ratio - 1) for aa in found)
            rows.append([gpu, source.letter, source.machine, node, str(len(found)), str(cover), widest, furthest,
                         verdict(cover, len(found))])  # fmt: skip
    if len(rows) < 2:
        rows = []
    columns = [("GPU", "code"), "bundle", "kind", ("node", "code"), "A/A controls", "hold 1", ("widest, ±", "percent"),
               ("furthest from 1", "percent"), ("verdict", "verdict")]  # fmt: skip
    text = (
        "Jobs of several GPUs ran at once, each with processors of its own. The A/A control of a row times eager "
        "against eager in another process, so that its interval holds 1 unless other jobs disturbed it."
    )
    table = elements.table("gpus", "A/A control of every GPU", columns, rows)
    return elements.section("gpus", "GPUs", text=[text] if rows else [], tables=[table])


def _controls(source: Source) -> dict[tuple[str, str], list[Ratio]]:
    """Return (node, GPU), both as hashes -> its A/A controls."""
    found: dict[tuple[str, str], list[Ratio]] = {}
    for row in source.done if source.timed else []:
        aa = row.judged and row.judged.timing.aa
        if aa and row.gpu_uuid_hash:
            found.setdefault((row.node or "", row.gpu_uuid_hash), []).append(aa)
    return dict(sorted(found.items()))


def verdict(cover: int, count: int) -> str:
    """Return whether so few intervals of 95 % that hold 1 are no chance."""
    return "disturbed" if special.bdtr(cover, count, 0.95) < UNLIKELY else "undisturbed"
