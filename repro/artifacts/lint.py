"""What a reviewer of a folder in the published layout must know before trusting its numbers.

Every check is a function of one artifact and yields what it found as (code, place, text); FINDINGS says how severe each
code is and why it matters. An `error` makes a published number wrong or impossible to compute again, a `warning` says
that it means something else than it seems to, a `note` is a fact to know. Nothing in the folder is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from repro.artifacts import layout
from repro.artifacts.layout import JSON_FILES, KERNEL, KERNELS, PROFILES, ROUND_FILES, TIMES, TRACE, Artifact, program
from repro.records import wording
from repro.records.base import Drawn
from repro.system import foreign

SCHEMA_VERSION = 5
ERROR, WARNING, NOTE = "error", "warning", "note"

# Code -> severity, why it matters.
FINDINGS = {
    "missing_file": (ERROR, "This row cannot be measured again."),
    "not_python": (ERROR, "This row cannot be measured again."),
    "missing_trace": (WARNING, "No time of the search can be checked."),
    "missing_round": (WARNING, "The running best over them is not known."),
    "missing_transcript": (WARNING, "How this round came about cannot be followed."),
    "unreadable": (ERROR, "Its numbers are lost."),
    "no_time": (ERROR, "The round has no time to compare."),
    "no_metrics": (WARNING, "Nothing was profiled."),
    "bad_metrics": (WARNING, "What is derived from them cannot be checked."),
    "protocols_differ": (ERROR, "Times of different rounds cannot be compared."),
    "shipped_kernel": (ERROR, "No published time is the time of what is shipped."),
    "shipped_round": (WARNING, "The table's best time is another kernel's."),
    "shipped_formatting": (NOTE, "The same program, not the same file."),
    "running_best": (NOTE, "Recomputed from the trace."),
}  # fmt: skip


class Finding(Drawn):
    """One line of the report. where: a path below the folder."""

    severity: str
    code: str
    where: str
    what: str
    why: str


class Report(Drawn):
    """What lint says of a folder. artifacts: their names. errors: how many findings are one."""

    schema_version: int
    folder: str
    artifacts: list[str]
    findings: list[Finding]
    errors: int


_Found = tuple[str, str, str]
# Round -> ms.
Times = dict[int, float]


def _files(artifact: Artifact) -> Iterator[_Found]:
    """Find a missing problem, kernel, trace or round, and a file that is not Python."""
    for name in ("problem.py", *KERNELS.values()):
        text = artifact.text(name)
        if text is None:
            there = (artifact.path / name).exists()
            yield "missing_file", f"{artifact.name}/{name}", "cannot be read" if there else "missing"
            continue
        try:
            foreign.tree(text)
        except SyntaxError as error:
            yield "not_python", f"{artifact.name}/{name}", str(error)
    where, numbers = f"{artifact.name}/{TRACE}", {r.number for r in artifact.rounds}
    if not numbers:
        yield "missing_trace", where, "holds no round_N folder" if (artifact.path / TRACE).is_dir() else "is missing"
    elif gaps := set(range(1, max(numbers) + 1)) - numbers:
        yield "missing_round", where, f"no round {wording.listed(map(str, sorted(gaps)))}"


def _transcripts(artifact: Artifact) -> Iterator[_Found]:
    """Find missing files of a round, and files that should hold JSON but do not."""
    for r in artifact.rounds:
        missing = [name for name in ROUND_FILES if not (r.path / name).exists()]
        if missing:
            yield "missing_transcript", _where(artifact, r), f"no {', '.join(missing)}"
        for name in ROUND_FILES:
            why = r.value(name)[1] if name in JSON_FILES else "cannot be read" * (r.text(name) is None)
            if why and name not in missing:
                yield "unreadable", f"{_where(artifact, r)}/{name}", why


def _metrics(artifact: Artifact) -> Iterator[_Found]:
    """Find times and profile metrics that are missing or not finite."""
    for r in artifact.rounds:
        if r.timing.time_ms is None and r.text(TIMES) is not None:
            yield "no_time", f"{_where(artifact, r)}/{TIMES}", r.timing.why
        for which, file in PROFILES.items():
            where, profile = f"{_where(artifact, r)}/{file}", r.profile(which)
            if not profile and r.value(file)[1] == "":
                yield "no_metrics", where, "holds no kernel with metrics"
            for kernel, values in profile.items():
                if wrong := sorted(name for name, value in values.items() if layout.single(value) is None):
                    yield "bad_metrics", where, f"{kernel}: not finite: {', '.join(wrong)}"


def _protocols(artifact: Artifact) -> Iterator[_Found]:
    """Check whether all rounds were timed in the same way."""
    for name in ("dtype", "device", "warmup", "repeat"):
        values = sorted({str(r.timing.facts[name]) for r in artifact.rounds if r.timing.facts.get(name) is not None})
        if len(values) > 1:
            yield "protocols_differ", f"{artifact.name}/{TRACE}", f"{name} is {' and '.join(values)}"


def _shipped(artifact: Artifact) -> Iterator[_Found]:
    """Recompute the running best, and check whether the shipped kernel is the fastest round's."""
    own, best = times(artifact), best_round(artifact)
    if best is None:
        return
    words = " ".join(f"{value:.4g}" for value in running_best(own).values())
    yield "running_best", f"{artifact.name}/{TRACE}", f"{words} ms, best is round {best}"
    if artifact.text(KERNELS["optimized"]) is None:
        return
    where = f"{artifact.name}/{KERNELS['optimized']}"
    number, exactly = shipped_round(artifact)
    formatted = "" if exactly else " in other formatting"
    if number is None:
        yield "shipped_kernel", where, "is no round's kernel"
    elif number != best:
        cost = f"{own[number]:.4g} ms" if number in own else "no time"
        yield "shipped_round", where, (f"is round {number}'s kernel{formatted} ({cost}), the fastest is round {best}'s "
                                       f"({own[best]:.4g} ms)")  # fmt: skip
    elif not exactly:
        yield "shipped_formatting", where, f"is round {number}'s kernel{formatted}"


_CHECKS: tuple[Callable[[Artifact], Iterator[_Found]], ...] = (
    _files, _transcripts, _metrics, _protocols, _shipped,
)  # fmt: skip


def _where(artifact: Artifact, r: layout.Round) -> str:
    return f"{artifact.name}/{TRACE}/{r.path.name}"


def lint(root: Path) -> Report:
    """Run every check on every artifact below `root`. Raises UsageError if there is no artifact."""
    artifacts = layout.find(root)
    findings = [
        Finding(severity=FINDINGS[code][0], code=code, where=where, what=what, why=FINDINGS[code][1])
        for artifact in artifacts
        for check in _CHECKS
        for code, where, what in check(artifact)
    ]
    findings.sort(key=lambda finding: ((ERROR, WARNING, NOTE).index(finding.severity), finding.code))
    return Report(
        schema_version=SCHEMA_VERSION,
        folder=root.resolve().name,
        artifacts=[artifact.name for artifact in artifacts],
        findings=findings,
        errors=sum(finding.severity == ERROR for finding in findings),
    )


# -- computed from a trace: the running best and the shipped round


def running_best(times: Times) -> Times:
    """Return the smallest time so far, ms, after every round that has one."""
    best: Times = {}
    for number in sorted(times):
        best[number] = min([times[number], *best.values()])
    return best


def times(artifact: Artifact) -> Times:
    """Return round -> time, ms, of the rounds with a finite one."""
    return {r.number: r.timing.time_ms for r in artifact.rounds if r.timing.time_ms is not None}


def best_round(artifact: Artifact) -> int | None:
    """Return the fastest round; of equal ones the first."""
    own = times(artifact)
    return min(own, key=lambda number: (own[number], number)) if own else None


def shipped_round(artifact: Artifact) -> tuple[int | None, bool]:
    """Return the round with the shipped kernel (of several the best, else the first), and whether it is identical."""
    shipped = artifact.text(KERNELS["optimized"])
    meaning = program(shipped)
    same = {}
    for r in artifact.rounds:
        text = r.text(KERNEL)
        if text is not None and shipped is not None:
            if text.rstrip("\n") == shipped.rstrip("\n"):
                same[r.number] = True
            elif meaning is not None and program(text) == meaning:
                same[r.number] = False
    if not same:
        return None, False
    best = best_round(artifact)
    chosen = best if best in same else min(same)
    assert chosen is not None
    return chosen, same[chosen]
