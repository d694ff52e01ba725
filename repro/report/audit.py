"""`repro problems --audit`: what every problem of a suite can tell, as one table, from a bundle of fixtures."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable

from repro.bundle.write import Bundle
from repro.records.base import Number, Record
from repro.records.fixture import PUBLISHED, FixtureRecord
from repro.records.row import Row
from repro.report import elements, markdown
from repro.report.elements import Table

# Tolerances of the published comparison.
TOLERANCES = ("1e-2", "1e-4")

_COPIED = ("problem", "best_cheat", "margin", "margins", "refused_classes")


class Audited(Record):
    """What a problem can tell. signal: distance of outputs for two draws; weakest: input cases with the widest limit or
    none; kind: of a degenerate problem."""

    problem: str
    verdict: str
    classes: list[str] = []
    refused_classes: dict[str, str] = {}
    signal: Number | None = None
    best_cheat: str | None = None
    margin: Number | None = None
    margins: dict[str, Number] = {}
    zeros_allclose: dict[str, bool] = {}
    outputs: list[str] = []
    weakest: str = ""
    kind: str = ""
    why: str


def rows(bundle: Bundle) -> list[Audited]:
    """Return one entry for each planned problem, in the order of the plan."""
    records = bundle.records()
    return [_row(name, records.get(name)) for name in bundle.manifest["plan"]]


def _row(name: str, row: Row | None) -> Audited:
    fixture = row.result if row else None
    if row is None or not isinstance(fixture, FixtureRecord):
        problem, why = (row.problem, row.error) if row else (name, "not run")
        return Audited(problem=problem, verdict="not measured", why=why)
    classes = [klass for klass in fixture.margins if klass not in fixture.refused_classes]
    trial = next((fixture.trials[kind] for kind in PUBLISHED if kind in fixture.trials), None)
    return Audited(
        **{name: getattr(fixture, name) for name in _COPIED},
        verdict="unjudgeable" if fixture.refused else "judged",
        classes=classes,
        signal=trial.sensitivity if trial else None,
        zeros_allclose=trial.cheats.get("zeros", {}).get("legacy", {}) if trial else {},
        outputs=[leaf["dtype"] for leaf in fixture.outputs()],
        weakest=_weakest(fixture, classes[-1:]),
        kind=fixture.degenerate.get("kind", ""),
        why="; ".join(_reasons(fixture)),
    )


def _weakest(fixture: FixtureRecord, klass: list[str]) -> str:
    """The kind of inputs on which the loosest class has its widest relative limit, and those on which it has none."""
    limits = {kind: trial.limits.get(klass[0], {}) for kind, trial in fixture.trials.items() if klass and trial.limits}
    widest = {
        kind: max([own[name] for name in own if name.startswith("rel_l2")], default=0.0 if own else math.inf)
        for kind, own in limits.items()
    }
    most = max([value for value in widest.values() if value < math.inf], default=0.0)
    weak = [kind for kind, value in widest.items() if value >= most]
    return ", ".join(f"{kind} {widest[kind]:.2g}" if limits[kind] else f"{kind} none" for kind in weak)


def _reasons(fixture: FixtureRecord) -> list[str]:
    """Why it is degenerate, or else why classes are refused."""
    parts = [fixture.degenerate.get(part, "") for part in ("kind", "proof")]
    return [*filter(None, parts)] or [f"{klass}: {why}" for klass, why in fixture.refused_classes.items()]


def table(entries: Iterable[Audited]) -> Table:
    """Return a line for each entry."""
    columns = ["problem", ("verdict", "text", 0), ("classes", "text", 1), ("signal", "quantity", 4),
               ("best cheat", "text", 3), ("margin", "quantity", 2), ("zeros", "text", 5), "outputs", "weakest kind",
               ("why", "text", 0)]  # fmt: skip
    lines = [
        [e.problem, e.verdict, " ".join(e.classes), _rounded(e.signal), e.best_cheat, _rounded(e.margin),
         ", ".join(at for at in TOLERANCES if e.zeros_allclose.get(f"allclose_{at}")),
         ", ".join(e.outputs), e.weakest,
         textwrap.shorten(e.why, 160, placeholder=" …") if e.verdict == "not measured" else e.why]
        for e in entries
    ]  # fmt: skip
    return elements.table("audit", "", columns, lines)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.2g}")


def counted(entries: list[Audited]) -> str:
    """Return one sentence on all entries."""
    judged = [entry for entry in entries if entry.verdict == "judged"]
    whole = sum(not entry.refused_classes for entry in judged)
    unjudgeable = sum(entry.verdict == "unjudgeable" for entry in entries)
    zeros = sum(bool(entry.zeros_allclose.get("allclose_1e-2")) for entry in entries)
    return (
        f"{len(entries)} problems: {whole} judged in every class, {len(judged) - whole} in some, {unjudgeable} "
        f"unjudgeable, {len(entries) - len(judged) - unjudgeable} not measured; zeros pass allclose at 1e-2 on {zeros}"
    )


def page(bundle: Bundle, entries: list[Audited]) -> str:
    """Return an audit as markdown: how it was measured, and a table of all problems."""
    given = bundle.manifest.get("parameters", {})
    head = [
        f"# What the problems of {given.get('suite', 'a suite')} can tell",
        f"From the bundle `{bundle.path.name}`, at {given.get('size')} size on {given.get('device')}. "
        f"{counted(entries)}.",
    ]
    return "\n\n".join([*head, *_LEGEND, markdown.table(table(entries))]) + "\n"


_LEGEND = (
    "**signal**: relative L2 distance of the outputs for two draws of the published inputs.",
    "**best cheat**: the built-in answer without the work that comes nearest to passing; **margin**: its error over "
    "the worst honest kernel's, each as a multiple of its limit, in the loosest class that is judged.",
    "**zeros**: with which tolerances, absolute and relative, `allclose` passes a kernel that returns zeros, on the "
    "published inputs.",
    "**outputs**: their dtypes, each judged by itself.",
    "**weakest kind**: the input case on which the loosest class that is judged has its widest relative L2 limit, and "
    "those on which it has none.",
)
