"""A report of one or more bundles as a record: `report.json`, from which every renderer draws."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from repro import config
from repro.analysis import claims
from repro.bundle.write import Bundle
from repro.records.base import Record
from repro.records.claim import JudgedClaims
from repro.report import (
    clocks,
    convergence,
    correctness,
    elements,
    gpus,
    log,
    machines,
    parity,
    replicated,
    results,
    sources,
    study,
    summary,
)
from repro.report.elements import Banner, Card, Figure, Section, Table
from repro.report.model import Facts
from repro.report.sources import Described, Source

# 1: the facts of one bundle, or sections of several. 2: one layout of both.
SCHEMA_VERSION = 2


class Headline(Record):
    """The verdict in one line, and the counts that it is made of."""

    text: str
    solutions: dict[str, int] = {}
    controls: dict[str, int] = {}
    claims: dict[str, dict[str, int]] = {}
    planned: int = 0
    finished: int = 0
    throttled: int = 0


class Document(Record):
    """Everything that a renderer draws: `report.json`. Without claims where it is of a search.

    The first section is `summary`: one table and at most one figure. Only sections that hold something are there.
    """

    schema_version: int
    title: str
    headline: Headline
    banners: list[Banner]
    cards: list[Card]
    sections: list[Section]
    sources: list[Described]
    reports: list[Facts]
    claims: JudgedClaims | None

    @property
    def verified(self) -> bool:
        """Whether every bundle passes `repro verify`."""
        return all(source.verified for source in self.sources)

    @property
    def figures(self) -> list[Figure]:
        """The figures of all sections."""
        return [figure for section in self.sections for figure in section.figures]


def build(bundles: list[Bundle], artifacts: Path = config.ARTIFACTS_DIR) -> Document:
    """Return the document of bundles.

    artifacts: the folder whose traces are drawn. Raises UsageError and BundleError where a bundle or the folder cannot
    be read.
    """
    found = sources.read(bundles)
    published, claimed = replicated.judge(found)
    lines = summary.lines(found, published, claimed)
    drawn = artifacts != config.ARTIFACTS_DIR or any(source.verb == "benchmark" for source in found)
    studies = any(source.verb in summary.STUDY for source in found)  # other bundles are held against no claim
    sections = [
        summary.section(found, lines, published), log.missing(found),
        *(study.section(source.report.study, f"{source.letter.lower()}-") for source in found if source.report.study),
        replicated.section(claimed), results.speedups(found), parity.section(found), results.rounds(found),
        results.profiles(found), correctness.section(found), results.roofline(found),
        *([convergence.section(artifacts)] if drawn else []),
        *([machines.comparability(found, published)] if studies else []), gpus.section(found), clocks.section(found),
        log.run(found), *([replicated.untested(claimed)] if studies else []), machines.fingerprints(found),
        log.bundles(found), log.again(found), log.files(found), READING,
    ]  # fmt: skip
    return Document(
        schema_version=SCHEMA_VERSION,
        title=summary.title(found),
        headline=_headline(found, claimed),
        banners=summary.banners(found),
        cards=summary.cards(found, claimed),
        sections=[_trimmed(each, len(found)) for each in sections if elements.holds(each)],
        sources=[source.described() for source in found],
        reports=[source.report for source in found],
        claims=claimed,
    )


READING = elements.section("reading", "How to read this", text=[
    "A verdict comes from relative L2, max-norm and per-row distance to an fp64 reference, over secret inputs, signed "
    "and spiked inputs and perturbed weights. The precision class (fp32, tf32, bf16) is measured; tf32 also holds fp16 "
    "operands with fp32 sums.",
    "A time is the median device time of one call with a cold L2 cache, its launch hidden, on inputs that no call saw "
    "before.",
    "A speedup is the geometric mean over paired blocks, baseline over solution. Its 95 % interval is the widest of "
    "Student's, the studentised bootstrap's, and what two processes of the same code differ by.",
    "FAST and SLOW lie beyond 1x by more than the A/A control (eager against eager in another process). SAME lies "
    "within 1 %. UNCONFIRMED: faster by the solution's own clock, which the judge's clock cannot confirm; it counts as "
    "1x in means.",
    "A claim is reproduced as published if the published way of measuring, which verifies nothing, gives a figure "
    "within the claim's tolerance. It holds as judged if the kernel is correct and the judge's 95 % interval lies "
    "within it. Unclear: across an edge. Not comparable: measured otherwise, or a time of another machine. Blocked: "
    "could not be tested here.",
    "What each trust level stops and does not stop: `docs/judging.md`.",
], paper=False)  # fmt: skip


def _trimmed(section: Section, bundles: int) -> Section:
    """A section of one bundle has no column that names the bundle."""
    if bundles > 1:
        return section
    return section.model_copy(update={"tables": [_unlettered(table) for table in section.tables]})


def _unlettered(table: Table) -> Table:
    kept = [at for at, head in enumerate(table.columns) if not at or head.title != "bundle"]
    rows = [[row[at] for at in kept] for row in table.rows]
    return table.model_copy(update={"columns": [table.columns[at] for at in kept], "rows": rows})


def _headline(found: list[Source], claimed: JudgedClaims) -> Headline:
    entries = [entry for source in found for entry in source.entries]
    solutions = Counter(e.outcome for e in entries if not e.control)
    controls = Counter(e.verdict for e in entries if e.control)
    cases = [case for source in found for case in source.report.cases]
    fixtures = [fixture for source in found for fixture in source.report.fixtures]
    planned = sum(source.report.planned for source in found)
    finished = sum(source.report.finished for source in found)
    tried = any(claims.tried(outcome) for _, outcome in claimed.pairs())
    throttled = sum(source.slowed for source in found)
    words = []
    if any(source.failed for source in found):
        words.append("this report draws a bundle that fails verification")
    if solutions:
        others = ", ".join(f"{n} {word}" for word, n in solutions.items() if word != "correct")
        of = elements.count(solutions.total(), "solution")
        words.append(f"{solutions['correct']} of {of} correct" + (f" ({others})" * bool(others)))
    if controls:
        refused = controls["incorrect"] + controls["rejected"]
        words.append(f"{refused} of {elements.count(controls.total(), 'negative control')} refused")
    if cases:
        right = sum(not case.complaints for case in cases)
        words.append(f"{right} of {elements.count(len(cases), 'case')} judged as expected")
    if fixtures:
        usable = sum(not fixture.refused for fixture in fixtures)
        words.append(f"{usable} of {elements.count(len(fixtures), 'fixture')} usable")
    if tried:
        words.append(f"claims: {claims.told(claimed.counts)}")
    if finished < planned:
        words.append(f"{finished} of {elements.count(planned, 'row')} measured")
    if throttled:
        words.append(f"times of {elements.count(throttled, 'row')} left out, the GPU was throttled")
    if not any(source.report.measurement for source in found) and solutions:
        words.append("times are not a measurement")
    return Headline(text="; ".join(words), solutions=dict(solutions), controls=dict(controls), claims=claimed.counts,
                    planned=planned, finished=finished, throttled=throttled)  # fmt: skip
