"""What `repro verify` prints: a line a bundle and a sum; with `-v` every check."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from repro.bundle import storage
from repro.bundle.seal import MANIFEST
from repro.bundle.verify import STATES, Finding, Verified
from repro.errors import UsageError
from repro.optimize import journal
from repro.records import wording
from repro.report import elements
from repro.report.elements import Item, Section
from repro.system.screen import shortest

# Reasons of one check that a line shows; the JSON has them all.
SHOWN = 3
WORDS = {"failed": "FAILED"}


def bundles(paths: list[Path]) -> list[Path]:
    """The bundles that paths name: each a bundle, or a folder whose bundles are taken at any depth.

    Raises UsageError where a folder holds none.
    """
    found = []
    for path in paths:
        if (path / journal.FILE).exists():
            advice = f"`repro optimize --replay {path}` makes its decisions again."
            raise UsageError(f"{path} is a search, not a bundle", "", advice)
        if path.is_dir() and not storage.holds(path):
            below = storage.below(path)
            if not below:
                why = f"no folder in it holds a {MANIFEST}, or is a folder NN_Name with a problem.py"
                raise UsageError(f"{path} is not a bundle", why)
            found += below
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def section(report: Verified, *, whole: bool) -> Section:
    """One bundle: its line, and with `whole` every check."""
    word = report.state
    first = next((each for each in report.checks if each.state.lower() == word), None) if word != "ok" else None
    why = f": {first.check}: {_reasons(first)}" if first else f" ({counts(report)})"
    line = Item(tone=elements.tone(word), text=f"{WORDS.get(word, word):<11} {shortest(report.bundle)}{why}")
    if not whole:
        return elements.section("bundle", "", items=[line])
    known = report.bundle_id or f"none, schema {report.schema_version}"
    caption = f"{shortest(report.bundle)}, bundle id {known}"
    rows = [[each.state, each.check, _reasons(each)] for each in report.checks]
    columns = [("state", "verdict"), ("check", "text", 0), ("why", "text", 0)]
    return elements.section("bundle", "", items=[line], tables=[elements.table("checks", caption, columns, rows)])


def counts(report: Verified) -> str:
    """`17 ok, 2 skipped`: the checks of a bundle by what they found."""
    return wording.counts(Counter(check.state for check in report.checks))


def summary(reports: list[Verified]) -> str:
    """`3 bundles: 2 ok, 1 interrupted`."""
    states = Counter(report.state for report in reports)
    told = wording.counts({WORDS.get(word, word): states[word] for word in STATES if word in states})
    return f"{elements.count(len(reports), 'bundle')}: {told}"


def _reasons(check: Finding) -> str:
    more = f"; and {len(check.reasons) - SHOWN} more" if len(check.reasons) > SHOWN else ""
    return "; ".join(check.reasons[:SHOWN]) + more
