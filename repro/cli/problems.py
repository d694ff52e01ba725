"""`repro problems`: the problems and suites, and with `--audit` what each problem of a suite can tell."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

from repro.cli import arguments, output
from repro.errors import ReproError, UsageError
from repro.runs.progress import Progress
from repro.system.screen import MANY, Column, Screen

TEXT = "list the problems and suites, or audit what each problem can tell"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--suite", default="", help="list this suite with traffic, arithmetic, memory and status")
    parser.add_argument(
        "--audit", action="store_true",
        help="measure which problems of a suite (default: kernelbench) cannot tell a cheat from an honest kernel",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="with --audit: write the table as markdown")
    arguments.measuring(parser)
    arguments.problem_option(parser)
    arguments.json_option(parser, "with --audit: write the table")


def run(args: argparse.Namespace, progress: Progress) -> int:
    """List, or audit."""
    if args.audit:
        return _audit(args, progress)
    if args.json or args.output or args.problem or args.resume:
        raise UsageError("--json, --output, --problem and --resume go with --audit")
    return _suite(args, progress) if args.suite else _shipped(args)


def _shipped(args: argparse.Namespace) -> int:
    """The shipped problems and the suites that hold them, or one suite with what its problems take."""
    from repro.problems import catalogue as shipped

    suites = shipped.suites()
    member = {i: ", ".join(s for s, of in suites.items() if i in of) for i in shipped.ids()}
    rows = [[i, shipped.load(i).name, member[i]] for i in shipped.ids()]
    screen = Screen.of(args)
    screen.table((Column("id", whole=True), Column("name"), Column("suites", 1)), rows)
    sizes = ", ".join(f"{name} ({len(of)})" for name, of in suites.items())
    screen.last(f"{len(rows)} problems", f"suites: {sizes}")
    return 0


def _suite(args: argparse.Namespace, progress: Progress) -> int:
    """One suite: traffic, arithmetic and memory by runs on the meta device, and what the fixtures on disk say.

    A problem that does not ship is first run at a reduced size, to see whether its batch can be split.
    """
    import torch

    from repro.fixtures import store
    from repro.problems import catalogue, derive, sizes

    device = "cuda" if args.device == "auto" else args.device
    size = "full" if args.size == "auto" else args.size
    torch.set_num_threads(1)
    rows: list[list[str]] = []
    reasons: dict[str, str] = {}
    found = catalogue.suite(args.suite, size=size)
    screen = Screen.of(args)
    columns = (Column("id", whole=True), Column("name"), Column("GB", number=True), Column("GFLOP", number=True),
               Column("memory GB", number=True), Column("status", 1))  # fmt: skip
    try:
        with progress.live(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the problem's own code
            for number, problem in enumerate(found, 1):
                progress.at(number, len(found))
                progress.step(problem.key)
                taken: tuple[str, ...] = ("–", "–", "–")
                status = store.status(args.results, problem, device)
                try:
                    known = problem
                    if not catalogue.is_shipped(problem):
                        known = derive.complete(sizes.settle(problem, {}, known=False))
                    taken = sizes.listed(known, device)
                except Exception as error:  # whatever the problem's own code does, the others are listed
                    status = "not judged"
                    reasons[problem.key] = str(error) if isinstance(error, ReproError) else repr(error)
                rows.append([problem.key, problem.name, *taken, status])
    finally:  # what is known is shown after Ctrl-C too
        screen.table(columns, rows)
        for key, reason in reasons.items():
            screen.item(f"{key}: not judged: {reason}")
    screen.line("GB: inputs, weights and outputs once. Memory: what judging takes at least.", "dim")
    screen.last(f"{len(rows)} problems of {args.suite}", f"{size} size on {device}")
    return 0


def _audit(args: argparse.Namespace, progress: Progress) -> int:
    from repro.artifacts import sources
    from repro.problems import catalogue
    from repro.report import audit, terminal
    from repro.runs import fixtures

    suite = args.suite or catalogue.KERNELBENCH
    if suite == catalogue.KERNELBENCH:
        sources.check(sources.named(suite))
    bundle = fixtures.audit(arguments.run_of(args, progress, timed=False), suite, args.problem)
    entries = audit.rows(bundle)
    if args.output is not None:
        output.write_text(args.output, audit.page(bundle, entries))
    screen = Screen.of(args)
    apart = [entry for entry in entries if entry.verdict != "judged" or entry.refused_classes]
    shown = entries if screen.verbose or len(entries) <= MANY else apart
    terminal.table(audit.table(shown), screen)
    if left := len(entries) - len(shown):
        screen.line(f"{left} more are judged in every class; -v shows all here, -o FILE writes them.", "dim")
    screen.line(audit.counted(entries))
    return output.conclude(
        args,
        bundle,
        {"schema_version": 1, "bundle": str(bundle.path), "problems": [entry.to_json() for entry in entries]},
    )
