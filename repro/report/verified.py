"""What `repro verify` prints: a line a bundle and a sum; with `-v` every check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

from repro.bundle.seal import MANIFEST
from repro.bundle.storage import ARCHIVE
from repro.bundle.verify import STATES
from repro.errors import UsageError
from repro.optimize import journal
from repro.system.screen import BAD, GOOD, OPEN, Column, Screen, shortest

# Reasons of one check that a line shows; the JSON has them all.
SHOWN = 3
STYLES = {"ok": GOOD, "failed": BAD, "FAILED": BAD, "interrupted": OPEN, "running": OPEN, "skipped": "dim"}
WORDS = {"failed": "FAILED"}


def bundles(paths: list[Path]) -> list[Path]:
    """The bundles that paths name: each a bundle, or a folder whose bundles are taken at any depth.

    Raises UsageError where a folder holds none.
    """
    found: list[Path] = []
    for path in paths:
        if (path / journal.FILE).exists():
            advice = f"`repro optimize --replay {path}` makes its decisions again."
            raise UsageError(f"{path} is a search, not a bundle", "", advice)
        if path.is_dir() and not any((path / name).exists() for name in (MANIFEST, ARCHIVE)):
            below = sorted({file.parent for name in (MANIFEST, ARCHIVE) for file in path.rglob(name)})
            if not below:
                why = f"no folder in it holds a {MANIFEST}, or is a folder NN_Name with a problem.py"
                raise UsageError(f"{path} is not a bundle", why)
            found += below
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def draw(report: dict[str, Any], screen: Screen) -> None:
    """One bundle: its line, and every check where the screen is verbose."""
    word = report["state"]
    first = next((c for c in report["checks"] if c["state"].lower() == word), None) if word != "ok" else None
    why = f": {first['check']}: {_reasons(first)}" if first else f" ({counts(report)})"
    name = WORDS.get(word, word)
    screen.item(f"{shortest(report['bundle'])}{why}", Text(f"{name:<11}", STYLES[word]))
    if screen.verbose:
        known = report["bundle_id"] or f"none, schema {report['schema_version']}"
        screen.line(f"bundle id {known}")
        rows = [[Text(c["state"], STYLES[c["state"]]), c["check"], _reasons(c)] for c in report["checks"]]
        screen.table((Column("state", whole=True), Column("check", whole=True), Column("why")), rows)


def counts(report: dict[str, Any]) -> str:
    """`17 ok, 2 skipped`: the checks of a bundle by what they found."""
    found = [check["state"] for check in report["checks"]]
    return ", ".join(f"{found.count(word)} {word}" for word in dict.fromkeys(found))


def summary(reports: list[dict[str, Any]]) -> str:
    """`3 bundles: 2 ok, 1 interrupted`."""
    states = [report["state"] for report in reports]
    told = ", ".join(f"{states.count(word)} {WORDS.get(word, word)}" for word in STATES if word in states)
    return f"{len(reports)} bundle{'' if len(reports) == 1 else 's'}: {told}"


def _reasons(check: dict[str, Any]) -> str:
    more = f"; and {len(check['reasons']) - SHOWN} more" if len(check["reasons"]) > SHOWN else ""
    return "; ".join(check["reasons"][:SHOWN]) + more
