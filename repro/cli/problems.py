"""`repro problems`: the problems and suites, one problem, and with `--audit` what each problem of a suite can tell."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from repro import config
from repro.bundle.write import Bundle
from repro.cli import arguments, output
from repro.errors import ReproError, UsageError
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.runs.progress import Progress
from repro.system.screen import MANY, Column, Screen, shortest

TEXT = "list problems and suites, show one, or audit what each can tell"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("id", nargs="?", default="", metavar="ID", help="show this problem: an id, or a file")
    parser.add_argument("--suite", default="", help="list this suite with traffic, arithmetic and status")
    parser.add_argument(
        "--audit", action="store_true",
        help="measure which problems of a suite (default: kernelbench) cannot tell a cheat from an honest kernel",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="with --audit: write the table as markdown")
    arguments.measuring_problems(parser)
    arguments.json_option(parser, "with --audit: write the table")


def run(args: argparse.Namespace, progress: Progress) -> int:
    """List, or audit."""
    if args.audit:
        return _audit(args, progress)
    if args.json or args.output or args.problem or args.resume:
        raise UsageError("--json, --output, --problem and --resume go with --audit")
    if args.id:
        return _one(args)
    return _suite(args, progress) if args.suite else _shipped(args)


def _shipped(args: argparse.Namespace) -> int:
    """The shipped problems and the suites that hold them."""
    suites = catalogue.suites()
    rows = [[i, catalogue.load(i).name, ", ".join(s for s, of in suites.items() if i in of)] for i in catalogue.ids()]
    screen = Screen.of(args)
    screen.table((Column("id", whole=True), Column("name"), Column("suites", 1)), rows)
    sizes = ", ".join(f"{name} ({len(of)})" for name, of in suites.items())
    screen.last(f"{len(rows)} problems", f"suites: {sizes}")
    return 0


def _suite(args: argparse.Namespace, progress: Progress) -> int:
    """One suite: traffic and arithmetic by runs on the meta device, and what the fixtures on disk say."""
    from repro.fixtures import store
    from repro.problems import sizes

    size, device = _size_and_device(args)
    rows = []
    reasons = {}
    found = catalogue.suite(args.suite, size=size)
    screen = Screen.of(args)
    columns = (Column("id", whole=True), Column("name"), Column("GB", number=True), Column("GFLOP", number=True),
               Column("status", 1))  # fmt: skip
    try:
        with progress.live(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the problem's own code
            for number, problem in enumerate(found, 1):
                progress.at(number, len(found))
                progress.step(problem.key)
                taken: tuple[str, ...] = ("–", "–")
                status = store.status(args.results, problem, device)
                try:
                    settled = sizes.settle(problem, {}, known=catalogue.is_shipped(problem))
                    taken = sizes.listed(sizes.measure(settled))
                except Exception as error:  # whatever the problem's own code does, the others are listed
                    status = "not judged"
                    reasons[problem.key] = str(error) if isinstance(error, ReproError) else repr(error)
                rows.append([problem.key, problem.name, *taken, status])
    finally:  # what is known is shown after Ctrl-C too
        screen.table(columns, rows)
        for key, reason in reasons.items():
            screen.item(f"{key}: not judged: {reason}")
    screen.line("GB: inputs, weights and outputs once. `repro problems ID` shows more of one.", "dim")
    screen.last(f"{len(rows)} problems of {args.suite}", f"{size} size on {device}")
    return 0


def _size_and_device(args: argparse.Namespace) -> tuple[str, str]:
    """What is listed without being asked for is the published size on a GPU."""
    import torch

    torch.set_num_threads(1)
    return "full" if args.size == "auto" else args.size, "cuda" if args.device == "auto" else args.device


def _one(args: argparse.Namespace) -> int:
    """One problem: its source, inputs and outputs, what a call takes, its floor, and the classes that are judged."""
    from repro.fixtures import store
    from repro.problems import constants, derive, meta, plan, sizes

    size, device = _size_and_device(args)
    problem = catalogue.resolve(args.id, size=size)
    if not catalogue.is_shipped(problem):
        problem = derive.complete(sizes.settle(problem, {}, known=False))
    planned, taken = plan.plan(problem), sizes.measure(problem)
    init = problem.init_inputs(planned.module)
    host, gpu = sizes.needed_bytes(problem, taken, device)
    gigabytes, gflop = sizes.listed(taken)
    rows = [["constants", constants.listed(problem.overrides) or "as in the file"]]
    rows += [[f"input {i + 1}", _shaped(*planned.spec[i])] for i in planned.tensors]
    outputs = meta.leaves(meta.output_spec(planned, plan.Weights(init, {})))
    rows += [[f"output {at}", _shaped(leaf["shape"], leaf["dtype"])] for at, (_, leaf) in enumerate(outputs, 1)]
    rows += [["weights", f"{taken.weights:,} numbers"], ["one call", f"{gigabytes} GB, {gflop} GFLOP"],
             ["memory of judging", f"{sizes.gigabytes(gpu or host)} at least"],
             *_floors(problem),
             ["fixture", store.status(args.results, problem, device)]]  # fmt: skip
    screen = Screen.of(args)
    if not screen.quiet:
        print("".join(c if c.isprintable() or c == "\n" else " " for c in problem.source.decode(errors="replace")))
    screen.table((Column(problem.key, whole=True), Column(problem.name)), rows)
    screen.last(shortest(problem.path), f"{size} size on {device}")
    return 0


def _shaped(shape: Sequence[int], dtype: object) -> str:
    return f"{' x '.join(map(str, shape)) or 'a number'} {str(dtype).removeprefix('torch.')}"


def _floors(problem: Problem) -> Iterator[list[str]]:
    """The least time of one call in every class: on this machine's GPU, or on that of the published run."""
    import torch

    from repro.analysis import records
    from repro.judge.timing import roofline
    from repro.records.result import JudgeResult

    if torch.cuda.is_available():
        ceilings, where = roofline.measure(torch.device("cuda")), "this GPU"
    else:
        if not (published := sorted((config.ARTIFACTS_DIR / "results").glob("*/*-run"))):
            return
        of = records.read(Bundle.open(published[0]))
        results = [row.result for row in of.done if isinstance(row.result, JudgeResult)]
        ceilings, where = next(result.ceilings for result in results if result.ceilings), of.machine
    least = {klass: roofline.floor_ms(problem, klass, ceilings.to_json()) for klass in ("fp32", "tf32", "bf16")}
    if problem.work:
        yield ["floor", ", ".join(f"{klass} {ms:.3g} ms" for klass, ms in least.items()) + f" on {where}"]


def _audit(args: argparse.Namespace, progress: Progress) -> int:
    from repro.artifacts import sources
    from repro.report import audit, terminal
    from repro.runs import fixtures

    suite = args.suite or catalogue.KERNELBENCH
    if suite == catalogue.KERNELBENCH:
        sources.check(sources.named(suite))
    run = arguments.run_of(args, progress, timed=False)
    bundle = fixtures.measure(run, catalogue.suite(suite, size=run.size, only=args.problem), suite=suite)
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
    return output.conclude(args, bundle, output.listed(bundle, "problems", entries))
