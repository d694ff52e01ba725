"""`repro evaluate`: solutions on disk to verdicts. Also the one place that turns a solution into a job."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from repro import config
from repro.bundle.write import Bundle
from repro.errors import PrerequisiteError, UsageError
from repro.fixtures import store
from repro.problems import backward, catalogue, formats, shapes
from repro.problems.catalogue import Problem
from repro.problems.shapes import Given
from repro.records import row as record
from repro.records import wording
from repro.records.job import Job
from repro.records.verdict import Reason, Verdict
from repro.records.workload import Workload
from repro.runs import fixtures
from repro.runs.loop import ROWS_A_PROCESS, Run
from repro.runs.rows import Row
from repro.system import foreign
from repro.system.jsonio import Json

_ENTRIES = ("ModelNew", "kernel_function")
# How a gate times: beside eager alone, with an A/A control.
_GATED: Json = {"modes": ["eager"], "passes": ["control"], "reloads": True}
# Bound of one request to a session, seconds.
_REQUEST_S = 600.0
# File of a solution, and what names its problem.
_Chosen = tuple[Path, str]


@dataclass(frozen=True)
class Submission:
    """A solution on disk: display name, source text, entry point.

    withheld: why a bundle must not keep the text, or "". missing: whether it stands for a solution that does not exist.
    refused: why it is not judged, or "".
    """

    name: str
    source: bytes
    entry: str
    withheld: str = ""
    missing: bool = False
    refused: str = ""


def absent(name: str, why: str) -> Submission:
    """A stand-in for a solution that does not exist: a comment that says why. Its verdict is `error`, its reason
    `missing`."""
    return Submission(name, f"# {why}\n".encode(), _ENTRIES[0], missing=True)


def read(path: Path) -> Submission:
    """Reads a solution. A file that does not parse keeps the entry ModelNew: the worker reports the syntax error.

    Raises Unreadable.
    """
    source = foreign.read(foreign.named(path), foreign.MOST_SOURCE)
    return Submission(path.stem, source, entry_of(source))


def entry_of(source: bytes, otherwise: str = _ENTRIES[0]) -> str:
    """ModelNew, or kernel_function where the file defines that alone; `otherwise` where it defines neither."""
    try:
        tree = foreign.tree(source)
    except SyntaxError:
        return otherwise
    names = set(_defined(tree))
    return next((entry for entry in _ENTRIES if entry in names), otherwise)


def _defined(tree: ast.Module) -> Iterator[str]:
    """Names that importing the file gives it: of definitions, assignments and imports outside functions and classes,
    except placeholders like `ModelNew = None`; and those that a function declares global."""
    yield from (name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names)
    pending: list[ast.AST] = [tree]
    while pending:
        match node := pending.pop():
            case ast.ClassDef(name) | ast.FunctionDef(name) | ast.Name(name, ast.Store()):
                yield name
            case ast.alias(name, alias):
                yield alias or name
            case ast.AsyncFunctionDef() | ast.Lambda() | ast.comprehension():
                pass
            case ast.Assign(_, ast.Constant()) | ast.AnnAssign(value=ast.Constant() | None):
                pass
            case ast.If(ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")]), _, otherwise):
                pending += otherwise
            case _:
                pending += ast.iter_child_nodes(node)


def job(
    run: Run,
    row: str,
    problem: Problem,
    submissions: list[Submission],
    *,
    known_as: str = "",
    overrides: Json | None = None,
) -> Job:
    """The job that judges submissions of one problem.

    A shipped problem needs its fixture on disk. That of any other file is measured in the job, unless it is on disk. It
    is measured there too if the sizes are others. known_as: the shipped id whose sizes another file shares. overrides:
    constants of the problem file that `--shapes` gave.
    Raises PrerequisiteError where the fixture is missing, stale or refused.
    """
    files = {f"solution_{i}.py": s.source for i, s in enumerate(submissions)}
    shipped = ships(problem)
    fixture = ""
    source = store.path(run.results, problem, run.engine.device)
    if not overrides and (shipped or store.known(source, problem)):
        store.load(source, problem)
        fixture = "fixture.json"
        files[fixture] = source.read_bytes()
    if not shipped:
        files["problem.py"] = problem.source
    return Job(
        id=row,
        verb="evaluate",
        problem=problem.id if shipped else "problem.py",
        called=problem.id,
        overrides=overrides or {},
        size=problem.size,
        dtype=problem.dtype,
        device=run.engine.device,
        variant=known_as,
        solutions=tuple((s.name, f"solution_{i}.py", s.entry) for i, s in enumerate(submissions)),
        fixture=fixture,
        options=run.options.on(run.engine.device),
        files=files,
        timeout_s=run.options.job_timeout_s(len(submissions)),
    )


def session_job(run: Run, problem: Problem) -> Job:
    """Return the job of a session. Raises PrerequisiteError if the fixture is missing or refused."""
    made = job(run, "session", problem, [])
    return replace(made, verb="session", timeout_s=_REQUEST_S, options=made.options.but(passes=[]))


def ships(problem: Problem) -> bool:
    """Whether a problem is one of ours, so that its fixture is kept."""
    return problem.path.is_relative_to(config.PROBLEMS_DIR)


def row_for(plan: record.Planned, build: Callable[[], Job], withheld: str = "") -> Row:
    """A planned row; where its job cannot be made the row fails with that reason and the others go on."""
    try:
        return Row(plan, build(), withheld=withheld)
    except (PrerequisiteError, UsageError) as error:
        return Row(plan, None, error=str(error))


def find(paths: list[Path], only: list[str]) -> list[_Chosen]:
    """The solutions of files and folders; the problem comes from `only` or from the file's name."""
    solutions = [pair for path in paths for pair in (_in_folder if path.is_dir() else _of_file)(path, only)]
    if not solutions:
        wanted = only[0] if only else "L1_36"
        remedy = f"Begin its name with the problem's id, as {wanted}_mine.py, or name the file and --problem ID."
        why = f"no file in {', '.join(map(str, paths))} is named after {wanted if only else 'a problem'}"
        raise UsageError("nothing to evaluate", why, remedy)
    return solutions


def _named_after(file: Path) -> str | None:
    return catalogue.id_in(file.name) or catalogue.id_in(file.name, catalogue.fetched())


def _in_folder(folder: Path, only: list[str]) -> list[_Chosen]:
    """Return the files that are named after a problem, of `only` if that names some, else solutions as JSON."""
    files = sorted(folder.glob("*.py"))
    if not files:
        return [pair for file in formats.solutions(folder) for pair in _of_file(file, only)]
    named = [(file, spec) for file in files if (spec := _named_after(file)) is not None]
    return [(file, spec) for file, spec in named if not only or spec in only]


def _of_file(file: Path, only: list[str]) -> list[_Chosen]:
    if not file.exists():
        raise UsageError(f"no such file or folder: {file}")
    if file.suffix == ".ipynb":
        raise UsageError(f"{file} is a notebook", "a solution is a Python file", "Save its code as one.")
    if file.suffix == ".json":
        only = only or [str(formats.definition_of(file))]
    specs = only or list(filter(None, [_named_after(file)]))
    if not specs:
        raise UsageError(f"no problem is named for {file.name}", "its name begins with no problem id",
                         "Add --problem ID or --problem PATH.")  # fmt: skip
    return [(file, spec) for spec in specs]


def summary(row: record.Row) -> str:
    """One line for a judged row, with the sizes at which it was judged where they are not the published ones."""
    result = row.judged
    assert result is not None, "only finished rows have a line"
    text = "; ".join(map(line, result.results))
    return f"{text} [{result.sizes.stamp}]" if result.sizes and result.sizes.overrides else text


def line(entry: Verdict) -> str:
    """One line for one verdict: class, time and speedups, or the first reason."""
    text = wording.sentence(entry)
    if entry.verdict == "correct":
        text += f" ({entry.precision_class}, relative L2 error {entry.rel_l2:.1e})"
        if entry.time_ms and entry.measurement:
            text += f", {entry.time_ms.median:.4g} ms"
            text += "".join(f", {v.ratio:.2f}x {k}" for k, v in entry.speedup.items() if k != "best_same_class")
    return text


def results_of(rows: Iterable[record.Row]) -> list[Verdict]:
    """The flat list of verdicts; a row that did not run gives an `error` entry with its reason."""
    flat = []
    for row in rows:
        if row.judged is not None:
            more: dict[str, Any] = {"sizes": row.judged.sizes.stamp} if row.judged.sizes else {}
            more |= {"workload": row.workload} if row.workload else {}
            for entry in row.judged.results:
                flat.append(entry.model_copy(update={"solution": row.file or entry.solution} | more))
        else:
            reasons, name = [Reason(code=row.status, detail=row.error)], row.file or row.row
            flat.append(Verdict(problem=row.problem, solution=name, verdict="error", reasons=reasons,
                                workload=row.at))  # fmt: skip
    return flat


def identities(run: Run, suite: str, only: list[str], dtype: str) -> tuple[Bundle, list[Verdict]]:
    """Judges every problem of a suite by its own Model: each must be correct, unjudgeable, or named with its reason.

    Problems follow each other in few process trees, which import torch once. dtype: float32 is the suite's own.
    """
    rows, problems = [], catalogue.suite(suite, size=run.size, only=only)
    if dtype != "float32":
        problems = [replace(problem, dtype=dtype) for problem in problems]
    if "backward" in run.options.checks:
        problems = [backward.problem(problem) for problem in problems]
    fixtures.ensure(run, problems)
    for problem in problems:
        row = f"{problem.key}/_identity"
        own = Submission("identity", re.sub(rb"\bModel\b", b"ModelNew", problem.source), _ENTRIES[0])
        build = partial(job, run, row, problem, [own])
        planned = row_for(record.Planned(row=row, problem=problem.key, file="identity"), build)
        timed = run.options.timing or run.options.kernelbench
        rows.append(replace(planned, job=planned.job and replace(planned.job, shares=not timed)))
    bundle = run.open("evaluate", rows, run.parameters(suite=suite))
    return bundle, results_of(run.execute(rows, bundle, summary, together=ROWS_A_PROCESS))


def evaluate(
    run: Run,
    paths: list[Path],
    only: list[str],
    dtype: str = "float32",
    given: Sequence[Given] = (),
    against: Path | None = None,
) -> tuple[Bundle, list[record.Row]]:
    """Judges every solution in a job of its own; returns the bundle and its rows.

    given: what `--shapes` asks for; each shape is a row, and those of a solution follow each other in one process tree.
    against: an old solution, or a folder of them. All solutions of a problem are then judged in one job, the old one
    first, and timed in turns beside eager alone. Raises UsageError where a problem has no such shape.
    """
    if against is not None and run.options.trust == "dev":
        raise UsageError("--against needs --trust audited", "solutions of one process change each other's verdicts")
    gradients = "backward" in run.options.checks
    resolved = [(file, catalogue.resolve(spec, size=run.size, dtype=dtype)) for file, spec in find(paths, only)]
    found = [_found(file, backward.problem(it) if gradients else it, gradients) for file, it in resolved]
    problems = {each.problem.key: each.problem for each in found}
    at = {key: shapes.workloads(given, problem) for key, problem in problems.items()}
    old = [_found(file, problem, gradients) for problem in problems.values() if against is not None
           for file, _ in find([against], [problem.id])[:1]]  # fmt: skip
    fixtures.ensure(run, (each.problem for each in found if not all(shape.constants for shape in at[each.problem.key])))
    more: dict[str, Any] = {"shapes": list(given)} if given else {}
    if against is not None:
        run, more = replace(run, options=run.options.but(**_GATED)), more | {"against": against.name}
    asked = [_beside(each, found) for each in old] or _alone(found)
    rows = [row for each in asked for row in _rows(run, each, at[each.problem.key])]
    bundle = run.open("evaluate", rows, run.parameters(**more))
    return bundle, run.execute(rows, bundle, summary)


class _Found(NamedTuple):
    """A solution, its file, and the problem that it is for."""

    submission: Submission
    file: Path
    problem: Problem


def _found(file: Path, problem: Problem, gradients: bool) -> _Found:
    """Return a solution, which may be one of a definition."""
    defined = file.suffix == ".json"
    submission = Submission(file.stem, b"", _ENTRIES[0]) if defined else read(file)
    try:
        if defined:
            submission = Submission(*formats.program(file, problem.path), _ENTRIES[0])
        if gradients:
            submission = replace(submission, source=backward.solution(submission.source, submission.entry))
    except UsageError as error:
        submission = replace(submission, refused=str(error))
    return _Found(submission, file, problem)


class _Asked(NamedTuple):
    """A row of which the shape is open."""

    plan: record.Planned
    problem: Problem
    submissions: list[Submission]


def _rows(run: Run, asked: _Asked, workloads: list[Workload]) -> Iterator[Row]:
    """Yield a row for each shape. Held-out ones are not timed."""
    for each in workloads:
        plan, how = asked.plan, replace(run, options=run.options.but(timing=run.options.timing and not each.held_out))
        if each != Workload():
            plan = plan.model_copy(update={"row": f"{plan.row} at {each.name}", "workload": each})
        build = partial(_job, how, plan.row, asked, each)
        yield replace(row_for(plan, build), group=asked.plan.row)


def _job(run: Run, row: str, asked: _Asked, workload: Workload) -> Job:
    """Return the job of a row. Raises UsageError where a solution or a workload of a definition cannot be judged."""
    if refused := [each.refused for each in asked.submissions if each.refused]:
        raise UsageError(refused[0])
    filled = partial(formats.filled, path=asked.problem.path, line=workload.line)
    submissions = [replace(each, source=filled(each.source)) for each in asked.submissions]
    return job(
        run, row, replace(asked.problem, text=filled(asked.problem.text)), submissions, overrides=workload.constants
    )


def _alone(found: list[_Found]) -> Iterator[_Asked]:
    """Yield a row for each solution."""
    for key in dict.fromkeys(each.problem.key for each in found):
        of = [each for each in found if each.problem.key == key]
        for name, (submission, file, problem) in zip(_names([each.file for each in of]), of, strict=True):
            plan = record.Planned(row=f"{key}/{name}", problem=key, file=file.name if name == file.stem else name)
            yield _Asked(plan, problem, [submission])


def _beside(old: _Found, found: list[_Found]) -> _Asked:
    """Return the row of a problem: the old solution, and all new ones."""
    every = [old, *(each for each in found if each.problem.key == old.problem.key)]
    names = _names([each.file for each in every])
    submissions = [replace(each.submission, name=name) for each, name in zip(every, names, strict=True)]
    plan = record.Planned(row=f"{old.problem.key}/against {old.file.stem}", problem=old.problem.key)
    return _Asked(plan, old.problem, submissions)


def _names(files: list[Path]) -> list[str]:
    """Return a name of its own for each file: its stem, with its folder if stems are alike, numbered if that is too."""
    names = [file.stem for file in files]
    if len({*names}) < len(names):
        names = [f"{file.resolve().parent.name}/{file.stem}" for file in files]
    return [f"{name}#{at + 1}" if name in names[:at] else name for at, name in enumerate(names)]
