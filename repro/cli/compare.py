"""`repro compare`: two bundles row by row, or bundles with the published claims."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from repro.bundle.write import Bundle, latest
from repro.cli import arguments, output
from repro.errors import UsageError
from repro.runs.progress import Progress
from repro.system.screen import BAD, Screen, shortest

if TYPE_CHECKING:
    from repro.analysis.records import Source

TEXT = "compare two bundles row by row, or bundles with claims"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "bundle", type=Path, nargs="*", help="A B; with --claims any number (default: the newest run and benchmark)"
    )
    parser.add_argument("--claims", action="store_true", help="compare bundles with every published figure")
    arguments.results_option(parser, "bundles")
    arguments.json_option(parser, "write the comparison")
    parser.add_argument("--strict", action="store_true", help="exit 3 where a claim is not reproduced, or a solution "
                        "that is correct in A is wrong or SLOWER in B")  # fmt: skip


def run(args: argparse.Namespace, progress: Progress) -> int:
    from repro.analysis import claims, compare, published, records
    from repro.report import terminal

    screen = Screen.of(args)
    if args.claims:
        newest = filter(None, (latest(args.results, (verb,)) for verb in ("run", "benchmark")))
        read = list(map(records.read, map(Bundle.open, args.bundle) if args.bundle else newest))
        found = claims.judge(published.load(), read)
        output.write_json(args.json, found.to_json())
        _warn(read, screen)
        terminal.draw_claims(found, screen)
        return 3 if args.strict and not claims.reproduced(found) else 0
    if len(args.bundle) != 2:
        raise UsageError(
            f"compare needs two bundles, {len(args.bundle)} given", remedy="Name A and B, or add --claims."
        )
    both = [records.read(Bundle.open(path)) for path in args.bundle]
    compared = compare.compare(*both)
    output.write_json(args.json, compared.to_json())
    _warn(both, screen)
    terminal.draw_comparison(compared, screen)
    return 3 if args.strict and compare.worse(compared) else 0


def _warn(sources: list[Source], screen: Screen) -> None:
    """Says which bundles fail `repro verify`."""
    for source in sources:
        if source.failed:
            where, first = shortest(source.bundle.path) or source.name, source.failed[0].check
            screen.line(f"! {where} fails repro verify ({first}): do not trust its numbers.", BAD)
