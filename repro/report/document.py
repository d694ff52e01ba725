"""A report of one or more bundles as a record: `report.json`, from which every renderer draws.

`build` names every section in its order, with the module that makes it.
"""

from __future__ import annotations

from repro.bundle.write import Bundle
from repro.records.base import Record
from repro.records.claim import JudgedClaims
from repro.report import artifacts as artifact_sections
from repro.report import claims, correctness, elements, kernels, log, machines, sources, speedups, study, summary
from repro.report.elements import Banner, Card, Figure, Section
from repro.report.sources import Described, Judged
from repro.report.summary import Headline

# 1: the facts of one bundle, or sections of several. 2: one layout of both. 3: verdicts in place of facts.
SCHEMA_VERSION = 3


class Document(Record):
    """Everything that a renderer draws: `report.json`. Without claims where it is of a search.

    The first section is `summary`: one table and at most one figure. Only sections that hold something are there.
    verdicts: of every row, for `repro verify`.
    """

    schema_version: int
    title: str
    headline: Headline
    banners: list[Banner]
    cards: list[Card]
    sections: list[Section]
    sources: list[Described]
    verdicts: list[Judged]
    claims: JudgedClaims | None

    @property
    def verified(self) -> bool:
        """Whether every bundle passes `repro verify`."""
        return all(source.verified for source in self.sources)

    @property
    def figures(self) -> list[Figure]:
        """The figures of all sections."""
        return [figure for section in self.sections for figure in section.figures]


def build(bundles: list[Bundle]) -> Document:
    """Return the document of bundles. Raises UsageError for too many, BundleError where one cannot be read."""
    read = sources.read(bundles)
    published, claimed = claims.judge(read)
    studies = any(source.verb in summary.STUDY for source in read)  # other bundles are held against no claim
    sections = [
        summary.section(read, published, claimed), kernels.section(read), *study.sections(read),
        claims.section(claimed), speedups.section(read), artifact_sections.parity(read), artifact_sections.rounds(read),
        artifact_sections.profiles(read), correctness.section(read), correctness.trials(read), speedups.roofline(read),
        machines.comparability(read), machines.gpus(read), machines.clocks(read),
        log.run(read), *([claims.untested(claimed)] if studies else []), machines.fingerprints(read),
        log.bundles(read), _READING,
    ]  # fmt: skip
    return Document(
        schema_version=SCHEMA_VERSION,
        title=summary.title(read),
        headline=summary.headline(read, claimed),
        banners=summary.banners(read),
        cards=summary.cards(read, claimed),
        sections=[each if len(read) > 1 else _trimmed(each) for each in sections if each.holds],
        sources=[sources.described(source) for source in read],
        verdicts=[verdict for source in read for verdict in sources.judged(source)],
        claims=claimed,
    )


_READING = elements.section("reading", "How to read this", text=[
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


def _trimmed(section: Section) -> Section:
    """A section of one bundle has no column that names the bundle."""
    tables = [table.only([at for at, head in enumerate(table.columns) if not at or head.title != "bundle"])
              for table in section.tables]  # fmt: skip
    return section.model_copy(update={"tables": tables})
