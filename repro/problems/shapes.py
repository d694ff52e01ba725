"""Workloads of a problem: from `--shapes`, as rows of a file or constants, and neighbours that are derived."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from repro.errors import UsageError
from repro.problems import catalogue, constants, formats
from repro.problems.catalogue import Problem
from repro.records.base import held
from repro.records.workload import Workload
from repro.system import foreign
from repro.system.jsonio import Json

SUITE, NEIGHBOURS = "suite", "neighbours"
Given = str | Json


def workloads(given: Sequence[Given], problem: Problem) -> list[Workload]:
    """Return the workloads that `--shapes` asks for; where it names none, the problem's own sizes.

    Those of a definition are all that lie near it, at size smoke the first one, made smaller unless it has tensors.
    given: each a row, a file of rows (JSON lines or csv), `suite`, `neighbours`, or NAME=VALUE,NAME=VALUE. Raises
    UsageError.
    """
    if problem.path.suffix == ".json" and not given:
        every = workloads([SUITE], problem)
        first = every[0]
        kept = first.constants if first.line and first.line.tensors else {}
        return every if problem.size == "full" else [first.model_copy(update={"constants": kept})]
    rows = [row for each in given if each != NEIGHBOURS for row in _rows(each, problem)] or [{}]
    found = [_workload(row, problem) for row in rows]
    return found + (_neighbours(problem, found[0].constants) if NEIGHBOURS in given else [])


def _rows(given: Given, problem: Problem) -> Sequence[Given]:
    """Return rows: constants, lines of JSON, or NAME=VALUE,NAME=VALUE."""
    if isinstance(given, dict) or "=" in given:
        return [given]
    path = catalogue.shapes_file(problem) if given == SUITE else Path(given)
    lines = list(filter(None, map(str.strip, foreign.text(path).splitlines())))
    if path.suffix == ".csv":
        table = csv.DictReader(lines)
        lines = [",".join(f"{name}={cell}" for name, cell in row.items() if cell) for row in table]
    if not lines:
        raise UsageError(f"{path} holds no shape")
    return lines


def _workload(row: Given, problem: Problem) -> Workload:
    """Return one row as a workload. Raises UsageError."""
    try:
        values = row if isinstance(row, dict) else foreign.document(row) if row[:1] == "{" else constants.given(row)
        values = dict(values)
        weight = values.pop("weight", 1.0)
        if problem.text and not {"axes", "workload"}.isdisjoint(values):
            found = formats.workload(values)
        else:
            found = Workload(**held(Workload, {"constants": values, "weight": weight}))
    except ValueError as error:
        remedy = 'Write a line a shape, such as {"batch_size": 16, "weight": 0.5}, or a csv table of the same.'
        raise UsageError(f"{str(row)[:80]} is no shape", str(error), remedy) from error
    problem.check_names(found.constants)
    return found


def _neighbours(problem: Problem, own: Json) -> list[Workload]:
    """Return shapes near a problem's own that change no weight: one with remainders, a small and a large one.

    They are held out. One at which the Model does not run, or that does not fit, is left out later. Raises UsageError
    where no constant sets sizes of the inputs alone.
    """
    free, now = constants.free(problem.source), problem.overrides | own
    sizes = {name: now.get(name, value) for name, value in free.items()}
    if not sizes:
        why = "no constant of the file sets sizes of its inputs alone"
        raise UsageError(f"no neighbouring shape of {problem.key} is known", why, "Give --shapes FILE.")
    first = next(iter(sizes))
    remainder, small = ({name: size * part // 8 | 1 for name, size in sizes.items()} for part in (5, 1))
    shapes = remainder, small | {first: 1}, {first: 2 * sizes[first] + 1}
    return [Workload(constants=own | shape, held_out=True) for shape in shapes]
