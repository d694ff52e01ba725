"""`repro problems --audit`: what every problem of a suite can tell, as one table, from a bundle of fixtures."""

from __future__ import annotations

import textwrap

from repro.bundle.write import Bundle
from repro.records.base import Number, Record
from repro.records.fixture import PUBLISHED, FixtureRecord
from repro.records.row import Row
from repro.system.screen import Column

COLUMNS = (
    Column("problem", whole=True), Column("verdict", whole=True), Column("classes", 1), Column("signal", 4),
    Column("best cheat", 3), Column("margin", 2), Column("zeros pass 1e-2", 5), Column("zeros pass 1e-4", 6),
    Column("influence of inputs", 7), Column("why", least=40),
)  # fmt: skip

# Tolerances of the published comparison, and the influence below which an input hardly matters.
TOLERANCES, BLIND = ("1e-2", "1e-4"), 1e-4


class Audited(Record):
    """What a problem can tell. signal: distance of outputs for two draws; kind: of a degenerate problem."""

    problem: str
    verdict: str
    classes: list[str] = []
    refused_classes: dict[str, str] = {}
    signal: Number | None = None
    best_cheat: str | None = None
    margin: Number | None = None
    margins: dict[str, Number] = {}
    zeros_allclose: dict[str, bool] = {}
    influence: list[Number | None] = []
    kind: str = ""
    why: str


def rows(bundle: Bundle) -> list[Audited]:
    """Return one entry for each planned problem, in the order of the plan."""
    found = bundle.records()
    return [_row(name, found.get(name)) for name in bundle.manifest["plan"]]


def _row(name: str, row: Row | None) -> Audited:
    fixture = row.result if row else None
    if row is None or not isinstance(fixture, FixtureRecord):
        problem, why = (row.problem, row.error) if row else (name, "not run")
        return Audited(problem=problem, verdict="not measured", why=why)
    trial = next((fixture.trials[kind] for kind in PUBLISHED if kind in fixture.trials), None)
    refused, found = fixture.refused_classes, fixture.degenerate
    return Audited(
        problem=fixture.problem,
        verdict="unjudgeable" if fixture.refused else "judged",
        classes=[klass for klass in fixture.margins if klass not in refused],
        refused_classes=refused,
        signal=trial.sensitivity if trial else None,
        best_cheat=fixture.best_cheat,
        margin=fixture.margin,
        margins=fixture.margins,
        zeros_allclose=trial.cheats.get("zeros", {}).get("legacy", {}) if trial else {},
        influence=fixture.influence,
        kind=found.get("kind", ""),
        why="; ".join(part for part in (found.get("kind", ""), found.get("proof", "")) if part)
        or "; ".join(f"{klass}: {why}" for klass, why in refused.items()),
    )


def cells(entry: Audited) -> list[str]:
    """Return an entry as the cells of COLUMNS."""
    if entry.verdict == "not measured":
        return [entry.problem, entry.verdict, *[""] * (len(COLUMNS) - 3), _short(entry.why)]
    passed = (entry.zeros_allclose.get(f"allclose_{at}") for at in TOLERANCES)
    return [
        entry.problem, entry.verdict, " ".join(entry.classes), _number(entry.signal), entry.best_cheat or "",
        _number(entry.margin), *("" if each is None else "yes" if each else "no" for each in passed),
        ", ".join("no tensor" if x is None else _number(x) for x in entry.influence), entry.why,
    ]  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


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


def markdown(bundle: Bundle, entries: list[Audited]) -> str:
    """Return the page of an audit: how it was measured, what stands out, and a table of all problems."""
    given = bundle.manifest.get("parameters", {})
    lines = [
        f"# What the problems of {given.get('suite', 'a suite')} can tell",
        "",
        f"From the bundle `{bundle.path.name}`, at {given.get('size')} size on {given.get('device')}. "
        f"{counted(entries)}.",
    ]
    for head, said, found in _notable(entries):
        lines += ["", f"## {head}", "", said, "", *found] if found else []
    lines += [
        "",
        "## All problems",
        "",
        "- **signal**: relative L2 distance of the outputs for two draws of the published inputs.",
        "- **best cheat**: the built-in answer without the work that comes nearest to passing; **margin**: its error "
        "over the worst honest kernel's, each as a multiple of its limit, in the loosest class that is judged.",
        "- **zeros**: with which tolerances, absolute and relative, `allclose` passes a kernel that returns zeros, on "
        "the published inputs.",
        "- **influence**: with several inputs, relative change of the output when one of them alone is another draw; "
        "`-`: it is no tensor.",
        "",
        "|problem|signal|best cheat|margin|zeros|influence|",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"|{e.problem}|{_number(e.signal)}|{e.best_cheat or ''}|{_number(e.margin)}|{', '.join(_passed(e))}"
        f"|{', '.join(_number(x) or '-' for x in e.influence) if len(e.influence) > 1 else ''}|"
        for e in entries
        if e.verdict != "not measured"
    ]
    return "\n".join(lines) + "\n"


def _notable(entries: list[Audited]) -> list[tuple[str, str, list[str]]]:
    """Return heading, sentence and lines of what stands out."""
    some = [e for e in entries if e.verdict == "judged" and e.refused_classes]
    zeros = [f"- {e.problem}: {', '.join(_passed(e))}" for e in entries if _passed(e)]
    blind = [
        f"- {e.problem}: input {at + 1}, {_number(x)}"
        for e in entries
        for at, x in enumerate(e.influence)
        if x is not None and x < BLIND and e.verdict == "judged"
    ]
    return [
        (
            "Unjudgeable",
            "No comparison can tell a kernel that does not do the work from one that does.",
            [f"- {e.problem}: {e.why}" for e in entries if e.verdict == "unjudgeable"],
        ),
        (
            "Judged in some classes",
            "In the classes named here a cheat passes every trial, or torch cannot run the problem.",
            [f"- {e.problem}: {', '.join(_refused(*each) for each in e.refused_classes.items())}" for e in some],
        ),
        (
            "Zeros pass allclose",
            "On these a kernel that returns zeros is right by `allclose`, on the published inputs, with the tolerances "
            "named.",
            zeros,
        ),
        (
            "Inputs that hardly matter",
            f"Another draw of this input changes the output by less than {BLIND:g}: a kernel need not read it to pass "
            "a comparison on the published inputs.",
            blind,
        ),
        (
            "Not measured",
            "What their own code says.",
            [f"- {e.problem}: {_short(e.why)}" for e in entries if e.verdict == "not measured"],
        ),
    ]


def _short(why: str) -> str:
    """Return a reason in one line, cut between two words."""
    return textwrap.shorten(why, 160, placeholder=" …")


def _refused(klass: str, why: str) -> str:
    return klass if why.startswith("the cheat ") else f"{klass} ({_short(why)})"


def _passed(entry: Audited) -> list[str]:
    return [at for at in TOLERANCES if entry.zeros_allclose.get(f"allclose_{at}")]
