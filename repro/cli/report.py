"""`repro report`: draw or list bundles, or show what a run does now."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.text import Text

from repro.bundle import storage
from repro.bundle.write import Bundle
from repro.cli import arguments, output
from repro.errors import ReproError, UsageError
from repro.records.wording import listed
from repro.runs.progress import Progress, spoken
from repro.system.jsonio import Json
from repro.system.screen import BAD, SEPARATOR, Column, Screen, shortest

TEXT = "draw bundles as pages and tables, or show what a run does now"
# Rows without a result that --live lists.
_SHOWN = 10
_UNFINISHED = ("died", "interrupted", "incomplete", "failed")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "bundle", type=Path, nargs="*",
        help="bundles to draw (default: the newest); or a folder of bundles, which is listed",
    )  # fmt: skip
    parser.add_argument(
        "--live", action="store_true",
        help="show what a run in another terminal does: done, running, failed, expected end",
    )  # fmt: skip
    arguments.results_option(parser)
    parser.add_argument(
        "--format",
        metavar="F,F",
        help="md, html, tex, svg, csv, flashinfer-trace (default: md,html; with -o md,html,tex)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR",
        help="one document of all bundles side by side (default: a report of each into the bundle)",
    )  # fmt: skip
    arguments.json_option(parser, "write the report")


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Draw what is asked for."""
    if args.live:
        return _live(args)
    if len(args.bundle) == 1 and not storage.holds(args.bundle[0]):
        if below := storage.below(args.bundle[0]):
            return _listed(args, below)
    return _bundles(args)


def _listed(args: argparse.Namespace, folders: list[Path]) -> int:
    """Every bundle of a folder with its last line."""
    from repro.report import document

    screen, rows = Screen.of(args), []
    for folder in folders:
        try:
            said = SEPARATOR.join(document.build([Bundle.open(folder)]).headline.parts)
        except ReproError as error:
            said = str(error)
        rows.append([str(folder.relative_to(args.bundle[0])), said])
    screen.table((Column("bundle", whole=True), Column("last line")), rows)
    screen.last(f"{len(rows)} bundles", shortest(args.bundle[0]))
    return 0


def _bundles(args: argparse.Namespace) -> int:
    """Exit 2 where a bundle fails `repro verify`: the report is drawn all the same, and says so."""
    from repro.report import document, terminal
    from repro.report import output as reports

    screen = Screen.of(args)
    bundles = [Bundle.open(path) for path in args.bundle] or [output.newest(args.results)]
    chosen = output.formats(args)
    if args.output is not None:
        drawn = iter([reports.beside(bundles, chosen, args.output)])
    else:
        drawn = (reports.into(bundle, chosen) for bundle in bundles)
    for whole, files in drawn:
        if args.output is None:
            terminal.draw(whole, screen, tables=screen.verbose)
        terminal.last(whole, screen, files)
    if args.output is None and len(bundles) > 1:
        whole = document.build(bundles)
    output.write_json(args.json, whole.to_json())
    return 0 if whole.verified else 2


def _live(args: argparse.Namespace) -> int:
    from repro.runs import status

    screen = Screen.of(args)
    if len(args.bundle) > 1:
        raise UsageError("--live shows one run", f"{len(args.bundle)} were named")
    state = status.read(args.bundle[0] if args.bundle else status.find(args.results))
    failed = _draw_live(state, screen)
    rest = state["expected_s"]
    screen.last(
        f"{state['status']}: {state['done']} of {state['planned']} rows done",
        f"{failed} not measured" if failed else "",
        f"{len(state['running'])} running" if state["running"] else "",
        f"about {spoken(rest)} left" if rest is not None else "",
        "repeat its command with --resume" if state["status"] in _UNFINISHED else "",
        shortest(state["bundle"]),
    )
    output.write_json(args.json, state)
    return 0


def _draw_live(state: Json, screen: Screen) -> int:
    """Print what runs, what is done and what failed; return how many rows failed."""
    lanes = [[listed(lane["what"], 2), spoken(time.time() - lane["since"]), lane["line"]] for lane in state["running"]]
    screen.table((Column("running", whole=True), Column("for", number=True), Column("what it does", 1)), lanes)
    if names := state["finished"]:
        screen.line(f"done: {listed(names, len(names) if screen.verbose else 3)}", "dim")
    failed = [[Text(name, BAD), why] for name, why in state["failed"].items()]
    screen.table((Column("not measured", whole=True), Column("why")), failed if screen.verbose else failed[:_SHOWN])
    return len(failed)
