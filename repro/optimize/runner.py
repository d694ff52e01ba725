"""`repro optimize` from the kernel's file to the exported folder: journal, judge, search, confirmation, export."""

from __future__ import annotations

import contextlib
import difflib
import io
import lzma
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from repro import config
from repro.artifacts import layout
from repro.bundle import storage
from repro.engines.base import Engine
from repro.errors import BundleError, Unreadable, UsageError
from repro.optimize import export, journal, judging
from repro.optimize.journal import Journal
from repro.optimize.loop import Search
from repro.optimize.proposers.base import Proposer
from repro.optimize.state import INPUT, State
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.records import search
from repro.records.options import Trust
from repro.records.search import Confirmation, Options, Start
from repro.runs.progress import Progress
from repro.studies import evaluation
from repro.studies.evaluation import Submission
from repro.system import foreign
from repro.system.digest import sha256

# Most bytes of a run's archive, and of what is in it.
_MOST_BYTES = 1 << 28
# Candidates screened a round by device: on the CPU each takes seconds in Triton's interpreter.
SCREEN = {"cuda": 40, "cpu": 6}
BEST, DIFFERENCE, ARCHIVE = "best.py", "best.diff", "search.tar.xz"


@dataclass
class Finished:
    """A run that ended. exported: the folder in the published layout, or None without a gain."""

    state: State
    folder: Path
    stopped: str
    measured: bool
    confirmed: Confirmation | None
    exported: Path | None
    baselines_ms: dict[str, float]


def optimize(
    problem: Problem,
    kernel: Submission,
    options: Options,
    make: Callable[[Path], list[Proposer]],
    results: Path,
    engine: Engine | None,
    progress: Progress,
    *,
    resume: bool = False,
    replay: Path | None = None,
    trust: Trust = "audited",
) -> Finished:
    """Search from a kernel, confirm the winner in fresh processes, and export the run.

    make: returns the proposers of a run's folder. engine: None for a replay, which asks for nothing. Raises ReproError.
    """
    record = _journal(problem, options, results, resume=resume, replay=replay)
    progress.say(f"journal: {record.folder}")
    storage.Folder(record.folder).hold(record)
    source = kernel.source.decode()
    proposers = make(record.folder)
    judge = None
    if engine is not None:
        rewritten = options.proposers == ("search",)
        judge = judging.EngineJudge(problem, results, engine, progress, trust=trust, rewritten=rewritten)

    def asked() -> judging.EngineJudge:
        if judge is None:
            raise BundleError("a replay asks for nothing", "the journal lacks an answer")
        return judge

    try:
        if judge is not None and not record.replays:
            judge.ensure_fixture()
        told = {"kernel": options.kernel}
        counters = record.effect("profiled", told, search.PROFILED, lambda: asked().profile(kernel))
        run = Search(
            options, source, kernel.entry, record, asked, proposers, progress, work=problem.work,
            counters=counters.totals if counters.state == "profiled" else None,
        )  # fmt: skip
        state = run.run()
    except BaseException:
        if engine is not None:  # sessions of further GPUs may be at work
            engine.close()
        raise
    finally:
        if judge is not None:
            judge.close()
    best = state.winner
    confirmed = None
    if best.id != INPUT:
        kernels = {"input": kernel, "best": _archived(record.folder, state, kernel)}
        progress.step("confirming the winner in fresh processes")
        confirmed = record.effect(
            "confirmed",
            {role: sha256(each.source.decode()) for role, each in kernels.items()},
            search.CONFIRMED,
            lambda: asked().confirm(kernels),
        )
    name = export_name(problem)
    exported = export.export(
        state, problem.path, name, record.folder, measured=run.measured, counters=counters,
        fingerprint=run.opened.fingerprint, confirmed=confirmed,
        journal_sha256=sha256((record.folder / journal.FILE).read_bytes()),
    )  # fmt: skip
    return Finished(state, record.folder, run.stopped, run.measured, confirmed, exported, run.baselines_ms)


def shipped_kernel(spec: str) -> Path:
    """Return the input kernel that ships for a problem. Raises UsageError if there is none."""
    bare = spec.partition("@")[0]
    for artifact in layout.find(config.ARTIFACTS_DIR):
        if artifact.known == bare:
            return artifact.path / layout.KERNELS["input_kernel"]
    catalogue.resolve(spec, size="smoke")  # raises where there is no such problem
    raise UsageError(f"no input kernel ships for {spec}", "", "Name one by --from KERNEL.")


def _archived(folder: Path, state: State, kernel: Submission) -> Submission:
    """Write the winner to its file and read it back: what is confirmed is what is kept. Its difference from the input
    kernel lies beside it."""
    file = folder / BEST
    file.write_text(state.source(state.best))
    old, new = (state.source(name).splitlines(keepends=True) for name in (INPUT, state.best))
    (folder / DIFFERENCE).write_text("".join(difflib.unified_diff(old, new, "input kernel", BEST)))
    return replace(kernel, name="best", source=file.read_bytes(), entry=state.winner.entry)


def export_name(problem: Problem) -> str:
    """Return the name of the exported folder: the shipped artifact's, else the problem's number and name."""
    shipped = (artifact.name for artifact in layout.find(config.ARTIFACTS_DIR) if artifact.known == problem.id)
    number = layout.number(re.sub(r"^L\d+_", "", problem.id)) or 0
    return next(shipped, f"{number:02d}_{re.sub(r'^[0-9_]+', '', problem.name) or 'problem'}")


def _journal(problem: Problem, options: Options, results: Path, *, resume: bool, replay: Path | None) -> Journal:
    if replay is not None:
        return Journal.replay(replay, storage.new_folder(results, f"replay-{problem.key}"))
    if not resume:
        return Journal.new(storage.new_folder(results, f"optimize-{problem.key}"))
    other = ""
    for folder in sorted(results.glob(f"*-optimize-{problem.key}*"), reverse=True):
        if (found := started(folder)) and found[0].kernel == options.kernel:
            if found[0] == options:
                if storage.Folder(folder).held():
                    raise UsageError(f"{folder} is still searched", "", "Wait for its end, or leave out --resume.")
                return Journal.resume(folder)
            now = vars(options)
            apart = [f"{name} {value}, now {now[name]}" for name, value in vars(found[0]).items() if value != now[name]]
            other = other or f"{folder.name} has other options: {'; '.join(apart)}"
    why = other or f"no run of {problem.key} from this kernel"
    raise UsageError(f"nothing to resume in {results}", why, "Repeat with its options." if other else "")


@contextlib.contextmanager
def unpacked(run: Path) -> Iterator[Path]:
    """Yield the folder of a recorded run: itself, or what its archive holds.

    run: may be an artifact's folder, with its archive. Raises BundleError, UsageError.
    """
    if not (run / journal.FILE).exists() and (run / ARCHIVE).is_file():
        run /= ARCHIVE
    if run.is_dir():
        yield run
        return
    if not run.exists():
        raise UsageError(f"no such file or folder: {run}")
    with tempfile.TemporaryDirectory(prefix="repro-journal-") as folder:
        try:
            with tarfile.open(fileobj=io.BytesIO(foreign.read(run, _MOST_BYTES))) as archive:
                archive.extractall(folder, _bounded(archive), filter="data")
        except (OSError, tarfile.TarError, lzma.LZMAError, EOFError, ValueError) as error:
            why = str(error).partition(":\n")[0]  # then what each format of an archive says
            raise BundleError(f"{run} holds no recorded run", why, "Name a run's folder or its .tar.xz.") from None
        found = Path(folder)
        if not (found / journal.FILE).is_file():
            raise BundleError(f"{run} holds no recorded run", f"{journal.FILE} is missing")
        yield found


def _bounded(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive. Raises ValueError where they are too large together."""
    left = _MOST_BYTES
    for member in archive:
        left -= member.size + tarfile.BLOCKSIZE
        if left < 0:
            raise ValueError(f"it holds more than {_MOST_BYTES:,} bytes")
        yield member


def started(folder: Path) -> tuple[Options, Start] | None:
    """Return what the first note of a run's journal says; None if there is no readable journal."""
    try:
        facts = next(line.facts for line in journal.read(folder) if line.kind == "start")
        return search.OPTIONS.validate_python(facts), Start.model_validate(facts)
    except (BundleError, ValidationError):
        return None


def recorded(folder: Path) -> tuple[Options, Submission]:
    """Return the options and the input kernel of a recorded run. Raises BundleError."""
    found = started(folder)
    if found is None:
        raise BundleError(f"no journal in {folder}", f"{journal.FILE} is missing or broken")
    options, start = found
    try:
        text = foreign.read(folder / journal.KERNELS / f"{options.kernel}.py", within=folder)
    except Unreadable:
        why = f"{journal.KERNELS}/{options.kernel}.py is missing"
        raise BundleError("the run lacks its input kernel", why) from None
    return options, Submission("input", text, start.entry)


def read_kernel(path: Path) -> Submission:
    """Return the kernel of a file, in UTF-8. Raises UsageError if it cannot be read or is not Python."""
    kernel = evaluation.read(path)
    try:
        foreign.tree(kernel.source, path.name)
        return replace(kernel, source=foreign.program(kernel.source).encode())
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not Python", str(error), f"`python {path}` shows the same error.") from None
