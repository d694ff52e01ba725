"""Arguments that several verbs share: where jobs run, what is measured, and the judge's options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NoReturn, get_args

from pydantic import ValidationError

from repro import config
from repro.engines import choose, names, require_alike
from repro.engines.base import Engine
from repro.errors import UsageError
from repro.records.options import Options
from repro.runs.loop import Run
from repro.runs.progress import Progress

# Field of Options -> the option that sets it. Its help is the field's description, its default the field's.
_FLAGS = {
    "trust": "--trust", "timeout_s": "--timeout-s", "compile_timeout_s": "--compile-timeout-s",
    "timing_budget_s": "--budget-s", "strict_nonfinite": "--strict-nonfinite", "parity": "--parity",
}  # fmt: skip


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


def problem_option(parser: argparse.ArgumentParser) -> None:
    """Add --problem."""
    parser.add_argument("--problem", action="append", default=[], metavar="ID", help="only this problem (repeatable)")


def place(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose an engine and its device."""
    parser.add_argument(
        "--engine", choices=names(), default="auto",
        help="where jobs run; auto: docker where an engine answers, else local",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", default="all",
        help="all, none, or indices or UUIDs separated by commas; with --engine ray: all, none or part of a GPU's name",
    )  # fmt: skip
    parser.add_argument(
        "--address", default="", metavar="A",
        help="with --engine ray: auto (the cluster of this machine), HOST:PORT, or local (default: auto)",
    )  # fmt: skip
    parser.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto: a GPU where there is one, else the CPU"
    )


def measuring(parser: argparse.ArgumentParser, *, timed: bool = True) -> None:
    """Add the arguments of a verb that measures. timed: it measures times."""
    place(parser)
    if timed:
        parser.add_argument(
            "--mixed", action="store_true", help="time on GPUs of different kinds too; tables are then grouped by kind"
        )
    parser.add_argument(
        "--size", choices=("auto", "full", "smoke"), default="auto",
        help="full: the published shapes; smoke: small ones; auto: full on a GPU, else smoke",
    )  # fmt: skip
    results_option(parser)
    parser.add_argument("--resume", action="store_true", help="continue the newest unfinished bundle of the same plan")


def judging(parser: argparse.ArgumentParser, *, usual: Options | None = None, parity: bool = False) -> None:
    """Add the judge's options, as their record describes them.

    usual: their defaults. parity: whether the published protocol can be asked for.
    """
    usual = usual or Options()
    json_option(parser, "write the results")
    parser.add_argument("--strict", action="store_true", help="exit 3 where a solution is not correct")
    parser.add_argument(
        "--no-timing", dest="timing", action="store_false", default=True, help="only judge, do not time"
    )
    parser.add_argument(
        "--no-compile", dest="modes", action="store_const", const=("eager",), default=usual.modes,
        help="leave out the torch.compile baselines (default: they are timed)",
    )  # fmt: skip
    for name, flag in _FLAGS.items():
        field = Options.model_fields[name]
        if field.annotation is bool and (parity or name != "parity"):
            parser.add_argument(flag, dest=name, action="store_true", help=field.description)
        elif field.annotation is float:
            parser.add_argument(flag, dest=name, type=float, default=getattr(usual, name), help=field.description)
        elif choices := get_args(field.annotation):
            parser.add_argument(flag, dest=name, choices=choices, default=getattr(usual, name), help=field.description)


def options(args: argparse.Namespace) -> Options:
    """Return the judge's options of a command line. Raises UsageError."""
    given = {name: value for name, value in vars(args).items() if name in Options.model_fields and name != "device"}
    try:
        return Options(**given)
    except ValidationError as error:
        wrong = error.errors()[0]
        flag = _FLAGS.get(str(wrong["loc"][0]), wrong["loc"][0])
        raise UsageError(f"{flag} must be a positive number of seconds", f"it is {wrong['input']}") from error


def engine_of(args: argparse.Namespace, progress: Progress) -> Engine:
    """Return the engine. Raises PrerequisiteError."""
    return choose(args.engine, gpus=args.gpus, device=args.device, say=progress.say, address=args.address)


def run_of(args: argparse.Namespace, progress: Progress, judging: Options | None = None) -> Run:
    """Return what a command line says of a run. judging: how solutions are judged. Raises PrerequisiteError."""
    engine, size = engine_and_size(args, progress)
    return Run(engine, args.results, progress, judging or Options(), size, args.resume, getattr(args, "jobs", None))


def engine_and_size(args: argparse.Namespace, progress: Progress) -> tuple[Engine, str]:
    """Return the engine, and the size that its device implies. Raises PrerequisiteError."""
    engine = engine_of(args, progress)
    if "mixed" in args and not args.mixed and getattr(args, "timing", True):
        neither = " --no-timing needs neither." if "timing" in args else ""
        require_alike(engine, f", or add --mixed: rows are then grouped by GPU.{neither}")
    size = args.size if args.size != "auto" else ("full" if engine.device == "cuda" else "smoke")
    if engine.device == "cpu" and size == "full":
        progress.say("full shapes on the CPU: one problem may take hours; --size smoke takes small ones")
    elif engine.device == "cpu" and args.device == "auto":
        progress.say("no GPU: small shapes on the CPU in Triton's interpreter; correctness is real, times are not")
    return engine, size
