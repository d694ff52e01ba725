"""`repro evaluate`: judge solutions, a suite's own models, or the judge itself."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from repro.bundle.write import Bundle
from repro.cli import arguments, output
from repro.errors import UsageError
from repro.problems.catalogue import ITEMSIZE
from repro.records.verdict import Verdict
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.system import jsonio
from repro.system.jsonio import Json

TEXT = "judge solutions: a file, or a folder of ID_Name.py files"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("path", type=Path, nargs="*", help="a solution, or a folder of them")
    parser.add_argument(
        "--self-test", action="store_true",
        help="judge the judge by its adversarial and honest cases; PATH narrows them by name",
    )  # fmt: skip
    parser.add_argument(
        "--suite", default="", metavar="NAME",
        help="judge every problem of a suite (agent, artifacts or the fetched kernelbench) by its own Model, which "
        "must be correct",
    )  # fmt: skip
    parser.add_argument(
        "--parity", dest="kernelbench", nargs="?", choices=("kernelbench",), const="kernelbench", default=False,
        help="also judge and time as KernelBench does: five draws, allclose, the mean of 100 calls; decides nothing",
    )  # fmt: skip
    parser.add_argument(
        "--explain", action="store_true",
        help="of a wrong solution also print values, its traceback, what it printed, and lines that show it again; "
        "sets --trust dev",
    )  # fmt: skip
    arguments.measuring_problems(parser)
    parser.add_argument(
        "--against", type=Path, metavar="OLD",
        help="a solution, or a folder of them: time PATH in turns with it, and exit 3 where PATH is not correct or "
        "slower",
    )  # fmt: skip
    parser.add_argument(
        "--allow", type=_share, default=0.01, metavar="N%", help="with --against: how much slower is no failure "
        "(default: 1%%)",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=("markdown", "json", "csv"), help="print the results in this form in place of the tables"
    )
    arguments.judging(parser)
    parser.add_argument("--dtype", choices=tuple(ITEMSIZE), default="float32", help="dtype of model and inputs")
    parser.add_argument(
        "--check", dest="checks", action="append", default=[], choices=("strides", "sanitizer", "backward"),
        help="what else decides (repeatable): inputs that are not contiguous (default: a label); memcheck and "
        "racecheck at a reduced size; the gradients of inputs and parameters, which are then part of a call",
    )  # fmt: skip
    parser.add_argument(
        "--shapes", action="append", default=[], metavar="FILE",
        help="judge at these shapes, and be right at all: JSON lines or a csv table of constants of the problem file, "
        'such as {"M": 64, "weight": 0.3}; or M=64,N=32; suite: those of suites.toml; neighbours: also shapes near '
        "the problem's own (repeatable)",
    )  # fmt: skip


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Judge, and return the exit code."""
    from repro.analysis import gate
    from repro.studies import evaluation

    _check(args, progress)
    args.kernelbench = bool(args.kernelbench)
    args.trust = "dev" if args.explain else args.trust
    run = arguments.run_of(args, progress, arguments.options(args))
    if args.self_test:
        return _self_test(args, run)
    if args.suite:
        bundle, results = evaluation.identities(run, args.suite, args.problem, args.dtype)
    else:
        bundle, rows = evaluation.evaluate(run, args.path, args.problem, args.dtype, args.shapes, args.against)
        results = gate.judged(rows)
    value = _judged(bundle, results)
    deciding = [each for each in results if each.against] if args.against else results
    deciding = [shape for each in deciding for shape in (each.workloads or [each])]
    args.strict = args.strict or args.against is not None
    code = output.conclude(args, bundle, value, deciding, _formatted(args.format, value, results))
    return 3 if not code and any(gate.slower(each, args.allow) for each in deciding) else code


def _share(text: str) -> float:
    """Return the share of `1%` or `1`."""
    with contextlib.suppress(ValueError):
        share = float(text.removesuffix("%")) / 100
        if 0 <= share < 1:
            return share
    raise argparse.ArgumentTypeError(f"{text!r} is no share from 0% to below 100%")


def _formatted(form: str | None, value: Json, results: list[Verdict]) -> str | None:
    """Return the results in a form of `--format`; None without one."""
    from repro.report import against, markdown
    from repro.report import output as reports

    if form is None:
        return None
    if form == "json":
        return jsonio.render(value).decode()
    table = against.table(results)
    return f"{markdown.table(table)}\n" if form == "markdown" else reports.table_csv(table)


def _check(args: argparse.Namespace, progress: Progress) -> None:
    """Raises UsageError for wrong use, before any line on an engine."""
    from repro.studies import evaluation

    if args.suite or args.self_test:
        return _check_own(args)
    if not args.path:
        raise UsageError("nothing to evaluate", "no file or folder was named", "Give a path, or --self-test.")
    chosen = {file for file, _ in evaluation.find(args.path, args.problem)}
    others = [file.name for path in args.path for file in sorted(path.glob("*.py")) if file not in chosen]
    if others:
        progress.say(f"not used, not named after a problem that was asked for: {', '.join(others)}")


def _check_own(args: argparse.Namespace) -> None:
    """Raises UsageError for wrong use of `--suite` and `--self-test`."""
    if args.against or args.shapes:
        raise UsageError("--against and --shapes are for solutions", "--suite and --self-test name none")
    if args.self_test and args.checks:
        raise UsageError("--check is not for --self-test", "its cases say how they are judged")
    if args.suite and (args.path or args.self_test):
        raise UsageError("--suite takes no PATH or --self-test", "it judges every problem by its own Model")


def _judged(bundle: Bundle, results: list[Verdict]) -> Json:
    """Return what `--json` writes."""
    from repro.report import correctness

    found = correctness.fast(results)
    return output.listed(bundle, "results", results) | ({"fast_p": found} if found else {})


def _self_test(args: argparse.Namespace, run: Run) -> int:
    """Exit 2 where the judge is wrong about a case: that is the tool's failure."""
    from repro.studies import self_test

    names = [str(path) for path in args.path]
    suites = [name for name in names if name in self_test.SUITES]
    others = [name for name in names if name not in suites]
    bundle, cases = self_test.run(run, suites or list(self_test.SUITES), others, args.dtype)
    code = output.conclude(args, bundle, output.listed(bundle, "cases", cases))
    return 2 if any(case.complaints for case in cases) else code
