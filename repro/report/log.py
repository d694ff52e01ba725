"""Sections on the runs themselves: the bundles, what ran and what did not."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from repro import fingerprint
from repro.analysis import records
from repro.analysis.records import Source
from repro.records.fixture import FixtureRecord
from repro.records.result import JudgeResult
from repro.records.row import Row
from repro.report import elements
from repro.report.elements import Cell, Section


def bundles(sources: list[Source]) -> Section:
    """The bundles of the document, each with its letter and its command."""
    columns = ["bundle", ("name", "code", 0), "verb", ("status", "verdict"), "started", "rows", "machine", "stack",
               "isolation", "trust", ("command", "code", 1), ("bundle id", "code")]  # fmt: skip
    rows = []
    for source in sources:
        manifest, judged = source.bundle.manifest, (each.judgement for each in source.solutions)
        # how far the judge was from the solutions: every trust level and separation
        trust = sorted({f"{each.trust}, separation {each.separation}" for each in judged if each.separation})
        engine = manifest.get("engine", {})
        stacks = "; ".join(map(fingerprint.headline, source.fingerprints.values())) or "not recorded"
        rows.append([source.letter, source.name, source.verb, source.status, source.started,
                     f"{len(source.done)} of {len(source.plan)}", source.machine, stacks,
                     f"{engine.get('engine', '?')}, {engine.get('isolation', '?')}", "; ".join(trust),
                     shlex.join(["repro", *manifest["argv"]]) if manifest.get("argv") else "",
                     str(manifest.get("bundle_id") or "")])  # fmt: skip
    return elements.tabled("bundles", "Bundles", "What was read", columns, rows, paper=False)


def run(sources: list[Source]) -> Section:
    """Every planned row: what became of it, how long it took, what was left out, and why."""
    rows = [row for source in sources for row in _ran(source)]
    columns = ["row", "bundle", ("status", "verdict"), ("seconds", "seconds", 2), ("ended", "text", 3),
               ("notes, skips and reasons", "text", 1)]  # fmt: skip
    return elements.tabled("log", "Run log", "Every planned row and what became of it", columns, rows, paper=False)


def _ran(source: Source) -> Iterator[list[Cell]]:
    for name in source.plan:
        if row := source.rows.get(name):
            yield [name, source.letter, row.status, row.wall_s, row.ended, "; ".join(_notes(row))]
        else:
            yield [name, source.letter, "not run", None, None, source.error or records.NOT_STARTED]
    for name, why in source.parameters.get("skipped", {}).items():
        yield [name, source.letter, "skipped", None, None, why]


def _notes(row: Row) -> list[str]:
    if row.status != "done":
        return [row.error]
    notes = [f"{name} is missing" for name in row.missing]
    if row.judged:
        notes += [f"baseline {name} left out: {why}" for name, why in row.judged.timing.left_out.items()]
    left_out = row.result.trials_left_out if isinstance(row.result, JudgeResult | FixtureRecord) else {}
    reasons = records.grouped((why, trial) for trial, why in left_out.items())
    notes += [f"trials {', '.join(names)} left out: {why}" for why, names in reasons.items()]
    if row.judged and row.judged.timing.status == "not_converged":
        notes.append("a median was not known to ±0.5 % when the time budget ended")
    notes += [f"measured again: {why}" for why in row.measured_again]
    if row.judged and row.judged.no_measurement:
        notes.append(f"its times are no measurement: {row.judged.no_measurement}")
    return notes
