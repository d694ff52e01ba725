"""Arguments that several verbs share: where jobs run, what is measured, and the judge's options."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, get_args

from pydantic import ValidationError

from repro import config
from repro.engines import choose, named, names, require_alike
from repro.engines.base import Engine
from repro.errors import UsageError
from repro.records.options import Options
from repro.runs.loop import Run
from repro.runs.progress import Progress

# Name of a budget -> the field of Options that it sets. Its help is the field's description, its default the field's.
_BUDGETS = {"timing_s": "timing_budget_s", "timeout_s": "timeout_s"}


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that ends with the default of every argument that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        shown = action.default is not argparse.SUPPRESS and (action.default or action.default == 0)
        if text and shown and action.default is not False and "default" not in text:
            return text + " (default: %(default)s)"
        return text


class Parser(argparse.ArgumentParser):
    """A parser that reports wrong use in one line, as every other error of the tool."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, "", f"See `{self.prog} --help`.")


def json_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --json."""
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"{what} as JSON")


def results_option(parser: argparse.ArgumentParser, what: str = "bundles and fixtures") -> None:
    """Add --results."""
    parser.add_argument("--results", type=Path, default=config.results_dir(), help=f"folder of {what}")


def place(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose an engine and its device."""
    parser.add_argument(
        "--engine", type=named, default="auto", metavar="E",
        help=f"where jobs run: {', '.join(names())}; auto: docker where an engine answers, else local; ray:HOST:PORT "
        "names a cluster, ray:local one of this machine alone (default: auto)",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", default="all",
        help="all, none, or indices or UUIDs separated by commas; with --engine ray: all, none or part of a GPU's name",
    )  # fmt: skip
    parser.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto: a GPU where there is one, else the CPU"
    )


def budget_option(parser: argparse.ArgumentParser, known: Mapping[str, tuple[str, type]]) -> None:
    """Add --budget, whose value is a list of (name, number). known: name -> (its help, the type of its number)."""

    def bound(text: str) -> tuple[str, float]:
        name, _, number = text.partition("=")
        if name not in known:
            raise UsageError(f"no budget {name!r}", f"there are {', '.join(known)}", "Give --budget NAME=NUMBER.")
        try:
            value: float = known[name][1](number)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise UsageError(f"--budget {text} is not a limit", "it must be a positive number, or 0 for no limit")
        return name, value

    meanings = "; ".join(f"{name}: {meaning}" for name, (meaning, _) in known.items())
    parser.add_argument("--budget", type=bound, action="append", default=[], metavar="NAME=N",
                        help=f"a bound (repeatable). {meanings}")  # fmt: skip


def measuring(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a verb that measures."""
    place(parser)
    parser.add_argument(
        "--size", choices=("auto", "full", "smoke"), default="auto",
        help="full: the published shapes; smoke: small ones; auto: full on a GPU, else smoke",
    )  # fmt: skip
    results_option(parser)
    parser.add_argument("--resume", action="store_true", help="continue the newest unfinished bundle of the same plan")


def measuring_problems(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a verb that measures all problems or those of --problem."""
    measuring(parser)
    what = "only this problem, in `evaluate` also a KernelBench file (repeatable)"
    parser.add_argument("--problem", action="append", default=[], metavar="ID", help=what)


def judging(
    parser: argparse.ArgumentParser, *, usual: Options | None = None, parity: bool = False,
    budgets: Mapping[str, tuple[str, type]] | None = None,
) -> None:  # fmt: skip
    """Add the judge's options, as their record describes them.

    usual: their defaults. parity: whether the published protocol can be asked for. budgets: further ones, as
    `budget_option` takes them.
    """
    usual = usual or Options()
    known = {
        name: (f"{Options.model_fields[field].description} (default: {getattr(usual, field):g})", float)
        for name, field in _BUDGETS.items()
    }
    budget_option(parser, known | dict(budgets or {}))
    parser.set_defaults(**{name: getattr(usual, name) for name in ("compile_timeout_s", *_BUDGETS.values())})
    json_option(parser, "write the results")
    parser.add_argument("--strict", action="store_true", help="exit 3 where a solution is not correct")
    parser.add_argument(
        "--no-timing", dest="timing", action="store_false", default=True,
        help="only judge, do not time (default: times are taken)",
    )  # fmt: skip
    parser.add_argument(
        "--no-compile", dest="modes", action="store_const", const=("eager",), default=usual.modes,
        help="leave out the torch.compile baselines (default: they are timed)",
    )  # fmt: skip
    trust = Options.model_fields["trust"]
    parser.add_argument("--trust", choices=get_args(trust.annotation), default=usual.trust, help=trust.description)
    if parity:
        parser.add_argument("--parity", action="store_true", help=Options.model_fields["parity"].description)


def options(args: argparse.Namespace) -> Options:
    """Return the judge's options of a command line. Raises UsageError."""
    given = {name: value for name, value in vars(args).items() if name in Options.model_fields and name != "device"}
    given |= {field: bounds[name] for name, field in _BUDGETS.items() if name in (bounds := dict(args.budget))}
    try:
        return Options(**given)
    except ValidationError as error:
        wrong = error.errors()[0]
        flag = next(f"--budget {name}" for name, field in _BUDGETS.items() if field == wrong["loc"][0])
        raise UsageError(f"{flag} must be a positive number of seconds", f"it is {wrong['input']}") from error


def engine_of(args: argparse.Namespace, progress: Progress) -> Engine:
    """Return the engine. Raises PrerequisiteError."""
    return choose(args.engine, gpus=args.gpus, device=args.device, say=progress.say)


def run_of(args: argparse.Namespace, progress: Progress, judging: Options | None = None, *, timed: bool = True) -> Run:
    """Return what a command line says of a run. judging: how solutions are judged. timed: as in `engine_and_size`.

    Raises PrerequisiteError.
    """
    engine, size = engine_and_size(args, progress, timed=timed)
    return Run(engine, args.results, progress, judging or Options(), size, args.resume, getattr(args, "jobs", None))


def engine_and_size(args: argparse.Namespace, progress: Progress, *, timed: bool = True) -> tuple[Engine, str]:
    """Return the engine, and the size that its device implies. Raises PrerequisiteError.

    timed: whether the verb compares times, so that GPUs must be of one kind.
    """
    engine = engine_of(args, progress)
    if timed and getattr(args, "timing", True):
        neither = " --no-timing takes all." if "timing" in args else ""
        require_alike(engine, f".{neither}")
    size = engine.size(args.size)
    if engine.device == "cpu" and size == "full":
        progress.say("full shapes on the CPU: one problem may take hours; --size smoke takes small ones")
    elif engine.device == "cpu" and args.device == "auto":
        progress.say("no GPU: small shapes on the CPU in Triton's interpreter; correctness is real, times are not")
    return engine, size
