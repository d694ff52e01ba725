"""Problems: KernelBench-protocol files, their suites, sizes and work."""

from __future__ import annotations

import ast
import base64
import inspect
import os
import re
import tomllib
import types
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from repro import config
from repro.errors import ProblemError, UsageError
from repro.inputs.stress import SPIKE_FACTOR, Stress
from repro.problems import constants, formats
from repro.problems.constants import Overrides
from repro.system import foreign

# The suite of a fetched source: its problems are not shipped, and all that is known of them is derived.
KERNELBENCH = "kernelbench"
_LEVELS = (1, 2, 3)
# Letters of a part of a name that is taken for a problem.
_SHORTEST = 4
ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
# The share of the counted arithmetic that the best known algorithm needs: one level of Strassen is 7/8 and two are
# 0.77; a convolution by Winograd's F(4x4, 3x3) is a quarter.
_FAST_ALGORITHM = 0.75
_SHORT = {"float32": "", "bfloat16": "@bf16", "float16": "@fp16"}


@dataclass(frozen=True)
class Work:
    """Compulsory traffic in elements and arithmetic in operations, at full size. Source: suites.toml.

    fast_algorithm: the share of `flop` that an algorithm other than the plain one may get away with.
    """

    read_elements: int
    written_elements: int
    flop: int
    fast_algorithm: float = _FAST_ALGORITHM


@dataclass(frozen=True)
class Message:
    """A problem for another process. source: the file, base64."""

    id: str
    dtype: str
    overrides: Overrides
    source: str

    def problem(self, file: Path) -> Problem:
        """Write the problem's file and return the problem."""
        file.write_bytes(base64.b64decode(self.source))
        return Problem(self.id, self.id, file, self.dtype, "", _overrides(self.overrides))


@dataclass(frozen=True)
class Problem:
    """One problem at one size and dtype.

    writes_inputs, aliases_input: its own Model writes to its inputs, or returns memory of one, so that a solution may.
    text: what the file of a definition, or of a problem with its gradients, becomes.
    """

    id: str
    name: str
    path: Path
    dtype: str
    size: str
    overrides: Overrides = field(default_factory=dict)
    batch_inputs: tuple[int, ...] = ()
    batch_dims: int = 1
    stress: Stress = 1.0
    stress_run: int = 1
    spike: float | tuple[float, ...] = SPIKE_FACTOR
    native_signal: bool = True
    perturbed_init: dict[int, Any] = field(default_factory=dict)
    work: Work | None = None
    writes_inputs: bool = False
    aliases_input: bool = False
    text: bytes = field(default=b"", repr=False)

    @property
    def key(self) -> str:
        """The id with its dtype where that is not float32: `L1_36`, `L1_36@bf16`."""
        return self.id + _SHORT[self.dtype]

    @property
    def file_name(self) -> str:
        """The file's own name, which in a job the id holds: every copy there is a problem.py."""
        return f"{self.id}.py" if self.path.name.endswith(("problem.py", ".json")) else self.path.name

    @property
    def source(self) -> bytes:
        """The file's text. Raises Unreadable."""
        return self.text or foreign.read(self.path, foreign.MOST_SOURCE)

    def spike_of(self, i: int) -> float:
        """Height of the spikes of input i, in its own deviations."""
        return self.spike[i] if isinstance(self.spike, tuple) else self.spike

    def message(self) -> Message:
        """Return the problem for another process."""
        return Message(self.id, self.dtype, self.overrides, base64.b64encode(self.source).decode())

    def at(self, constants: Overrides) -> Problem:
        """The same problem at other sizes, of which nothing else is known."""
        return replace(self, overrides=self.overrides | constants, work=None) if constants else self

    def module(self) -> types.ModuleType:
        """A fresh execution of the problem file with this size's overrides.

        Raises ProblemError where the file does not run or lacks a part of the protocol.
        """
        module = types.ModuleType(f"problem_{self.id}")
        module.__file__, module.__package__ = str(self.path), ""
        source = self.source
        import torch  # the host has none

        default = torch.get_default_dtype()
        try:
            text: Any = source
            if self.overrides:
                text, helpers = constants.rewritten(source, str(self.path), self.overrides)
                module.__dict__.update(helpers)
            exec(compile(text, str(self.path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
        except Exception as error:
            raise self.fault(f"problem file {self.file_name} does not run", error) from error
        finally:  # the judge places and casts
            torch.set_default_dtype(default)
            torch.set_default_device(None)
        unknown = [name for name in self.overrides if not constants.holds(source, name)]
        if unknown:
            raise ProblemError(f"problem file {self.file_name} has no module-level name {', '.join(unknown)}")
        return module

    def fault(self, what: str, error: Exception, remedy: str = "") -> ProblemError:
        """An error of the file's own code, with what to do about it."""
        why = str(error).rstrip(".")
        if isinstance(error, ImportError):
            package = (error.name or "the package").partition(".")[0]
            beside = "A problem is one file: put code of files beside it into it"
            remedy = f"{beside}, or install {package} where it is judged"
        elif self.dtype == "float32" and (half := re.search(r"BFloat16|Half", why)):
            dtype = {"BFloat16": "bfloat16", "Half": "float16"}[half[0]]
            remedy = f"The file names its own precision: judge it with --dtype {dtype}, or let it take any."
        elif "NVIDIA" in why or "CUDA" in why:
            remedy = "Name no device in the problem file: the judge places the tensors."
        elif not remedy:
            remedy = "Mend the problem file" + (
                ", or try other constants: --shapes NAME=VALUE" if self.overrides else "."
            )
        return ProblemError(what, f"{type(error).__name__}: {why}", remedy)

    def check_names(self, overrides: Overrides) -> None:
        """Raises UsageError where the file has no constant of a name that `--shapes` gave."""
        source = self.source
        unknown = [name for name in overrides if not constants.holds(source, name)]
        if unknown:
            there = ", ".join(constants.names(source)) or "none"
            raise UsageError(f"{self.path.name} has no constant {', '.join(unknown)}", f"its constants are {there}")

    def init_inputs(self, module: types.ModuleType, *, perturbed: bool = False) -> list[Any]:
        """Constructor arguments, after the perturbation of `perturbed_init` where asked. Raises ProblemError."""
        try:
            values = _positional(module.Model, module.get_init_inputs())
        except Exception as error:
            raise self.fault(f"get_init_inputs() of {self.file_name} fails", error) from error
        if perturbed:
            for position, value in self.perturbed_init.items():
                values[position] = value
        return values


def _positional(model: type, given: Any) -> list[Any]:
    """Return constructor arguments in order. They may end with a dict of keywords, after a list of the others.

    Raises TypeError where a keyword has no place.
    """
    signature = inspect.signature(model)
    names = list(signature.parameters)
    args: list[Any] | tuple[Any, ...] = ()
    match given:
        case dict():
            keywords = given
        case [list() | tuple() as args, dict() as keywords] if set(keywords) <= {*names}:
            pass
        case [*args, dict() as keywords] if keywords and set(keywords) <= {*names}:
            pass
        case _:
            return list(given)
    bound = signature.bind(*args, **keywords)
    last = 1 + max((names.index(name) for name in bound.arguments), default=-1)
    bound.apply_defaults()
    if set(bound.kwargs) & set(keywords):
        raise TypeError(f"{', '.join(bound.kwargs)} can be given by name alone: let Model take it by place too")
    return list(bound.args)[:last]


# What suites.toml says of one problem or one suite.
_Entry = dict[str, Any]
# Keys that hold at full size alone. At smoke size those count that end in `_smoke`.
_OF_FULL = ("stress_run",)


@cache
def _catalogue() -> dict[str, dict[str, _Entry]]:
    return tomllib.loads((config.PROBLEMS_DIR / "suites.toml").read_text())


def suites() -> dict[str, list[str]]:
    """Suite name -> problem ids, in the published order."""
    return {name: list(suite["problems"]) for name, suite in _catalogue()["suite"].items()}


def ids() -> list[str]:
    """All shipped problem ids, by level and number."""
    return sorted(_catalogue()["problem"], key=lambda i: tuple(map(int, re.findall(r"\d+", i))))


def _overrides(entry: _Entry) -> Overrides:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}


def load(problem_id: str, *, size: str = "full", dtype: str = "float32") -> Problem:
    """A shipped problem by id (`L1_36`, or `L1_36@bf16`). Raises UsageError for an unknown id."""
    bare, _, suffix = problem_id.partition("@")
    if suffix:
        dtype = {v: k for k, v in _SHORT.items()}.get("@" + suffix, "")
    if bare not in _catalogue()["problem"] or not dtype:
        raise _unknown(problem_id, bare)
    entry = _catalogue()["problem"][bare]
    path, small = config.PROBLEMS_DIR / entry["file"], size == "smoke"
    if small:
        of_small = {name.removesuffix("_smoke"): value for name, value in entry.items() if name.endswith("_smoke")}
        entry = {name: value for name, value in entry.items() if name not in _OF_FULL} | of_small
    spike = entry.get("spike", SPIKE_FACTOR)
    return Problem(
        id=bare,
        name=path.stem.removeprefix(bare + "_"),
        path=path,
        dtype=dtype,
        size=size,
        overrides=_overrides(entry["smoke"]) if small else {},
        batch_inputs=tuple(entry["batch_inputs"]),
        batch_dims=entry.get("batch_dims", 1),
        stress=entry["stress"],
        stress_run=entry.get("stress_run", 1),
        spike=tuple(spike) if isinstance(spike, list) else spike,
        native_signal=entry.get("native_signal", True),
        perturbed_init={int(k): v for k, v in entry.get("perturbed_init", {}).items()},
        work=None if small else Work(
            entry["read_elements"], entry["written_elements"], entry["flop"],
            entry.get("fast_algorithm", _FAST_ALGORITHM),
        ),
    )  # fmt: skip


def _unknown(problem_id: str, bare: str) -> UsageError:
    """The error for an id that is none, with those that may have been meant: by number, or by a part of the name."""
    word = bare.lower()
    meant = [i for i in ids() if word and word in (i.lower(), i[3:], i[3:].lstrip("0"))]
    if not meant and len(word) >= _SHORTEST:
        meant = [i for i in ids() if word in _catalogue()["problem"][i]["file"].lower()]
    remedy = f"Did you mean {' or '.join(meant)}?" if meant else "Or give a file's path."
    return UsageError(f"no problem {problem_id!r}", f"shipped are {', '.join(ids())}", remedy)


def shapes_file(problem: Problem) -> Path:
    """The file of shapes near a definition, or that suites.toml names for a problem at its size. Raises UsageError for
    none."""
    if problem.path.suffix == ".json" and (near := formats.workloads(problem.path, problem.id)):
        return near
    name = _catalogue()["problem"].get(problem.id, {}).get("shapes_smoke" if problem.size == "smoke" else "shapes")
    if not name:
        raise UsageError(f"no shapes of {problem.key} at size {problem.size} are known", "", "Add --shapes FILE.")
    return config.PROBLEMS_DIR / str(name)


def load_file(path: Path, *, dtype: str = "float32", size: str = "full") -> Problem:
    """Any KernelBench file or definition on disk. Raises UsageError where it is not one (read, not run)."""
    name, text = path.stem, b""
    if path.suffix == ".json":
        name, dtype, text = formats.problem(path)
    try:
        tree = foreign.tree(text or foreign.read(foreign.named(path), foreign.MOST_SOURCE), path.name)
    except SyntaxError as error:
        raise UsageError(f"problem {path} is not Python", str(error)) from error
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    missing = {"Model", "get_inputs", "get_init_inputs"} - names
    if missing:
        raise UsageError(f"{path} is not a KernelBench problem", f"it does not define {', '.join(sorted(missing))}",
                         "It takes a class Model, and functions get_inputs and get_init_inputs.")  # fmt: skip
    dtype = _own_dtype(tree) if dtype == "float32" else dtype
    return Problem(id=name, name=name, path=path.resolve(), dtype=dtype, size=size, text=text)


def _own_dtype(tree: ast.Module) -> str:
    """The one dtype of 16 bits that `get_inputs` of a file names, as torch.float16 or .half(); else float32."""
    body = next(
        ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_inputs"
    )
    names = {name.replace("half", "float16") for name in re.findall(r"\.(b?float\d*|half|double)\b", body)}
    return names.pop() if len(names) == 1 and names <= {*ITEMSIZE} else "float32"


def fetched() -> dict[str, Path]:
    """The problems of KernelBench's levels 1 to 3 below `sources/`: id -> file, by level and number. Empty where it has
    not been fetched. Those of level 4 load a pretrained model when they are imported, which a download would need."""
    files: dict[str, Path] = {}
    for level in _LEVELS:
        folder = config.sources_dir() / KERNELBENCH / "KernelBench" / f"level{level}"
        numbered = [(int(m[1]), file) for file in folder.glob("*.py") if (m := re.match(r"(\d+)_", file.name))]
        files |= {f"L{level}_{number:02d}": file for number, file in sorted(numbered)}
    return files


def load_fetched(problem_id: str, *, size: str = "full", dtype: str = "float32") -> Problem:
    """A problem of the fetched KernelBench by id. Raises UsageError for an unknown id."""
    known = fetched()
    if problem_id not in known:
        why, remedy = "it has not been fetched", f"Run `repro fetch {KERNELBENCH}`."
        if known:
            why = f"there are {len(known)}, from {min(known)} to {max(known)}"
            remedy = f"Name a level from {min(_LEVELS)} to {max(_LEVELS)} and a number, as {min(known)}."
        raise UsageError(f"no problem {problem_id!r} in {KERNELBENCH}", why, remedy)
    loaded = load_file(known[problem_id], dtype=dtype, size=size)
    return replace(loaded, id=problem_id, name=loaded.name.partition("_")[2].strip("_"))


def resolve(spec: str, *, size: str, dtype: str = "float32") -> Problem:
    """`--problem`: an id of ours, of the fetched KernelBench, or the path of a definition or a KernelBench file, which
    may be ours."""
    if spec.endswith((".py", ".json")) or "/" in spec:
        for known, entry in _catalogue()["problem"].items():
            if os.path.realpath(spec) == os.path.realpath(config.PROBLEMS_DIR / entry["file"]):
                return load(known, size=size, dtype=dtype)
        return load_file(Path(spec), dtype=dtype, size=size)
    if spec not in ids() and spec in fetched():
        return load_fetched(spec, dtype=dtype, size=size)
    return load(spec, size=size, dtype=dtype)


def suite(name: str, *, size: str, only: list[str] | None = None) -> list[Problem]:
    """The problems of a suite; `only` narrows them (ids). Raises UsageError for a name that is not in it."""
    entry = _catalogue()["suite"].get(name)
    if name == KERNELBENCH:
        chosen = only or list(fetched())
        if not chosen:
            raise UsageError(f"{name} has not been fetched", "", f"Run `repro fetch {name}`, or with `--from DIR`.")
        return [load_fetched(i, size=size) for i in chosen]
    if entry is None:
        raise UsageError(f"no suite {name!r}", f"there are {', '.join([*suites(), KERNELBENCH])}")
    chosen = [i for i in entry["problems"] if not only or i in only]
    foreign = [i for i in only or [] if i not in entry["problems"]]
    if foreign:
        raise UsageError(
            f"no problem {', '.join(foreign)} in suite {name}", f"its problems are {', '.join(entry['problems'])}"
        )
    return [load(i, size=size, dtype=entry["dtype"]) for i in chosen]


def id_in(name: str, known: Iterable[str] | None = None) -> str | None:
    """The problem id at the beginning of a file or folder name, or None. known: ids, by default the shipped ones."""
    match = re.match(r"L(\d)_0*(\d+)(?!\d)", name)
    problem_id = f"L{match[1]}_{int(match[2]):02d}" if match else ""
    return problem_id if problem_id in (ids() if known is None else known) else None


def as_known(problem: Problem, problem_id: str) -> Problem:
    """A problem file from elsewhere with the sizes, stress and work that we know for this id."""
    return replace(load(problem_id, size=problem.size, dtype=problem.dtype), path=problem.path)


def is_known(problem: Problem) -> bool:
    """Whether a problem has the sizes, stress and work that we know for its id, whatever its file says."""
    return problem.id in ids() and problem == as_known(problem, problem.id)


def is_shipped(problem: Problem) -> bool:
    """Whether a problem is one of ours: what we know for its id, and the shipped text."""
    return is_known(problem) and problem.source == load(problem.id).source
