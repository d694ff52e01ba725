"""A document of one or more bundles side by side, as plain data: `report.json` of `repro report -o DIR`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from repro import replication
from repro.bundle.write import Bundle
from repro.report import clocks, convergence, correctness, log, machines, parts, replicated, results, sources, study
from repro.report.sources import Source, judged

SCHEMA_VERSION = 1


def build(bundles: list[Bundle], artifacts: Path) -> dict[str, Any]:
    """Everything that a renderer draws. artifacts: the folder whose traces are drawn.

    Raises UsageError and BundleError where a bundle or the folder cannot be read.
    """
    found = sources.read(bundles)
    published, claimed = replicated.judge(found)
    return {
        "schema_version": SCHEMA_VERSION,
        "title": f"repro: {', '.join(dict.fromkeys(source.verb for source in found))}",
        "headline": _headline(found, claimed),
        "sources": [source.to_json() for source in found],
        "sections": [
            replicated.section(claimed),
            machines.comparability(found, published),
            log.bundles(found),
            *(
                study.section(source.report["study"], f"{source.letter.lower()}-")
                for source in found
                if "study" in source.report
            ),
            results.speedups(found),
            convergence.section(artifacts),
            results.roofline(found),
            correctness.section(found),
            clocks.section(found),
            log.run(found),
            replicated.untested(claimed),
            machines.fingerprints(found),
            log.again(found),
            log.files(found),
        ],
        "reports": [source.report for source in found],
        "claims": claimed,
    }


def _headline(found: list[Source], claimed: dict[str, Any]) -> dict[str, Any]:
    """The verdict in one line, and the counts that it is made of."""
    solutions = Counter(each.entry["verdict"] for source in found for each in judged(source) if not each.control)
    controls = Counter(each.entry["verdict"] for source in found for each in judged(source) if each.control)
    claims = {verdict: n for verdict, n in claimed["counts"].items() if n}
    planned = sum(source.report["planned"] for source in found)
    finished = sum(source.report["finished"] for source in found)
    tried = {verdict: n for verdict, n in claims.items() if verdict in replication.TRIED}
    words = []
    if tried:
        words.append("claims " + ", ".join(f"{n} {verdict}" for verdict, n in tried.items()))
    if solutions:
        others = ", ".join(f"{n} {verdict}" for verdict, n in solutions.items() if verdict != "correct")
        words.append(
            f"{solutions['correct']} of {solutions.total()} solutions correct" + (f" ({others})" * bool(others))
        )
    if controls:
        wrong = controls.total() - controls["correct"]
        words.append(f"{wrong} of {parts.count(controls.total(), 'negative control')} refused")
    words.append(f"{finished} of {parts.count(planned, 'row')} measured")
    throttled = sum("no_measurement" in row["result"] for source in found for row in source.done)
    if throttled:
        words.append(f"times of {parts.count(throttled, 'row')} are no measurement, the GPU was throttled")
    if not tried:
        words.append("no claims tested")
    if not any(source.report["measurement"] for source in found):
        words.append("times are not a measurement")
    return {"text": "; ".join(words), "solutions": dict(solutions), "controls": dict(controls), "claims": claims,
            "planned": planned, "finished": finished, "throttled": throttled}  # fmt: skip
