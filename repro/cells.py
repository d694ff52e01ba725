"""A cell: one unit of work as JSON in, JSON out. It runs inside a container.

`repro cell FOLDER` reads FOLDER/cells.jsonl, runs the cells in order and appends a line for each to
FOLDER/outcomes.jsonl, so that finished work survives a later failure. Progress is printed as lines.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from repro import constants, fingerprint, jsonio, problems, settings
from repro.errors import PrerequisiteError, ReproError, UsageError
from repro.fingerprint.telemetry import Telemetry
from repro.judge import clock, launch, spare
from repro.judge.confine import PR_SET_PDEATHSIG, prctl
from repro.problems import Problem

CELLS, OUTCOMES = "cells.jsonl", "outcomes.jsonl"
# The line by which a cell process reports a new outcome.
ENDED = "\x1eended"
# Workers of this many further cells start while a cell is judged: their compilers take a second to start.
AHEAD = 2
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One unit of work.

    verb: fixture, evaluate, profile or fingerprint. problem: an id, or a file name in the cell's folder; called: the
    name of such a file in results. overrides: constants of the problem file set by `--set`. solutions: (name, file name
    in the folder, entry). files: file name -> content, placed in the folder by the engine. timeout_s: the engine kills
    the cell after it.
    """

    id: str
    verb: str
    problem: str = ""
    called: str = ""
    overrides: dict[str, Any] = field(default_factory=dict)
    size: str = "full"
    dtype: str = "float32"
    device: str = "cuda"
    variant: str = ""
    repeat: int = 0
    solutions: tuple[tuple[str, str, str], ...] = ()
    fixture: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    timeout_s: float = 900.0

    def to_json(self) -> dict[str, Any]:
        """Return the cell without its files' contents."""
        plain = {k: v for k, v in asdict(self).items() if k != "files"}
        return plain | {"files": sorted(self.files)}

    def apart(self, prefix: str) -> Cell:
        """Return the same cell with file names that no other cell of the folder uses."""

        def named(file: str) -> str:
            return f"{prefix}{file}" if file in self.files else file

        return replace(
            self,
            problem=named(self.problem),
            fixture=named(self.fixture),
            solutions=tuple((name, named(file), entry) for name, file, entry in self.solutions),
            files={named(file): content for file, content in self.files.items()},
        )

    @staticmethod
    def from_json(data: dict[str, Any]) -> Cell:
        """Return a cell as `to_json` wrote it, without files."""
        known = {k: v for k, v in data.items() if k != "files"}
        known["solutions"] = tuple(tuple(s) for s in known["solutions"])
        return Cell(**known)


@dataclass
class Outcome:
    """The outcome of a cell.

    status: done, failed (the tool or the problem), unmet (a prerequisite), lost (the engine) or interrupted.
    """

    cell: str
    status: str
    result: dict[str, Any] | None = None
    error: str = ""
    wall_s: float = 0.0
    fingerprint: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the form of a line of outcomes.jsonl."""
        return asdict(self)


def _problem(cell: Cell, folder: Path) -> Problem:
    if cell.problem.endswith(".py"):
        known = problems.id_in(cell.variant) if cell.variant else None
        loaded = problems.load_file(folder / cell.problem, dtype=cell.dtype, size=cell.size)
        return problems.as_known(loaded, known) if known else replace(loaded, id=cell.called or loaded.id)
    return problems.load(cell.problem, size=cell.size, dtype=cell.dtype)


def _settled(cell: Cell, folder: Path) -> tuple[Problem, bool]:
    """Return a cell's problem at the sizes at which it runs, and whether these are known for it. Raises ReproError."""
    from repro import sizes

    ours = not cell.problem.endswith(".py") or bool(cell.variant and problems.id_in(cell.variant))
    return sizes.settle(_problem(cell, folder), cell.overrides, known=ours), ours


def run(cell: Cell, folder: Path, progress: Progress, mark: Progress = lambda _: None) -> dict[str, Any]:
    """Run one cell in this process. mark: called with `warm` and `timed` before and after timing.

    Raises ReproError.
    """
    if cell.verb == "fingerprint":
        return {}
    import torch

    from repro import fixtures, sizes
    from repro.judge import calibrate, evaluate, parity, profile, subject

    if cell.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("no GPU is visible", "torch.cuda.is_available() is false", "Use --device cpu --size smoke.")
    if cell.device == "cpu":
        torch.set_num_threads(1)  # smoke shapes: more threads are 50 times slower on a busy machine
    solutions = [(name, (folder / file).resolve(), entry) for name, file, entry in cell.solutions]
    if cell.verb == "profile":
        dtypes = profile.DTYPES if cell.device == "cuda" else ()  # nothing runs on the CPU
        found = {dtype: _settled(replace(cell, dtype=dtype), folder)[0] for dtype in dtypes}
        return profile.measure(found, solutions, cell.device, progress)
    problem, ours = _settled(cell, folder)
    if not cell.fixture and not (ours and problem.size == "smoke" and not cell.overrides):  # small, or judged before
        sizes.require_memory(problem, cell.device)
    if cell.verb == "fixture":
        return calibrate.build(problem, torch.device(cell.device), progress)
    if cell.verb == "evaluate":
        if cell.fixture:
            fixture = fixtures.load(folder / cell.fixture, problem)
        else:
            fixture = calibrate.build(problem, torch.device(cell.device), progress)
            if fixture["refused"]:
                raise PrerequisiteError(f"the fixture of {problem.key} is refused", fixture["refused"])
        options = subject.Options(device=cell.device, **{k: _tuple(v) for k, v in cell.options.items()})
        result = evaluate.evaluate(problem, fixture, solutions, options, progress, mark)
        result["sizes"] = {"stamp": constants.stamp(problem.size, problem.overrides), "overrides": problem.overrides}
        if options.parity:
            verdicts = {entry["solution"]: entry["verdict"] for entry in result["results"]}
            result["parity"] = parity.measure(problem, solutions, verdicts, cell.device, progress)
        return result
    raise UsageError(f"no cell verb {cell.verb!r}")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _workers(cells: list[Cell]) -> Counter[str]:
    """Return the workers to start before the first of some cells is judged: its own and, if possible, later cells'.

    If every worker has a user of its own, and so cannot disturb the judging, the next AHEAD cells' workers start too.
    Workers that compile have process pools, so those of only one later cell start. All of them are stopped during
    timing.
    """
    counts: Counter[str] = Counter()
    pools = 0
    for cell in cells[: 1 + AHEAD if launch.apart() else 1]:
        if cell.verb == "evaluate" and cell.device == cells[0].device:
            more = spare.wanted(cell.device, cell.dtype, len(cell.solutions), cell.options)
            pools += spare.COMPILES in more
            if pools > 2:
                del more[spare.COMPILES]
            counts += more
    return counts


def _start_torch(device: str) -> None:
    """Start what all judging needs: torch, Triton, and on a GPU a context."""
    for name in ("torch", "triton"):
        with contextlib.suppress(ImportError):  # the fingerprint lists missing packages
            importlib.import_module(name)
    if device == "cuda":
        with contextlib.suppress(RuntimeError, AssertionError):  # reported where it is needed
            sys.modules["torch"].cuda.init()


def serve(folder: Path) -> None:
    """Run the cells of a folder; a failed cell does not stop the next one."""
    # Without the process that started this one, its lease of the GPU is gone and its outcomes would not be read.
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # SIGCHLD may be inherited as ignored, and then exit codes of children are lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    launch.divide()  # returns in the judge; only the judge may be able to read the folder
    settings.own_caches(folder)
    start_s = clock.age_s(os.getppid())  # the parent is the launcher, the process that was started

    def progress(line: str) -> None:
        print(line, flush=True)

    cells = [Cell.from_json(json.loads(line)) for line in (folder / CELLS).read_text().splitlines()]
    taken: dict[str, dict[str, Any]] = {}
    for at, cell in enumerate(cells):
        watch = clock.Clock()
        outcome = Outcome(cell.id, "failed")
        observed = Telemetry(cell.device)
        watch.lap("telemetry")
        try:
            judges = cell.verb == "evaluate" and cell.options.get("trust", "audited") == "audited"
            if judges:  # the nursery imports torch at the same time as this process
                launch.current().nurse(cell.device)
                if spare.COMPILES in _workers(cells[at + 1 :]):  # too late for this cell, but not for the next
                    launch.current().nurse(cell.device, compiles=True)
            elif cell.device == "cpu" and cell.options.get("trust") == "dev":  # workers get this by their environment
                settings.interpret()
            if cell.device not in taken:
                begun = fingerprint.begin(cell.device)
                if cell.verb != "fingerprint":  # so that the fingerprint's time does not include these imports
                    _start_torch(cell.device)
                    watch.lap("torch")
                taken[cell.device] = fingerprint.collect(cell.device, begun)
                if launch.apart():  # after the fingerprint, which describes new, empty folders for every cell
                    settings.keep_compiled()
            outcome.fingerprint = taken[cell.device]
            watch.lap("fingerprint")
            if judges:
                spare.prepare(_workers(cells[at:]), cell.device)
                watch.lap("workers begun")
            outcome.result = run(cell, folder, progress, observed.mark)
            outcome.status = "done"
        except ReproError as error:
            outcome.status = "unmet" if isinstance(error, PrerequisiteError | UsageError) else "failed"
            outcome.error = str(error)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            outcome.error = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            traceback.print_exc()
        watch.lap("cell")
        if at + 1 == len(cells) or not launch.apart():
            spare.close()
        watch.lap("workers ended")
        if cell.device == "cuda" and "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()  # cached by the judge's allocator; the next cell needs it
        seen = observed.end()
        watch.lap("telemetry")
        if outcome.result is not None:
            outcome.result = {**outcome.result, **seen, "cell_spent_s": {"start": start_s} | watch.laps}
        outcome.wall_s = watch.total()
        start_s = 0.0
        jsonio.append(folder / OUTCOMES, outcome.to_json())
        print(ENDED, flush=True)
