"""Numbers that a search may turn: block sizes and other literals that reach a constexpr, and options of a launch."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from repro.optimize.kernel_source import (
    ADDING,
    UNKNOWN,
    Edit,
    Function,
    KernelSource,
    Launch,
    NotApplicable,
    address_of,
    assigned,
    calls,
    constexprs,
    given,
    is_tl,
    loops_in,
    mask_of,
    matched,
    names_in,
    needed,
    nodes,
    operand,
    program_axis,
    ranged,
    reached,
    terms,
    value_of,
)  # fmt: skip

Params = dict[str, int]
# Option of a launch -> what it may be, and what it is in a launch without it. maxnreg 0: without a limit.
OPTIONS = {
    "num_warps": ((1, 2, 4, 8, 16), 4),
    "num_stages": ((1, 2, 3, 4, 5), 3),
    "maxnreg": ((0, 64, 96, 128, 168), 0),
}
SMALLEST, LARGEST = 1, 8192
# `tl.dot` multiplies blocks of at least 16; larger ones fit into no registers and compile for minutes.
SMALLEST_DOT, LARGEST_DOT = 16, 256
STEPS = 4
# Most elements of a block that a thread may hold: with more than its 255 registers a product compiles for minutes.
MOST_A_THREAD = 256
# Rows, columns and depth of a product's tiles, warps and stages, with which tensor cores are usually near their best.
TILES = ((128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 32, 8, 4), (64, 128, 64, 4, 4))


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


def turned(old: str, new: str) -> list[str]:
    """Return `BLOCK 64 → 256` for each number of a kernel that differs in another version of it."""
    before, after = ({knob.name: knob.now for knob in find(KernelSource(text))} for text in (old, new))
    return [f"{name.rpartition('.')[2]} {before[name]} → {now}" for name, now in after.items()
            if name in before and before[name] != now]  # fmt: skip


def named(text: str) -> str:
    """Return a source in which a block size that the grid writes out too is one local name for both.

    So a knob turns both, and so does each rewrite that copies the grid: `cdiv(n, 32)` beside `BLOCK=32`, where the
    kernel takes `tl.program_id(axis) * BLOCK`. Every copy of that quotient in the function gets the name. Nothing is
    named where another launch has the quotient in its grid, and no block that goes with it.
    """
    source = KernelSource(text)
    while (changed := _named_once(source)) is not None:
        source = KernelSource(changed)
    return source.text


def _named_once(source: KernelSource) -> str | None:
    for launch in source.launches:
        for quotient in filter(None, _quotients(source, launch)):
            found = _blocks_of(source, launch.function, quotient)
            if not found:
                continue
            alike = ast.dump(quotient)
            copies = [n for n in nodes(launch.function, ast.expr) if ast.dump(n) == alike]
            lines = [*(copy.lineno for copy in copies), *(keyword.lineno for keyword in found)]
            holds = [s for s in launch.function.body if s.lineno <= min(lines) <= (s.end_lineno or 0)]
            name, block = source.fresh(str(found[0].arg).lower()), source.of(found[0].value)
            edits = [source.before(holds[0], f"{name} = {block}")]
            edits += [source.replace(keyword.value, name) for keyword in found]
            edits += [source.replace(node, name) for node in map(_divisor, copies) if node is not None]
            return source.apply(edits)
    return None


def _quotients(source: KernelSource, launch: Launch) -> list[ast.expr | None]:
    """Return for each dimension of the grid its quotient by an integer, or None."""
    try:
        elements, _ = source.grid_elements(launch)
    except NotApplicable:
        return []
    found = [value_of(launch.function, element) for element in elements]
    return [element if _divisor(element) else None for element in found]


def _blocks_of(source: KernelSource, function: Function, quotient: ast.expr) -> list[ast.keyword]:
    """Return the arguments of a function's launches that are the block of a quotient in their grid.

    Empty where a grid has the quotient, and its launch no such argument.
    """
    every: dict[int, ast.keyword] = {}
    block = needed(_divisor(quotient), "it is no quotient").value
    for launch in source.launches:
        for axis, other in enumerate(_quotients(source, launch) if launch.function is function else []):
            if other is None or ast.dump(other) != ast.dump(quotient):
                continue
            kernel = source.kernels[launch.kernel]
            mine = [
                keyword for keyword in launch.call.keywords
                if isinstance(keyword.value, ast.Constant) and keyword.value.value == block
                and keyword.arg in constexprs(kernel)
                and any(program_axis(kernel, node, str(keyword.arg)) == axis for node in nodes(kernel, ast.BinOp))
            ]  # fmt: skip
            if not mine:
                return []
            every |= {id(keyword): keyword for keyword in mine}
    return list(every.values())


def _divisor(element: ast.expr) -> ast.Constant | None:
    """Return the integer by which `cdiv(n, 32)` or `n // 32` divides; None for anything else."""
    for form in ("_m.cdiv(_n, _block)", "_n // _block"):
        match matched(form, element):
            case {"_n": size, "_block": ast.Constant(value=int()) as block}:
                return None if terms(size, ast.Add)[1:] else block  # the 31 of `(n + 31) // 32` would have to turn too
    return None


def fits(source: KernelSource, params: Params) -> bool:
    """Return whether a thread can hold its part of every block that a kernel adds up in (`tl.zeros`, `tl.full`).

    params: all knobs. A block with a side that no knob gives counts as fitting.
    """
    for name in source.kernels:
        threads = 32 * params.get(f"{name}.num_warps", OPTIONS["num_warps"][1])
        for sides in _sums(source, name):
            sizes = [params.get(side) for side in sides]
            if None not in sizes and math.prod(size or 1 for size in sizes) > MOST_A_THREAD * threads:
                return False
    return True


def tiles(source: KernelSource, space: Iterable[Knob]) -> list[Params]:
    """Return TILES for each kernel of products with knobs for the sides of its sum and, of blocks, for the depth alone.

    space: all knobs.
    """
    found = list[Params]()
    for kernel in source.kernels:
        own = [knob.name for knob in space if knob.name.startswith(f"{kernel}.")]  # options follow blocks
        names = [*dict.fromkeys(sum(_sums(source, kernel), []) + own)]
        if names[4:5] == [f"{kernel}.num_stages"]:  # which products alone have
            found += [dict(zip(names, tile, strict=False)) for tile in TILES]
    return found


def _sums(source: KernelSource, kernel: str) -> list[list[str]]:
    """Return the knobs' names of the sides of each block that a kernel adds up in."""
    shapes = [given(call, 0, "shape") for call in calls(source.kernels[kernel], "zeros", "full")]
    return [[f"{kernel}.{ast.unparse(side)}" for side in shape.elts]
            for shape in shapes if isinstance(shape, ast.List | ast.Tuple)]  # fmt: skip


def apply(source: KernelSource, params: Params) -> str:
    """Return the source with some knobs turned. Raises NotApplicable for a knob that it lacks."""
    edits: dict[Edit, None] = {}  # a literal that launches share is turned once
    known = set()
    for launch in source.launches:
        added = []
        for name, value in params.items():
            kernel, _, parameter = name.partition(".")
            keyword, unlimited = launch.keyword(parameter), (parameter, value) == ("maxnreg", 0)
            if kernel != launch.kernel or (keyword is None and parameter not in OPTIONS):
                continue
            known.add(name)
            if keyword is not None:
                literal = None if unlimited else _literal(source, launch, keyword.value)
                edits[source.replace(literal or keyword.value, "None" if unlimited else str(value))] = None
            elif not unlimited:
                added.append(f"{parameter}={value}")
        if added:
            edits[append_arguments(source, launch, ", ".join(added))] = None
    if missing := sorted(set(params) - known):
        raise NotApplicable(f"there is no knob {', '.join(missing)}")
    return source.apply(list(edits))


def append_arguments(source: KernelSource, launch: Launch, text: str) -> Edit:
    """Return the edit that adds `text` (`NAME=value, ...`) to a launch's arguments."""
    last = max([*map(source.end, launch.call.args), *map(source.end, launch.call.keywords)])
    return Edit(last, last, f", {text}")


def _blocks(source: KernelSource, launch: Launch, known: set[int]) -> Iterator[Knob]:
    kernel = source.kernels[launch.kernel]
    dots, fixed = calls(kernel, "dot"), _sizes(source, launch)
    least, most = (SMALLEST_DOT, LARGEST_DOT) if dots else (SMALLEST, LARGEST)
    for name in sorted(constexprs(kernel)):
        keyword = launch.keyword(name)
        literal = _literal(source, launch, keyword.value) if keyword is not None else None
        if literal is None or literal.value <= 0 or literal.value & (literal.value - 1):  # a power of two
            continue
        if (place := source.start(literal)) in known or _guards(launch, literal.value):
            continue
        known.add(place)
        now = literal.value
        most_now = now if name in fixed else max(most, now)
        values = tuple(v for e in range(-STEPS, STEPS) if least <= (v := int(now * 2.0**e)) <= most_now)
        yield Knob(f"{launch.kernel}.{name}", values, now, exact=not _adds(source, launch.kernel))


def _adds(source: KernelSource, kernel: str) -> bool:
    """Return whether a kernel adds up lanes."""
    return any(isinstance(node, ast.Attribute) and node.attr in ADDING for node in source.every(kernel))


def _sizes(source: KernelSource, launch: Launch) -> set[str]:
    """Return the constants at which a store's lanes end, and that neither its mask, the grid nor a loop's step has."""
    kernel, found = source.kernels[launch.kernel], set()
    try:
        for store in calls(kernel, "store"):
            mask = mask_of(store)
            found |= _ends(kernel, address_of(store)) - (_ends(kernel, mask) if mask else set())
        grid = names_in(ast.parse(" + ".join(source.grid_parts(launch)))) if found else set()
    except NotApplicable:
        return found or constexprs(kernel)
    steps = {each[2] for loop in loops_in(kernel) if (each := ranged(loop, 3))}
    return {name for name in found - steps if source.argument(launch, name) not in grid}


def _ends(kernel: Function, node: ast.expr) -> set[str]:
    """Return the texts of the sizes of the lanes on which an expression depends."""
    return {ast.unparse(operand(n, 1, "end")) for n in reached(kernel, node)
            if is_tl(n, "arange")}  # fmt: skip


def _guards(launch: Launch, block: int) -> bool:
    """Return whether a launch chooses its kernel by a remainder of a number, which a knob would not turn."""
    tests = [node.test for node in nodes(launch.call.func, ast.IfExp)]
    return any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and ast.unparse(node.right) == str(block)
        for test in tests for node in ast.walk(test)
    )  # fmt: skip


def _options(source: KernelSource, launch: Launch) -> Iterator[Knob]:
    for name, (values, usual) in OPTIONS.items():
        if name == "num_stages" and not calls(source.kernels[launch.kernel], "dot"):
            continue  # which the compiler reads for products alone
        keyword = launch.keyword(name)
        now: Any = usual
        if keyword is not None and isinstance(keyword.value, ast.Constant):
            now = keyword.value.value or 0
        exact = name != "num_warps" or not _adds(source, launch.kernel)
        yield Knob(f"{launch.kernel}.{name}", values, now if now in values else usual, exact)


def _literal(source: KernelSource, launch: Launch, value: ast.expr) -> Any:
    """Return the integer literal behind an argument: itself, or the one value of a local or module-level name."""
    if isinstance(value, ast.Name):
        module = ast.Module([s for s in source.tree.body if isinstance(s, ast.Assign)], [])
        values = [v for v in assigned(launch.function, value.id) if v is not UNKNOWN] or assigned(module, value.id)
        value = values[0] if len(values) == 1 else value
    if isinstance(value, ast.Constant) and type(value.value) is int:
        return value
    return None
