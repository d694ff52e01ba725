"""The published layout: folders `NN_Name` of a problem, two kernels and an `optimization_trace` of rounds.

Nothing in it is relied on: a file may be missing, cut short, fenced, of another type or hold `Infinity`. What cannot be
read keeps the reason. Folders are keyed by their leading integer, rounds by their folder; paths inside the files are
those of another machine and are never followed.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.errors import Unreadable, UsageError
from repro.problems import catalogue
from repro.system import foreign
from repro.system.jsonio import Json

KERNELS = {"input_kernel": "input_kernel.py", "optimized": "optimized_kernel_beam_search.py"}
TRACE = "optimization_trace"
TIMES, KERNEL = "benchmark_results.json", "kernel.py"
PROFILES = {"input": "input_ncu_metrics.json", "optimized": "optimized_ncu_metrics.json"}
# The ten files of a round; the last four are prompts to a language model and its replies.
ROUND_FILES = (TIMES, *PROFILES.values(), "strategy.json", KERNEL, "reflexion.txt",
               "bottleneck_prompt.txt", "bottleneck_response.txt", "opt_prompt.txt", "opt_reply.txt")  # fmt: skip
JSON_FILES = tuple(name for name in ROUND_FILES if name.endswith(".json"))
# A larger number is no time and no metric.
_MOST = 1e300
BLOCK = re.compile(r"^```[a-zA-Z]*[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def number(name: str) -> int | None:
    """Return the leading integer of a folder's name: `04_Matrix...` and `4_Matrix...` are the same problem."""
    match = re.match(r"0*(\d{1,9})(?!\d)", name)
    return int(match.group(1)) if match else None


@dataclass(frozen=True)
class Timing:
    """A round's statement of its kernel's time.

    time_ms: None if there is no finite one; then `why` has the reason. The other fields are as in the file.
    """

    time_ms: float | None
    why: str
    facts: Json


@dataclass(frozen=True)
class Round:
    """One `round_N` folder."""

    number: int
    path: Path

    def text(self, name: str) -> str | None:
        """Return a file's text, or None if it is missing or cannot be read."""
        return _text(self.path / name, self.path.parent.parent)

    def value(self, name: str) -> tuple[Any, str]:
        """Return a JSON file's value, and why there is none: it is missing, or is not JSON."""
        text = self.text(name)
        if text is None:
            return None, "missing" if not (self.path / name).exists() else "cannot be read"
        return _parse(text)

    @functools.cached_property
    def timing(self) -> Timing:
        """Return the time in `benchmark_results.json`, whatever its key is called."""
        value, why = self.value(TIMES)
        if not isinstance(value, dict):
            return Timing(None, f"{TIMES} {why or 'is no object'}", {})
        named = {name: value.get(name) for name in ("dtype", "device", "warmup", "repeat")}
        facts = {name: each for name, each in named.items() if isinstance(each, str | int | float)}
        kernels = value.get("kernels")
        entries = list(kernels.values()) if isinstance(kernels, dict) else []
        times = [entry.get("time_ms") for entry in entries if isinstance(entry, dict)]
        if len(times) != 1:
            return Timing(None, f"{TIMES} holds {len(times)} kernels, one was due", facts)
        time_ms = _finite(times[0])
        if time_ms is None or time_ms <= 0:
            return Timing(None, f"its time_ms is {reprlib.repr(times[0])}", facts)
        return Timing(time_ms, "", facts)

    def profile(self, which: str) -> dict[str, Json]:
        """Return kernel name -> metrics of the `input` or the `optimized` profile; empty if there is none."""
        value, _ = self.value(PROFILES[which])
        metrics = value.get("metrics") if isinstance(value, dict) else None
        return {k: v for k, v in metrics.items() if isinstance(v, dict)} if isinstance(metrics, dict) else {}


@dataclass(frozen=True)
class Artifact:
    """One `NN_Name` folder."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def number(self) -> int | None:
        return number(self.path.name)

    @functools.cached_property
    def rounds(self) -> list[Round]:
        """Return the rounds by number."""
        rounds = []
        for folder in (self.path / TRACE).glob("round_*"):
            match = re.fullmatch(r"round_0*(\d{1,4})", folder.name)
            if match and folder.is_dir():
                rounds.append(Round(int(match.group(1)), folder))
        return sorted(rounds, key=lambda r: r.number)

    def text(self, name: str) -> str | None:
        """Return a file's text, or None."""
        return _text(self.path / name, self.path)

    @functools.cached_property
    def known(self) -> str | None:
        """Return the shipped problem of the same number and with the sizes of the folder's problem.py, or None."""
        known = f"L1_{self.number or 0:02d}"
        if known not in catalogue.ids():
            return None
        ours = _assignments(catalogue.load(known).source.decode())
        return known if ours <= _assignments(self.text("problem.py") or "") else None


def find(root: Path, names: list[str] | None = None) -> list[Artifact]:
    """Return the artifacts below `root`, or `root` itself if it is one, by number.

    names: narrows by number, folder name or a part of it. Raises UsageError if there is none.
    """
    if not root.is_dir():
        raise UsageError(f"no such folder: {root}")
    artifacts = _artifacts(root.resolve())
    if not artifacts:
        raise UsageError(f"no artifact in {root}", "the published layout has folders named NN_Name with a problem.py")
    missing = [name for name in names or [] if not any(_matches(artifact, name) for artifact in artifacts)]
    if missing:
        present = ", ".join(artifact.name for artifact in artifacts)
        raise UsageError(f"no artifact {', '.join(missing)} in {root.resolve().name}", f"there are {present}")
    return [artifact for artifact in artifacts if not names or any(_matches(artifact, name) for name in names)]


def holds(folder: Path) -> bool:
    """Return whether a folder holds artifacts with a file of theirs, or is one."""
    artifacts = _artifacts(folder.resolve()) if folder.is_dir() else []
    return any(_has_a_file(artifact.path) for artifact in artifacts)


def _artifacts(root: Path) -> list[Artifact]:
    if number(root.name) is not None and _has_a_file(root):
        return [Artifact(foreign.named(root))]
    folders = [
        Artifact(foreign.named(folder))
        for folder in root.iterdir()
        if folder.is_dir() and number(folder.name) is not None
    ]
    return sorted(folders, key=lambda artifact: (artifact.number or 0, artifact.name))


def _has_a_file(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("problem.py", TRACE, *KERNELS.values()))


def _matches(artifact: Artifact, name: str) -> bool:
    bare = name.removeprefix("L1_").removesuffix("@bf16")
    return int(bare) == artifact.number if bare.isdigit() else name.lower() in artifact.name.lower()


def _parse(text: str) -> tuple[Any, str]:
    """Parse JSON that is bare, fenced or inside prose; return it and why there is none.

    Accepts `Infinity` and `NaN`.
    """
    block = BLOCK.search(text)
    start = re.search(r"[\[{]", text)
    reason = "is empty"
    for part in (text, block.group(1) if block else "", text[start.start() :] if start else ""):
        if part.strip():
            try:
                return json.JSONDecoder().raw_decode(part.strip())[0], ""
            except (ValueError, RecursionError) as error:
                reason = f"is not JSON ({error})"
    return None, reason


def _finite(value: Any) -> float | None:
    """Return a finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST:
        return None
    return float(value)


def single(value: Any) -> float | None:
    """Return a metric's value. Some formatters write a list for a repeated name; it counts if it holds one number."""
    return single(value[0]) if isinstance(value, list) and len(value) == 1 else _finite(value)


def program(text: str | None) -> str | None:
    """Return a form of a Python file that ignores formatting, or None if it is not Python.

    It is the syntax tree without comments and without the white space of docstrings.
    """
    if text is None:
        return None
    try:
        tree = foreign.tree(text)
        for node in ast.walk(tree):
            match node:
                case ast.Expr(value=ast.Constant(value=str() as docstring) as constant):
                    constant.value = " ".join(docstring.split())
        return ast.dump(tree)
    except SyntaxError:
        return None


def _text(path: Path, artifact: Path) -> str | None:
    try:
        return foreign.read(path, within=artifact).decode(errors="replace")
    except Unreadable:
        return None


def _assignments(text: str) -> set[str]:
    """Return the module-level assignments of a program without their formatting, as sizes are; none of another text."""
    try:
        return {ast.unparse(node) for node in foreign.tree(text).body if isinstance(node, ast.Assign)}
    except SyntaxError:
        return set()
