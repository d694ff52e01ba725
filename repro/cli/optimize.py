"""`repro optimize`: search a faster kernel from one that is correct."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from repro import config
from repro.cli import arguments, output
from repro.engines import require_alike
from repro.errors import UsageError
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.records import wording
from repro.runs.progress import Progress
from repro.system import importing
from repro.system.digest import sha256
from repro.system.jsonio import Json
from repro.system.screen import Column, Screen, shortest

if TYPE_CHECKING:
    from repro.optimize.proposers.base import Proposer
    from repro.optimize.runner import Finished
    from repro.optimize.state import Program

TEXT = "search a faster kernel: rewrite, judge, time, keep what is faster"
_PROPOSERS = ("search", "inbox", "model")
# The id of the program that the search starts from.
_INPUT = "input"
_NONE = "no faster kernel was found"
# Baselines that a search's best is held against in its last line: the first that was timed.
_TORCH = {"compile": "torch.compile", "eager": "eager"}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("problem", nargs="?", metavar="PROBLEM", help="a shipped id (L1_36) or a KernelBench file")
    parser.add_argument(
        "--from", dest="kernel", type=Path, metavar="KERNEL",
        help="the kernel to start from (default: the input kernel that ships for the problem)",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default=None,
        help="dtype of model and inputs (default: bfloat16 for a kernel_function, float32 for a ModelNew)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=8, help="most rounds")
    parser.add_argument("--minutes", type=float, default=10.0, help="start no round after this many minutes")
    parser.add_argument(
        "--proposer",
        default="search",
        metavar="P,P",
        help="where candidates come from: search, model, or inbox=DIR, a folder in which they appear",
    )
    model = parser.add_argument_group("with a model: --proposer model")
    model.add_argument("--model", default="", help="the model, or PROVIDER/MODEL for any provider of Inspect "
                       f"(default: {config.API_MODEL}, on Bedrock its own)")  # fmt: skip
    model.add_argument(
        "--upstream", default="anthropic", metavar="U", help="anthropic, bedrock, or replay:PATH, a script of replies"
    )
    arguments.budget_option(parser, {"usd": ("most money of a model, by the price table", float)})
    parser.add_argument("--seed", type=int, default=0, help="seed of the search")
    parser.add_argument("--replay", type=Path, metavar="RUN",
                        help="repeat the decisions of a run's folder or archive, without judging anything")  # fmt: skip
    parser.add_argument("--trust", choices=("audited", "dev"), default="audited", help="as in `repro evaluate`")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write the tree of candidates: .html is a page, .svg its figure",
    )
    arguments.json_option(parser, "write every program with its verdict")
    arguments.measuring(parser)


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Exit 0 whether or not a faster kernel was found, 1 where the kernel to start from is not correct."""
    from repro.optimize import runner
    from repro.records.search import Options

    _outputs(args)
    if args.replay is not None:
        with runner.unpacked(args.replay) as run:
            return _replay(args, run, progress)
    if args.problem is None:
        raise UsageError("no problem", "", "Name a shipped id or a KernelBench file, or --replay DIR.")
    if args.rounds < 1 or not args.minutes > 0:
        raise UsageError("--rounds must be at least 1, and --minutes positive")
    names, inbox = _proposers(args)
    model = _model(args) if "model" in names else ""
    kernel = runner.read_kernel(args.kernel or runner.shipped_kernel(args.problem))
    dtype = args.dtype or ("bfloat16" if kernel.entry == "kernel_function" else "float32")
    engine, size = arguments.engine_and_size(args, progress, timed=False)
    require_alike(engine, ": a search compares all times with each other.")
    problem = catalogue.resolve(args.problem, size=size, dtype=dtype)
    if args.dtype not in (None, problem.dtype):
        raise UsageError(f"{args.problem} is {problem.dtype}, --dtype says {args.dtype}", "", "Leave out one of them.")
    options = Options(
        problem.key if not args.problem.endswith(".py") else args.problem, size, problem.dtype, engine.device,
        sha256(kernel.source.decode()), names, rounds=args.rounds, screen=runner.SCREEN[engine.device],
        minutes=args.minutes, seed=args.seed, model=model, usd=dict(args.budget).get("usd"),
    )  # fmt: skip
    with progress.live(counted=False):
        finished = runner.optimize(
            problem, kernel, options,
            lambda folder: [_proposer(name, inbox, args, problem, model, folder) for name in names],
            args.results, engine, progress, resume=args.resume, trust=args.trust,
        )  # fmt: skip
    return _conclude(finished, args)


def _replay(args: argparse.Namespace, run: Path, progress: Progress) -> int:
    """Repeat a recorded run's decisions."""
    from repro.optimize import journal, runner
    from repro.optimize.proposers.replay import Recorded

    options, kernel = runner.recorded(run)
    problem = catalogue.resolve(args.problem or options.problem, size=options.size, dtype=options.dtype)
    recorded_id = Path(options.problem).stem.partition("@")[0]
    if problem.id != recorded_id:
        raise UsageError(f"{args.replay} is a search of {recorded_id}, not of {problem.id}")

    progress.say(f"replaying {args.replay}: its answers and times are used, and nothing is judged or timed here")
    finished = runner.optimize(
        problem, kernel, options, lambda _: [Recorded(name) for name in options.proposers],
        args.results, None, progress, replay=run,
    )  # fmt: skip
    old, new = ((folder / journal.FILE).read_bytes() for folder in (run, finished.folder))
    lines = new.count(b"\n")
    progress.say(f"replayed: {lines} lines of the journal, " + ("the same byte for byte" if old == new else "in part"))
    return _conclude(finished, args)


def _outputs(args: argparse.Namespace) -> None:
    """Raises UsageError for a file or folder that could not be used at the end of a search."""
    for file in (args.json, args.output):
        if file is not None and file != Path("-"):
            folder = next(each for each in file.absolute().parents if each.exists())
            if file.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
                raise UsageError(f"cannot write {file}", "it is a folder" if file.is_dir() else f"not below {folder}")
    if args.output is not None and args.output.suffix not in (".html", ".svg"):
        raise UsageError(f"--output {args.output}", "it is neither .html nor .svg")


def _proposers(args: argparse.Namespace) -> tuple[tuple[str, ...], Path]:
    """Return the names of the proposers, and the folder of `inbox`. Raises UsageError."""
    folders = {}
    for word in args.proposer.split(","):
        name, _, folder = word.partition("=")
        if name not in _PROPOSERS:
            raise UsageError(f"no proposer {name!r}", f"there are {', '.join(_PROPOSERS)}")
        if bool(folder) != (name == "inbox"):
            raise UsageError(f"--proposer {word}", "inbox names a folder, and no other does", "Write inbox=DIR.")
        if folder and not Path(folder).is_dir():
            raise UsageError(f"no such folder: {folder}", "inbox=DIR names the folder in which candidates appear")
        folders[name] = Path(folder)
    return tuple(folders), folders.get("inbox", Path())


def _model(args: argparse.Namespace) -> str:
    """Return the model's name. Raises UsageError, PrerequisiteError if its key is missing."""
    from repro.studies.agent.options import key_of, require_keys, upstream

    remedy = "Run `pip install '.[agents]'` in a checkout, or choose --proposer search."
    importing.require("inspect_ai", "a model is asked through Inspect", remedy)
    kind, _ = upstream(args)
    require_keys(key_of(kind, args.model), "Set it, or choose --proposer search, which needs no key.")
    return str(args.model) or config.model(bedrock=kind == "bedrock")


def _proposer(name: str, inbox: Path, args: argparse.Namespace, problem: Problem, model: str, folder: Path) -> Proposer:
    from repro.optimize.proposers.inbox import Inbox
    from repro.optimize.proposers.search import Search

    if name == "model":
        from repro.optimize.calls import Calls
        from repro.optimize.proposers.model import Model
        from repro.studies.agent.options import upstream

        return Model(problem, Calls(folder, model, *upstream(args), dict(args.budget).get("usd")))
    return Inbox(inbox) if name == "inbox" else Search()


def _conclude(finished: Finished, args: argparse.Namespace) -> int:
    """Print the accepted programs, the confirmation and the last line; write --json."""
    screen = Screen.of(args)
    _programs(finished, screen)
    output.write_json(args.json, _facts(finished))
    if args.output is not None:
        from repro.report import search

        output.write_text(args.output, search.drawn(finished, args.output.suffix))
    if changes := _changes(finished):
        screen.line(f"changed: {changes}")
    screen.last(_ending(finished), finished.stopped, shortest(finished.exported or finished.folder))
    return 0 if finished.state.winner.correct else 1


def _programs(finished: Finished, screen: Screen) -> None:
    """Print the programs that gained something, how many had each verdict, and the confirmation."""
    from repro.optimize.state import STAMP
    from repro.report.elements import count

    state, stamp = finished.state, "" if finished.measured else STAMP
    shown = [program for program in state.programs.values() if program.accepted or program.id == _INPUT]
    winner = state.best if finished.measured else _INPUT
    rows = [_row(program, winner) for program in shown]
    columns = (Column("program", whole=True), Column("of", whole=True), Column("strategy"), Column("ms", whole=True),
               Column(f"gain{stamp}", whole=True), Column("why", 1))  # fmt: skip
    screen.table(columns, rows)
    if len(rows) > 1:
        screen.line("gain: from samples in turns with the input kernel, so not quite the quotient of two ms. Programs "
                    "that gained nothing over their parent are left out.", "dim")  # fmt: skip
    verdicts = wording.counts(Counter(program.verdict for program in state.programs.values()))
    screen.line(f"{count(len(state.programs), 'program')}: {verdicts}")
    if finished.baselines_ms:
        screen.line("baselines: " + ", ".join(f"{n} {ms:.4g} ms" for n, ms in finished.baselines_ms.items()) + stamp)
    if (confirmed := finished.confirmed) is not None:
        verdict = confirmed.best.verdict if confirmed.best else confirmed.error
        ratio = f", {confirmed.ratio:.2f}x the input" if confirmed.ratio and finished.measured else ""
        screen.line(f"confirmed in fresh processes: {verdict}{ratio}")


def _row(program: Program, winner: str) -> list[str]:
    gain = f"{program.ratio:.2f}x" if program.gain and program.id != _INPUT else ""
    name = program.id + (" ◀ best" if program.accepted and program.id == winner else "")
    time_ms = f"{program.time_ms:.4g}" if program.time_ms else ""
    return [name, program.parent or "", program.strategy, time_ms, gain, program.why]


def _facts(finished: Finished) -> Json:
    """Return what `--json` writes."""
    state = finished.state
    confirmed = finished.confirmed.to_json() if finished.confirmed else None
    return {
        "schema_version": 1, "folder": str(finished.folder), "stopped": finished.stopped, "best": state.best,
        "measurement": finished.measured, "options": vars(state.options), "confirmed": confirmed,
        "programs": [program.facts() for program in state.programs.values()],
        "diagnoses": {name: asdict(diagnosis) for name, diagnosis in state.diagnoses.items()},
    }  # fmt: skip


def _ending(finished: Finished) -> str:
    """Return what the search came to, in words."""
    from repro.optimize.loop import EXHAUSTED, OUT_OF_TIME
    from repro.optimize.state import NO_WINNER

    best = finished.state.winner
    if not best.correct:
        return "nothing was searched"
    if len(finished.state.programs) == 1:
        if finished.stopped.startswith(OUT_OF_TIME):
            return "no candidate was tried: raise --minutes"
        if finished.stopped == EXHAUSTED:
            return "no candidate was tried: no rewrite fits the input kernel"
    if not finished.measured:
        return NO_WINNER
    return ", ".join([f"{best.ratio:.2f}x the input kernel", *_over_torch(finished)]) if best.accepted else _NONE


def _over_torch(finished: Finished) -> list[str]:
    """Return the best program's speedup over torch.compile, or over eager, as its confirmation measured it."""
    best = finished.confirmed.best if finished.confirmed else None
    found = (best and best.speedup_all) or {}
    return [f"{found[name].ratio:.2f}x {label}" for name, label in _TORCH.items() if name in found][:1]


def _changes(finished: Finished) -> str:
    """Return which numbers of the input kernel the best program changed, and where the whole difference lies."""
    from repro.optimize import knobs, runner

    state = finished.state
    if not finished.measured or not state.winner.accepted:
        return ""
    numbers = knobs.turned(*map(state.source, (_INPUT, state.best)))
    return ", ".join([*numbers, f"the whole difference is {shortest(finished.folder / runner.DIFFERENCE)}"])
