"""The catalogue of rewrites: each takes a kernel's source, finds where it fits, and returns another source.

kind E: every output keeps its bits, which the loop checks before it times the result; R: sums have another order; P:
arithmetic of another precision.
A rewrite that is right for some shapes only keeps the original kernel beside the new one and chooses at the launch, so
that other shapes still pass. Names and numbers (T0 to T31) are those of docs/optimise.md.
"""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from repro.optimize import rewrites_passes, rewrites_tiles, rewrites_windows
from repro.optimize.guards import chosen, every_kernel, every_launch, guarded
from repro.optimize.kernel_source import (
    GRID,
    MEMORY,
    UNKNOWN,
    Edit,
    Function,
    KernelSource,
    Launch,
    NotApplicable,
    address_of,
    assigned,
    body_of,
    calls,
    constexprs,
    inlined,
    is_tl,
    joined,
    keyword_of,
    loops_in,
    loops_of,
    names_in,
    needed,
    nodes,
    operand,
    parameters,
    pointer_of,
    pointers,
    program_axis,
    ranged,
    reached,
    reaches,
    reads,
    require,
    terms,
    value_of,
)

EXACT, REASSOCIATES, PRECISION = "E", "R", "P"
# Offsets up to here fit into 32 bits with a block's overshoot.
SMALL_ELEMENTS = 2**31 - 2**20
# A register tile of more rows would spill.
MOST_ROWS = 1024


@dataclass(frozen=True)
class Rewrite:
    """One entry of the catalogue."""

    id: str
    name: str
    kind: str
    apply: Callable[[KernelSource], str]
    what: str

    def attempt(self, source: KernelSource) -> str | None:
        """Return the rewritten text; None if the rewrite does not fit, or fails, of which it warns."""
        try:
            return self.apply(source)
        except NotApplicable:
            return None
        except Exception as error:  # noqa: BLE001 (a fault of ours ends no search; a test it does)
            warnings.warn(f"the rewrite {self.name} failed: {error!r}", RuntimeWarning, stacklevel=2)
            return None


# -- T0


def _own_output(source: KernelSource) -> str:
    edits = []
    for launch in source.launches:
        kernel = source.kernels[launch.kernel]
        stored = {pointer_of(kernel, call) for call in calls(kernel, "store")} - {None}
        inputs = {a.arg for a in launch.function.args.args}
        for parameter in stored:
            name = source.argument(launch, parameter or "")
            for node in ast.walk(launch.function):
                if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                    edits += [source.replace(part, f"torch.empty_like({part.id})") for part in _aliases(node.value)
                              if part.id in inputs and part.id != "out"]  # fmt: skip
    return source.changed(edits, "the kernel writes into no input")


def _aliases(value: ast.expr) -> list[ast.Name]:
    if isinstance(value, ast.IfExp):
        return [*_aliases(value.body), *_aliases(value.orelse)]
    return [value] if isinstance(value, ast.Name) else []


# -- T10


@every_launch
def _no_masks(source: KernelSource, kernel: Function, launch: Launch) -> str:
    compares = [n for n in nodes(kernel, ast.Compare) if [*map(type, n.ops)] == [ast.Lt]]
    # text of a comparison that is always true -> its guard
    bounds = {ast.unparse(n): guard for n in compares if (guard := _covered(source, kernel, launch, n))}
    edits, guards = [], []
    for call in calls(kernel, *MEMORY):
        keywords = {str(k.arg): k for k in call.keywords}
        mask = keywords.get("mask")
        kept, used = _without(kernel, mask.value, bounds) if mask else ([], [])
        guards += used
        if mask and used and kept:
            edits.append(source.replace(mask.value, " & ".join(kept)))
        elif used:
            edits += [_removed(source, k) for name, k in keywords.items() if name in ("mask", "other")]
    require("no mask is of a size that the grid or a loop covers exactly", edits)
    return guarded(source, kernel.name, "whole", edits, " and ".join(dict.fromkeys(guards)))


def _removed(source: KernelSource, keyword: ast.keyword) -> Edit:
    start = source.text.encode().rindex(b",", 0, source.start(keyword))
    return Edit(start, source.end(keyword), "")


def _without(kernel: Function, mask: ast.expr, bounds: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the parts of a mask that remain, and the guards under which the others are always true."""
    if len(parts := joined(mask)) > 1:
        each = [_without(kernel, part, bounds) for part in parts]
        return [text for kept, _ in each for text in kept], [guard for _, used in each for guard in used]
    bare = mask.value if isinstance(mask, ast.Subscript) else mask
    value = value_of(kernel, bare)
    if value is not bare:
        kept, used = _without(kernel, value, bounds)
        if used and not kept:
            return [], used
    if ast.unparse(bare) in bounds:
        return [], [bounds[ast.unparse(bare)]]
    text = ast.unparse(mask)
    return [f"({text})" if isinstance(mask, ast.Compare | ast.BinOp) else text], []


def _covered(source: KernelSource, kernel: Function, launch: Launch, compare: ast.Compare) -> str | None:
    """Return the guard under which `index < size` always holds, or None if that is not known.

    The index is a program's block of a grid dimension of cdiv(size, block) programs, or a step of a loop over size.
    """
    size, index = compare.comparators[0], compare.left
    lanes = rewrites_tiles.lanes_of(value_of(kernel, index.value if isinstance(index, ast.Subscript) else index))
    if lanes is None or not isinstance(size, ast.Name):
        return None
    first, block = lanes
    passed = [source.constant(launch, name) for name in (size.id, block)]
    axis = program_axis(kernel, first, block)
    walked = False
    if isinstance(first, ast.Name):  # whose only meaning may be that of such a loop
        loops = [ranged(loop, 3) for loop in loops_in(kernel) if ast.unparse(loop.target) == first.id]
        alike = all(loop == ["0", size.id, block] for loop in loops)
        walked = alike and len(assigned(kernel, first.id)) == len(loops) > 0
    covered = walked or (axis is not None and rewrites_tiles.grid_covers(source, launch, axis, size.id, block))
    return "({}) % ({}) == 0".format(*passed) if covered and None not in passed else None


# -- T11


def _constant_sizes(source: KernelSource) -> str:
    """Sizes become constexpr. Another shape compiles another kernel, so no guard is needed."""
    edits = []
    for name in {launch.kernel for launch in source.launches}:
        kernel = source.kernels[name]
        known = constexprs(kernel) | pointers(kernel)
        known |= {ast.unparse(n.value) for n in nodes(kernel, ast.Attribute)}
        for argument in kernel.args.args:
            fixed = argument.arg not in known and not assigned(kernel, argument.arg)  # no number has methods
            if fixed and argument.annotation is None and _is_size(kernel, argument.arg):
                edits.append(source.replace(argument, f"{argument.arg}: tl.constexpr"))
    return source.changed(edits, "no size is an argument at run time")


def _is_size(kernel: Function, name: str) -> bool:
    """Return whether a parameter is used as an integer: as a divisor, a bound of a loop or of an index, or a stride."""
    sizes, strides = set(), set()
    for node in ast.walk(kernel):
        match node:
            case ast.BinOp(op=ast.Mod() | ast.FloorDiv(), right=size):
                sizes |= names_in(size)
            case ast.BinOp(op=ast.Mult() | ast.Sub()):
                strides |= names_in(node)
            case ast.For(iter=bounds):
                sizes |= names_in(bounds)
            case ast.Compare(comparators=limits):
                sizes |= {c.id for c in limits if isinstance(c, ast.Name)}
    moves = [call for call in calls(kernel, *MEMORY) if name in reaches(kernel, address_of(call))[0]]
    return name in sizes or (name in strides and any(name not in names_in(call) for call in moves))


# -- T12


@every_launch
def _small_offsets(source: KernelSource, kernel: Function, launch: Launch) -> str:
    """Integers that become addresses, and no data, have 32 bits."""
    casts = list(filter(None, (_wide(source, kernel, node) for node in _offsets(kernel))))
    require("no offset is of 64 bits", casts)
    bases, numbers = pointers(kernel), set[str]().union(*(given for _, given in casts))
    passed = {p: source.argument(launch, p) for p in parameters(kernel) if p in bases | numbers}
    require("a tensor or a number of the launch is not known", bases, None not in passed.values())
    tensors = "".join(f"{text}, " for p, text in passed.items() if p in bases)
    guard = f"all(t is None or t.numel() <= {SMALL_ELEMENTS} for t in ({tensors.strip()}))"
    guard += "".join(f" and isinstance({text}, int)" for p, text in passed.items() if p in numbers)
    return guarded(source, kernel.name, "int32", [edit for edit, _ in casts], guard)


def _offsets(kernel: Function) -> list[ast.AST]:
    """Return the parts of addresses that are no part of what is stored."""
    places = {part for call in calls(kernel, *MEMORY) for part in reached(kernel, address_of(call))}
    data = [operand(call, 1, "value") for call in calls(kernel, "store")]
    data += [n for n in nodes(kernel, ast.Call) if "atomic" in ast.unparse(n.func)]
    places -= {part for node in data for part in reached(kernel, node, lambda n: is_tl(n, "load"))}
    return [node for node in ast.walk(kernel) if node in places]


def _wide(source: KernelSource, kernel: Function, node: ast.AST) -> tuple[Edit, set[str]] | None:
    """Return the edit that takes a cast to int64 away, and the parameters with which its value is an integer."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr="to"), args=[target]):
            dot = source.text.encode().index(b".", source.end(value))  # behind a bracket around the value
            edit = Edit(dot, source.end(node), "")
        case ast.Call(args=[value, target]) if is_tl(node, "cast"):
            edit = source.replace(node, source.of(value))
        case _:
            return None
    given = _integers(kernel, value) if ast.unparse(target) == "tl.int64" else None
    return None if given is None else (edit, given)


INTEGER = ("range", "tl.range", "tl.static_range", "tl.maximum", "tl.minimum", "tl.multiple_of")


def _integers(kernel: Function, value: ast.expr) -> set[str] | None:
    """Return the parameters with which a value is an integer if they are; None if it may be none."""

    def known(node: ast.AST) -> bool:
        quotient = isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)  # of integers alone
        return quotient or is_tl(node, *GRID, "arange", "cdiv")

    every = reached(kernel, value, known)
    for node in every:
        match node:
            case ast.Call(func=ast.Attribute(attr="to"), args=[target]) if "int" in ast.unparse(target):
                pass
            case ast.Call(func=func) if not known(node) and ast.unparse(func) not in INTEGER:
                return None
            case ast.BinOp(op=ast.Div() | ast.Pow()) | ast.Constant(value=float()):
                return None
    return None if UNKNOWN in every else {n.id for n in every if isinstance(n, ast.Name)} & {*parameters(kernel)}


# -- T14


def _ranges(kernel: Function) -> list[tuple[ast.For, ast.Call]]:
    """Return the loops over a range without options."""
    return [
        (n, n.iter) for n in nodes(kernel, ast.For)
        if isinstance(n.iter, ast.Call) and not n.iter.keywords
        and ast.unparse(n.iter.func) in ("range", "tl.range")
    ]  # fmt: skip


def _unrolled(source: KernelSource) -> str:
    """Loops whose bounds are compile-time constants are unrolled, except those that walk in steps of a block."""
    edits = []
    for kernel in source.kernels.values():
        constant = constexprs(kernel)
        for _, call in _ranges(kernel):
            free = names_in(call) - {"range", "tl"}
            if len(call.args) < 3 and free <= constant:
                edits.append(source.replace(call.func, "tl.static_range"))
    return source.changed(edits, "no loop has constant bounds")


def _innermost_with(option: str, *needed: str) -> Callable[[KernelSource], str]:
    """Return the rewrite that gives innermost loops an option, if need be where they call some of `tl`."""

    def change(source: KernelSource) -> str:
        edits = []
        for kernel in source.kernels.values():
            for loop, call in _ranges(kernel):
                if loops_in(loop) == [loop] and (not needed or calls(loop, *needed)):
                    edits += [source.replace(call.func, "tl.range"), source.after(call.args[-1], f", {option}")]
        return source.changed(edits, "there is no such loop")

    return change


# -- T17


@every_kernel
def _vector_accumulator(source: KernelSource, kernel: Function) -> str:
    """`acc += tl.sum(...)` in a loop becomes a sum of vectors that is reduced once, after the loop."""
    for loop in loops_in(kernel):
        filled, steps = rewrites_tiles.filled_by(kernel, loop), ranged(loop, 3)
        if steps and filled and is_tl(filled.value, "sum"):
            return source.apply(_widened(source, kernel, loop, filled.name, filled.value, steps[2]))
    raise NotApplicable("no loop adds up reductions")


def _widened(
    source: KernelSource, kernel: Function, loop: ast.For, acc: str, total: ast.Call, width: str
) -> list[Edit]:
    axis = ast.unparse(operand(total, 1, "axis"))
    shapes = [operand(begun, 0, "shape") for begun in assigned(kernel, acc) if is_tl(begun, "zeros")]
    sizes = [source.of(size) for shape in shapes if isinstance(shape, ast.List | ast.Tuple) for size in shape.elts]
    bare = {k.arg for k in total.keywords} <= {"axis", "input"}
    require("the reduction's axis, or the accumulator's start, is not plain", axis.isdigit(), bare, sizes)
    sizes.insert(int(axis), width)
    return [
        source.replace(shapes[0], f"[{', '.join(sizes)}]"),
        source.replace(total, source.of(operand(total, 0, "input"))),
        source.after(loop, f"\n{' ' * loop.col_offset}{acc} = tl.sum({acc}, axis={axis})"),
    ]


# -- T16


@every_launch
def _register_tile(source: KernelSource, kernel: Function, launch: Launch) -> str:
    """Two loops over the same rows become one tile of all rows, which is read once and stays in registers."""
    loops = loops_of(body_of(kernel))
    require("there are not two equal loops", len(loops) == 2, len({ast.unparse(loop.iter) for loop in loops}) == 1)
    first, second = loops
    counted = "the loops do not count the rows of one argument"
    start, rows = ranged(first, 2) or ("", "")
    count = needed(source.constant(launch, rows), counted)
    same = ast.unparse(first.target) == ast.unparse(second.target)
    require(counted, start == "0", same, not chosen(launch), loops_in(first) == [first])
    summed = [(loop, ast.unparse(s.target)) for loop in loops for s in loop.body if isinstance(s, ast.AugAssign)]
    require("a row depends on the one before it", not any(reads(loop, name) for loop, name in summed))
    row, tile = ast.unparse(first.target), source.fresh("TILE")
    loads, again = calls(first, "load"), calls(second, "load")
    one = len(loads) == 1 and len(again) == 1
    require("the loops do not read one tensor each", one, calls(second, "store"))
    other = "the loops read different addresses"
    kept, repeated = needed(_holder(first, loads[0]), other), needed(_holder(second, again[0]), other)
    require(other, kept[0] == repeated[0], _address(first, loads[0]) == _address(second, again[0]))
    inside = f"({row} < {rows})"
    lines = [f"    {row} = tl.arange(0, {tile})[:, None]"]
    lines += _tiled(source, first, inside, None)
    lines += [source.between([], source.end(first), source.start(second)).strip("\n").rstrip()]
    lines += _tiled(source, second, inside, repeated[1])
    more, number = source.parameter(kernel, f"{tile}: tl.constexpr"), f"{tile}=triton.next_power_of_2({count})"
    edits = [Edit(source.line(first), source.end(second), "\n".join(lines)), more]
    return guarded(source, kernel.name, "tile", edits, f"({count}) <= {MOST_ROWS}", number, more)


def _holder(loop: ast.For, load: ast.Call) -> tuple[str, ast.Assign] | None:
    """Return the name that holds a load at the end of a loop's body, and the statement that loads."""
    for statement in loop.body:
        if isinstance(statement, ast.Assign) and any(node is load for node in ast.walk(statement)):
            target = statement.targets[0]
            return (target.id, statement) if isinstance(target, ast.Name) else None
    return None


def _address(loop: ast.For, load: ast.Call) -> list[str]:
    """Return the terms of a load's address with the loop's own names put in, in one order."""
    whole = inlined(loop, address_of(load), lambda value: not calls(value, "load"))
    return sorted(map(ast.unparse, terms(whole, ast.Add)))


def _tiled(source: KernelSource, loop: ast.For, inside: str, dropped: ast.stmt | None) -> Iterator[str]:
    """Yield a loop's body as statements over a tile of all rows."""
    for statement in loop.body:
        if statement is dropped:
            continue
        if isinstance(statement, ast.AugAssign):
            require("the loop does more than add up", isinstance(statement.op, ast.Add))
            yield f"    {source.of(statement.target)} += tl.sum({source.of(statement.value)}, axis=0)"
            continue
        edits = []
        for call in calls(statement, *MEMORY):
            mask = needed(keyword_of(call, "mask"), "an access has no mask")
            edits.append(source.replace(mask.value, f"{inside} & ({source.of(mask.value)})"))
        yield "    " + source.between(edits, source.start(statement), source.end(statement))


CATALOGUE: tuple[Rewrite, ...] = (
    Rewrite("T0", "own_output", EXACT, _own_output, "allocate the output, where the wrapper writes into an input"),
    Rewrite("T10", "no_masks", EXACT, _no_masks, "no masks where blocks divide the size"),
    Rewrite("T11", "constant_sizes", EXACT, _constant_sizes, "sizes as compile-time constants"),
    Rewrite("T12", "small_offsets", EXACT, _small_offsets, "32-bit offsets where tensors are small"),
    Rewrite("T14", "unrolled", EXACT, _unrolled, "loops with constant bounds unrolled"),
    Rewrite("T14f", "unroll_factor", EXACT, _innermost_with("loop_unroll_factor=4"),
            "innermost loops unrolled four times"),
    Rewrite("T21", "pipelined", EXACT, _innermost_with("num_stages=3", "load"), "loads started three steps ahead"),
    Rewrite("T16", "register_tile", REASSOCIATES, _register_tile, "two passes over memory become one"),
    Rewrite("T17", "vector_accumulator", REASSOCIATES, _vector_accumulator, "vectors are added up, and reduced once"),
    Rewrite("T4", "split_reduction", REASSOCIATES, rewrites_tiles.split_reduction,
            "a reduction shared by several programs, without atomics"),
    Rewrite("T18", "descriptors", EXACT, rewrites_tiles.descriptors, "tiles through tensor descriptors"),
    Rewrite("T19", "dot_tf32", PRECISION, rewrites_tiles.dot_tf32, "products in TF32"),
    Rewrite("T28", "dot_fp16", PRECISION, rewrites_tiles.dot_fp16, "products of float32 in fp16, with sums in float32"),
    Rewrite("T29", "halved", PRECISION, rewrites_tiles.halved, "matrices of products of float32 in fp16 in memory"),
    Rewrite("T20", "skipped", EXACT, rewrites_tiles.skipped, "products of empty tiles skipped"),
    Rewrite("T22", "residue_order", EXACT, rewrites_tiles.residue_order, "positions with the same taps in one tile"),
    Rewrite("T31", "packed", EXACT, rewrites_tiles.packed, "tiles that programs share packed before the launch"),
    Rewrite("T25", "row_tiles", EXACT, rewrites_tiles.row_tiles, "tiles of rows and columns in place of a flat index"),
    Rewrite("T27", "windows", EXACT, rewrites_windows.windows, "several outputs along an axis, each input loaded once"),
    Rewrite("T30", "implicit_product", PRECISION, rewrites_windows.implicit_product,
            "a convolution as a product of matrices in TF32"),
    Rewrite("T23", "split_rows", REASSOCIATES, rewrites_passes.split_rows,
            "rows shared by several programs, a kernel for each pass"),
    Rewrite("T24", "joined_passes", REASSOCIATES, rewrites_passes.joined_passes,
            "the maximum and the sum of a softmax in one pass"),
)  # fmt: skip
BY_NAME = {rewrite.name: rewrite for rewrite in CATALOGUE}


@functools.lru_cache(256)
def applicable(text: str) -> dict[str, str]:
    """Return name -> rewritten text of every rewrite that fits a source."""
    source = KernelSource(text)
    made = {rewrite.name: rewrite.attempt(source) for rewrite in CATALOGUE}
    return {name: rewritten for name, rewritten in made.items() if rewritten is not None}
