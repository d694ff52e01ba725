"""`repro fixtures`, and the fixtures that another verb lacks: measured through an engine, written below `results`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from repro.bundle.write import Bundle
from repro.errors import BundleError, reason_of
from repro.fixtures import store
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.records import row as record
from repro.records.fixture import FixtureRecord
from repro.records.job import Job
from repro.runs.loop import Run
from repro.runs.rows import Row
from repro.system import jsonio


def ensure(run: Run, wanted: Iterable[Problem], withheld: Callable[[Problem], str] = lambda _: "") -> None:
    """Measures missing and stale fixtures below a run's results, each size in few trusted processes.

    wanted: one problem for each job that needs it. The fixture of a file that is not shipped, and that one job alone
    needs, is left to that job, which saves a process. A fixture that cannot be measured stays missing: the job of a
    shipped problem then fails for that reason, and that of any other file tries again. withheld: why a bundle must not
    keep a problem's text, or "".
    """
    files = [(store.path(run.results, problem, run.engine.device), problem) for problem in wanted]
    jobs = Counter(file for file, _ in files)
    needed = {file: p for file, p in files if jobs[file] > 1 or catalogue.is_shipped(p)}
    lacking = {file: problem for file, problem in sorted(needed.items()) if not store.known(file, problem)}
    for size in sorted({problem.size for problem in lacking.values()}):
        measured = {file: problem for file, problem in lacking.items() if problem.size == size}
        names = ", ".join(file.stem for file in measured)
        run.progress.say(f"measuring the fixtures that are missing in {next(iter(measured)).parent}: {names}")
        measure(replace(run, size=size), list(measured.values()), withheld=withheld)


def chosen(only: list[str], size: str) -> list[Problem]:
    """Return the problems of all suites, or those of `only` (ids; `L1_36@bf16` names one dtype, `L1_36` all)."""
    everything = [p for suite in catalogue.suites() for p in catalogue.suite(suite, size=size)]
    if not only:
        return everything
    for spec in only:
        catalogue.load(spec, size=size)
    return [p for p in everything if p.id in only or p.key in only]


def _row(name: str, problem: Problem, device: str, withheld: str) -> Row:
    """Return the row that measures a fixture."""
    shipped = catalogue.is_shipped(problem)
    job = Job(
        name, "fixture", problem.id if shipped else "problem.py", problem.id, size=problem.size, dtype=problem.dtype,
        device=device, variant=problem.id if not shipped and catalogue.is_known(problem) else "",
        files={} if shipped else {"problem.py": problem.source}, shares=True,
    )  # fmt: skip
    return Row(record.Planned(row=name, problem=problem.key), job, withheld=withheld)


def measure(
    run: Run, wanted: list[Problem], *, withheld: Callable[[Problem], str] = lambda _: "", suite: str = ""
) -> Bundle:
    """Measure fixtures in few processes (trusted work) and write them below the results. withheld: as for `ensure`."""
    device = run.engine.device
    files = {store.path(run.results, problem, device): problem for problem in wanted}
    rows = [_row(file.stem, problem, device, withheld(problem)) for file, problem in files.items()]
    parameters = {"size": run.size, "device": device} | ({"suite": suite} if suite else {})
    bundle = run.open("fixtures", rows, parameters)
    try:
        run.execute(rows, bundle, summary, together=max(1, len(rows)))
    finally:  # what was measured before an interruption serves too
        _keep(files, bundle)
    return bundle


def _keep(files: Iterable[Path], bundle: Bundle) -> None:
    """Write the measured fixtures of a bundle, and beside the place of each other one why it is missing.

    Raises BundleError.
    """
    for file in files:
        row, failed = bundle.rows.get(file.stem), file.with_suffix(store.FAILED)
        if row is not None:
            try:
                if bundle.done(file.stem):
                    jsonio.write(file, row["result"])  # as it was measured, in its order of keys
                    failed.unlink(missing_ok=True)
                elif row["error"]:
                    jsonio.replace(failed, str(row["error"]).encode())
            except OSError as error:
                bundle.finish("failed", error=f"cannot write {file}")
                kept = f"The measured fixtures are in {bundle.path}; repeat with --resume."
                raise BundleError(f"cannot write {file}", reason_of(error), kept) from error


def summary(row: record.Row) -> str:
    """Return one line for a measured fixture."""
    fixture = row.result
    assert isinstance(fixture, FixtureRecord), "only finished rows have a line"
    if fixture.refused:
        return f"refused: {fixture.refused}"
    return f"margin {fixture.margin:.1f} over the cheat {fixture.best_cheat!r}, {fixture.build_s or 0:.1f} s"
