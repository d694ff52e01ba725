"""The section on optimisation traces: one convergence figure an artifact that has one."""

from __future__ import annotations

from pathlib import Path

from repro.artifacts import figure, layout, trace
from repro.report import elements
from repro.report.elements import Convergence, Figure, Section

COLUMNS = ("round", ("ms", "ms"), ("running best, ms", "ms"))


def section(folder: Path) -> Section:
    """folder: in the published layout. Raises UsageError where it is none."""
    artifacts = layout.find(folder)
    figures, tables, without = [], [], []
    for artifact in artifacts:
        if not trace.times(artifact):
            without.append(artifact.name)
            continue
        facts = trace.summary(artifact)
        name = f"convergence-{artifact.name}"
        title = f"Convergence of {artifact.name}"
        figures.append(
            Figure(id=name, kind="convergence", title=title, alt=figure.alt(facts), data=Convergence(facts=facts))
        )
        rows = [[str(r.round), r.time_ms, r.running_best_ms] for r in facts.rounds]
        tables.append(elements.table(name + "-rounds", f"Rounds of {artifact.name}", COLUMNS, rows))
    text = []
    if figures:
        text.append("Times of the rounds as their traces have them: published figures, not measured here.")
    if figures and without:
        text.append(f"No trace: {', '.join(without)}.")
    return elements.section("convergence", "Convergence", text=text, figures=figures, tables=tables)
