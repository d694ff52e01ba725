"""Numbers that a search may turn: block sizes and other literals that reach a constexpr, and options of a launch."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from repro.optimize.kernel_source import Edit, KernelSource, Launch, NotApplicable, assigned, calls, constexprs

Params = dict[str, int]
NUM_WARPS, NUM_STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5)
# 0: without a limit, which is how a launch without the option runs.
MAXNREG = (0, 64, 96, 128, 168)
OPTIONS = {"num_warps": (NUM_WARPS, 4), "num_stages": (NUM_STAGES, 3), "maxnreg": (MAXNREG, 0)}
SMALLEST, LARGEST = 1, 8192
# `tl.dot` multiplies blocks of at least 16; larger ones fit into no registers and compile for minutes.
SMALLEST_DOT, LARGEST_DOT = 16, 256
STEPS = 4


@dataclass(frozen=True)
class Knob:
    """One number. name: `kernel.PARAMETER`; values: what it may be; now: what it is; exact: it keeps every bit."""

    name: str
    values: tuple[int, ...]
    now: int
    exact: bool


def find(source: KernelSource) -> list[Knob]:
    """Return the knobs of every launch, in order."""
    found: dict[str, Knob] = {}
    for launch in source.launches:
        for knob in (*_blocks(source, launch), *_options(source, launch)):
            found.setdefault(knob.name, knob)
    return list(found.values())


def apply(source: KernelSource, params: Params) -> str:
    """Return the source with some knobs turned. Raises NotApplicable for a knob that it lacks."""
    edits: list[Edit] = []
    turned: dict[tuple[int, int], str] = {}
    known = set()
    for launch in source.launches:
        added = ""
        for name, value in params.items():
            kernel, _, parameter = name.partition(".")
            keyword = launch.keyword(parameter)
            if kernel != launch.kernel or (keyword is None and parameter not in OPTIONS):
                continue
            known.add(name)
            literal = _literal(source, launch, keyword.value) if keyword is not None else None
            if parameter == "maxnreg" and value == 0 and keyword is None:
                continue
            if keyword is None:
                added += f", {parameter}={value}"
                continue
            if parameter == "maxnreg" and value == 0:
                edits.append(source.replace(keyword.value, "None"))
                continue
            node = literal if literal is not None else keyword.value
            turned[(source.start(node), source.end(node))] = str(value)
        if added:
            edits.append(_append(source, launch, added))
    if missing := sorted(set(params) - known):
        raise NotApplicable(f"there is no knob {', '.join(missing)}")
    return source.apply([*edits, *(Edit(*span, text) for span, text in turned.items())])


def _append(source: KernelSource, launch: Launch, text: str) -> Edit:
    """Return the edit that adds arguments at the end of a launch."""
    last = max([*map(source.end, launch.call.args), *map(source.end, launch.call.keywords)])
    return Edit(last, last, text)


def append_arguments(source: KernelSource, launch: Launch, text: str) -> Edit:
    """Return the edit that adds `text` (`NAME=value, ...`) to a launch's arguments."""
    return _append(source, launch, f", {text}")


def _blocks(source: KernelSource, launch: Launch) -> list[Knob]:
    kernel = source.kernels[launch.kernel]
    dots, sums = calls(kernel, "dot"), calls(kernel, "sum", "dot", "cumsum", "reduce")
    least, most = (SMALLEST_DOT, LARGEST_DOT) if dots else (SMALLEST, LARGEST)
    found = []
    for name in sorted(constexprs(kernel)):
        keyword = launch.keyword(name)
        literal = _literal(source, launch, keyword.value) if keyword is not None else None
        if literal is None or literal.value <= 0 or literal.value & (literal.value - 1):  # a power of two
            continue
        now = literal.value
        values = tuple(
            v for e in range(-STEPS, STEPS) if least <= (v := int(now * 2.0**e)) <= max(most, now) and now * 2.0**e >= 1
        )
        found.append(Knob(f"{launch.kernel}.{name}", values, now, exact=not sums))
    return found


def _options(source: KernelSource, launch: Launch) -> list[Knob]:
    found = []
    for name, (values, usual) in OPTIONS.items():
        if name == "num_stages" and not calls(source.kernels[launch.kernel], "dot"):
            continue  # which the compiler reads for products alone
        keyword = launch.keyword(name)
        now: Any = usual
        if keyword is not None and isinstance(keyword.value, ast.Constant):
            now = keyword.value.value or 0
        found.append(Knob(f"{launch.kernel}.{name}", values, now if now in values else usual, exact=True))
    return found


def _literal(source: KernelSource, launch: Launch, value: ast.expr) -> Any:
    """Return the integer literal behind an argument: itself, or the one value of a local or module-level name."""
    if isinstance(value, ast.Name):
        values = assigned(launch.function, value.id)
        if not values:
            values = [v for statement in source.tree.body if isinstance(statement, ast.Assign)
                      for v in assigned(ast.Module([statement], []), value.id)]  # fmt: skip
        value = values[0] if len(values) == 1 else value
    if isinstance(value, ast.Constant) and type(value.value) is int:
        return value
    return None
