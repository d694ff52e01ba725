"""Numbers that a search may turn: block sizes and other literals that reach a constexpr, and options of a launch."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any

from repro.optimize.kernel_source import (
    Edit,
    KernelSource,
    Launch,
    NotApplicable,
    assigned,
    calls,
    constexprs,
    parts,
    program_axis,
    value_of,
)  # fmt: skip

Params = dict[str, int]
NUM_WARPS, NUM_STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5)
# 0: without a limit, which is how a launch without the option runs.
MAXNREG = (0, 64, 96, 128, 168)
OPTIONS = {"num_warps": (NUM_WARPS, 4), "num_stages": (NUM_STAGES, 3), "maxnreg": (MAXNREG, 0)}
SMALLEST, LARGEST = 1, 8192
# `tl.dot` multiplies blocks of at least 16; larger ones fit into no registers and compile for minutes.
SMALLEST_DOT, LARGEST_DOT = 16, 256
STEPS = 4
# Most elements of a block that a thread may hold: with more than its 255 registers a product compiles for minutes.
MOST_A_THREAD = 256


@dataclass(frozen=True)
class Knob:
    """One number. name: `kernel.PARAMETER`; values: what it may be; now: what it is; exact: it keeps every bit."""

    name: str
    values: tuple[int, ...]
    now: int
    exact: bool


def find(source: KernelSource) -> list[Knob]:
    """Return the knobs of every launch, in order. A number that several launches share is one knob."""
    found: dict[str, Knob] = {}
    known: set[int] = set()
    for launch in source.launches:
        for knob in (*_blocks(source, launch, known), *_options(source, launch)):
            found.setdefault(knob.name, knob)
    return list(found.values())


def fits(source: KernelSource, params: Params) -> bool:
    """Return whether a thread can hold its part of every block that a kernel adds up in (`tl.zeros`, `tl.full`).

    params: all knobs. A block with a side that no knob gives counts as fitting.
    """
    for name, kernel in source.kernels.items():
        threads = 32 * params.get(f"{name}.num_warps", OPTIONS["num_warps"][1])
        for call in calls(kernel, "zeros", "full"):
            sides = call.args[0].elts if call.args and isinstance(call.args[0], ast.List | ast.Tuple) else []
            sizes = [params.get(f"{name}.{side.id}") if isinstance(side, ast.Name) else None for side in sides]
            if None not in sizes and math.prod(size or 1 for size in sizes) > MOST_A_THREAD * threads:
                return False
    return True


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
            for place, more in ((node, 0), *_tied(source, launch, parameter, literal)):
                turned[(source.start(place), source.end(place))] = str(value + more)
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


def _blocks(source: KernelSource, launch: Launch, known: set[int]) -> list[Knob]:
    kernel = source.kernels[launch.kernel]
    dots, sums = calls(kernel, "dot"), calls(kernel, "sum", "dot", "cumsum", "reduce")
    least, most = (SMALLEST_DOT, LARGEST_DOT) if dots else (SMALLEST, LARGEST)
    found = []
    for name in sorted(constexprs(kernel)):
        keyword = launch.keyword(name)
        literal = _literal(source, launch, keyword.value) if keyword is not None else None
        if literal is None or literal.value <= 0 or literal.value & (literal.value - 1):  # a power of two
            continue
        if (place := source.start(literal)) in known:
            continue
        known.add(place)
        now = literal.value
        values = tuple(
            v for e in range(-STEPS, STEPS) if least <= (v := int(now * 2.0**e)) <= max(most, now) and now * 2.0**e >= 1
        )
        found.append(Knob(f"{launch.kernel}.{name}", values, now, exact=not sums))
    return found


def _tied(source: KernelSource, launch: Launch, parameter: str, literal: Any) -> list[tuple[ast.expr, int]]:
    """Return the integers of the grid that repeat a block size, each with its difference from it.

    They are found where the kernel takes `tl.program_id(axis) * PARAMETER` and that dimension of the grid is
    `cdiv(size, 32)`, `(size + 31) // 32` or the like.
    """
    kernel = source.kernels[launch.kernel]
    if literal is None or sum(ast.dump(other.grid) == ast.dump(launch.grid) for other in source.launches) > 1:
        return []
    axes = {program_axis(kernel, node, parameter) for node in parts(kernel) if isinstance(node, ast.BinOp)} - {None}
    try:
        elements, _ = source.grid_elements(launch)
    except NotApplicable:
        return []
    block, found = literal.value, list[tuple[ast.expr, int]]()
    for axis, element in enumerate(elements):
        divided = value_of(launch.function, element)
        if axis in axes and _divides(divided, block):
            repeated = (block, block - 1) if block > 2 else (block,)
            found += [
                (node, node.value - block) for node in ast.walk(divided)
                if isinstance(node, ast.Constant) and type(node.value) is int and node.value in repeated
            ]  # fmt: skip
    return found


def _divides(element: ast.expr, block: int) -> bool:
    """Return whether a dimension of a grid is a size divided by a number that it writes out."""
    match element:
        case ast.Call(func=ast.Attribute(attr="cdiv"), args=[_, ast.Constant(value=value)]):
            return bool(value == block)
        case ast.BinOp(op=ast.FloorDiv(), right=ast.Constant(value=value)):
            return bool(value == block)
    return False


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
