"""Definitions, workloads and solutions of FlashInfer-Bench and SOL-ExecBench as KernelBench files.

A definition becomes a problem file: axes and scalars are constants, which a workload sets, and `Model` calls the
reference. A solution becomes a file with `ModelNew`. Both are ordinary files from then on; nothing here needs torch.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import Any, TypeVar

from repro.errors import UsageError
from repro.records.base import Record, held
from repro.records.formats import Definition, Line, Solution, Tensor
from repro.records.workload import Workload
from repro.system import foreign

R = TypeVar("R", bound=Record)
# A problem has the first of these that a tensor's dtype names: its limits are those of the lowest precision.
_FLOATS = ("bfloat16", "float16", "float32")
# Most bytes of a file with fixed tensors, which become part of the problem's text.
_MOST_FIXED = 640 << 10
# Folders around a file in which the others of its data set are looked for.
_FOLDERS = 6


def _read(model: type[R], path: Path) -> R:
    """Return the record that a file holds. Raises UsageError that names the fields."""
    try:
        return model.model_validate(held(model, foreign.document(foreign.text(path))))
    except ValueError as error:
        raise UsageError(f"{path} is no {model.__name__.lower()}", str(error)) from error


def workload(row: Any) -> Workload:
    """Return a line of workloads, or of traces, over the constants of the problem file. Raises ValueError."""
    line = Line.model_validate(held(Line, row.get("workload", row) if isinstance(row, dict) else row))
    scalars = {name: given.value for name, given in line.inputs.items() if given.type == "scalar"}
    return Workload(constants=line.axes | scalars, line=line)


def _template(file: str, known: Record, **words: Any) -> str:
    text = (Path(__file__).parent / "templates" / f"{file}.txt").read_text()
    literal = known.model_dump(exclude={"reference", "description", "sources"})
    return Template(text).substitute(words, known=literal, arguments=", ".join(literal.get("inputs", ())))


def _near(path: Path, *patterns: str) -> Path | None:
    """Return the first file of some names beside a file, or below one of the folders around it."""
    folders = path.absolute().parents[:_FOLDERS]
    return next((file for folder in folders for pattern in patterns for file in folder.glob(pattern)), None)


def workloads(path: Path, name: str) -> Path | None:
    """Return the file of a definition's workloads, where both data sets have it."""
    return _near(path, "workload.jsonl", f"workloads/**/{name}.jsonl")


def solutions(folder: Path) -> list[Path]:
    """Return the solutions below a folder."""
    return [file for file in sorted(folder.rglob("*.json")) if b'"entry_point"' in foreign.read(file, within=folder)]


def definition_of(file: Path) -> Path:
    """Return the file of a solution's definition, where both data sets have it. Raises UsageError."""
    name = _read(Solution, file).definition
    found = _near(file, "definition.json", f"definitions/**/{name}.json")
    if found is None:
        raise UsageError(f"no definition {name} near {file}", "", "Add --problem DEFINITION.json.")
    return found


def problem(path: Path) -> tuple[str, str, bytes]:
    """Return name, dtype and problem file of a definition, with the sizes of the first workload near it, if any.

    Raises UsageError.
    """
    known, sizes = _read(Definition, path), {}
    if near := workloads(path, known.name):
        with suppress(ValueError):  # of a file that is no workload, which its reader says
            sizes = workload(foreign.document(foreign.text(near).partition("\n")[0])).constants
    numbers = [name for name, tensor in known.inputs.items() if not tensor.shape]
    names = dict.fromkeys([*known.axes, *numbers, *sizes])
    text = _template(
        "problem", known, reference=known.reference, sizes=sizes, axes="\n".join(_axes(known, names, sizes)),
        given=", ".join(f"{name}={name}" for name in names), shapes=_shapes(known.inputs),
    )  # fmt: skip
    dtypes = str([tensor.dtype for tensor in (*known.inputs.values(), *known.outputs.values()) if tensor.shape])
    return known.name, next((dtype for dtype in _FLOATS if dtype in dtypes), _FLOATS[-1]), text.encode()


def _axes(known: Definition, names: Iterable[str], sizes: dict[str, Any]) -> list[str]:
    """Return the assignments of a problem's constants. Those in a dictionary are not made smaller with the sizes."""
    given = {name: sizes.get(name) for name, axis in known.axes.items() if axis.value is None}
    computed = _computed(known)
    lines = {name: f"{name} = {given.get(name, f'_FIXED[{name!r}]')}" for name in names} | computed
    return [lines[name] for name in sorted(names, key=computed.__contains__)]


def _computed(known: Definition) -> dict[str, str]:
    return {name: f"{name} = {axis.expression}" for name, axis in known.axes.items() if axis.expression}


def _shapes(tensors: dict[str, Tensor]) -> str:
    """Return an expression: a list of lists of sizes, whose names are bare."""
    return str([tensor.shape for tensor in tensors.values()]).replace("'", "")


def filled(text: bytes, path: Path, line: Line | None) -> bytes:
    """Return the text of a problem or solution with a workload's sizes, and its tensors from files. Raises UsageError
    for one that is missing or too large."""
    if line is None:
        return text
    tensors = {}
    for name, given in line.tensors.items():
        file = _near(path, given.path)
        if file is None:
            raise UsageError(f"not judged: no {given.path} near {path}", "", "Fetch it.")
        tensors[name] = given.tensor_key, base64.b64encode(foreign.read(file, _MOST_FIXED))
    for name, values in {"TENSORS": tensors, "SIZES": line.axes}.items():
        text = text.replace(f"\n_{name} = {{}}\n".encode(), f"\n_{name} = {values}\n".encode())
    return text


def program(file: Path, definition: Path) -> tuple[str, bytes]:
    """Return a solution's name, and a file with its `ModelNew`. Raises UsageError where it cannot become one."""
    given, known = _read(Solution, file), _read(Definition, definition)
    if given.definition != known.name:
        raise UsageError(f"{file} solves {given.definition}", f"{definition} is {known.name}")
    sources = {source.path: source.content for source in given.sources}
    entry, _, function = given.spec.entry_point.partition("::")
    if entry not in sources:
        raise UsageError(f"{file} has no source {entry}", f"its sources are {', '.join(sources)}")
    python = entry.endswith(".py")
    if python and len(sources) > 1:
        raise UsageError(f"not judged: {file} has several sources", ", ".join(sources), "Join them.")
    if not python and "PYBIND11_MODULE" not in str(sources):
        raise UsageError(f"not judged: {given.name} cannot be called",
                         "its sources have no PYBIND11_MODULE, which binding torch needs")  # fmt: skip
    text = _template(
        "solution", known, source=sources[entry] if python else _template("built", given, sources=sources),
        run=function if python else f"_built.{function}", destination=given.spec.destination_passing_style,
        axes=", ".join(known.axes),
        computed="\n    ".join(_computed(known).values()), shapes=_shapes(known.outputs),
    )  # fmt: skip
    return given.name, text.encode()
