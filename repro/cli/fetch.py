"""`repro fetch`: bring a public source below sources/ and check its hash."""

from __future__ import annotations

import argparse

from repro.runs.progress import Progress
from repro.system.screen import Column, Screen, shortest

TEXT = "bring a public source below sources/ and check its hash"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "name", nargs="?", help="kernelagent-artifacts, kernelbench, ...; without a name, list them all"
    )
    parser.add_argument(
        "--from", dest="origin", default="", metavar="DIR|URL", help="another copy or address of the source"
    )


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Without a name: what can be fetched, and what is here."""
    from repro.artifacts import sources

    screen = Screen.of(args)
    if not args.name:
        rows = [[s.name, "yes" if s.folder.is_dir() else "no", s.licence, s.purpose] for s in sources.load().values()]
        columns = (Column("source", whole=True), Column("fetched"), Column("licence", 1), Column("what it is"))
        screen.table(columns, rows)
        screen.last(f"{len(rows)} sources, {sum(row[1] == 'yes' for row in rows)} fetched")
        return 0
    progress.step(f"fetching {args.name}")
    source, before = sources.fetch(args.name, args.origin)
    screen.line(f"commit {source.commit[:12]}, tree {source.tree[:12]}, licence {source.licence}")
    screen.last(f"{source.name} {'was here' if before else 'fetched'} and is verified", shortest(source.folder))
    return 0
