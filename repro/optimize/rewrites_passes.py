"""Rewrites of kernels that pass over a row several times: fewer passes, or passes that several programs share.

The entries of the catalogue are in rewrites.py.
"""

from __future__ import annotations

import ast
import copy
import itertools

from repro.optimize.guards import every_kernel, every_launch, plain, statement_of
from repro.optimize.kernel_source import (
    Edit,
    Function,
    KernelSource,
    Launch,
    NotApplicable,
    axis_of,
    body_of,
    calls,
    constexprs,
    is_tl,
    loops_of,
    matched,
    names_in,
    needed,
    nodes,
    operand,
    parameters,
    pointers,
    ranged,
    require,
    stored_names,
    substituted,
)
from repro.optimize.knobs import append_arguments
from repro.optimize.rewrites_tiles import Filled, filled_by, range_of

# -- T23


@every_launch
def split_rows(source: KernelSource, kernel: Function, launch: Launch) -> str:
    """A row is shared by several programs: each pass over it becomes a kernel, which reads the parts of those before.

    A pass is a loop over the row in steps of a block. All but the last fill one vector, a sum or a maximum; the last
    one stores. Numbers between them are computed again in each kernel.
    """
    body = body_of(kernel)
    loops = loops_of(body)
    passes = len(loops) > 1 and loops[-1] is body[-1]
    require("there are not several passes, of which the last one stores", passes)
    block, end = _steps(kernel, loops)
    vectors = [_vector(kernel, loop, block) for loop in loops[:-1]]
    stores = [len(calls(loop, "store")) for loop in loops]
    require("something is stored before the last pass", stores == [0] * len(vectors) + [len(calls(kernel, "store"))])
    grid, statement = source.grid_parts(launch), statement_of(launch)
    addresses = pointers(kernel)
    tensor = next((source.argument(launch, p) for p in parameters(kernel) if p in addresses), None)
    source.own_ids(kernel.name)
    by_row = len(grid) == 1 and {axis_of(call) for call in calls(kernel, "program_id")} == {"0"}
    alone = not calls(kernel, "num_programs") and plain(kernel, launch)
    require("the grid is not one program for each row", by_row, alone)
    unknown = "the block or a tensor of the launch is not known"
    length, tensor = needed(launch.keyword(block), unknown), needed(tensor, unknown)
    parts, split, count, buffer, size = map(source.fresh, ("parts_ptr", "SPLIT", "split", "parts", "block"))
    share = f"tl.cdiv(tl.cdiv({end}, {split}), {block}) * {block}"

    def place(at: int, part: str) -> str:
        row = f"({at} * tl.num_programs(0) + tl.program_id(0)).to(tl.int64)" if at else "tl.program_id(0).to(tl.int64)"
        return f"{parts} + ({row} * {split} + {part}) * {block} + tl.arange(0, {block})"

    text, launches = "", ""
    lead = " " * statement.col_offset
    for at, loop in enumerate(loops):
        mine = "tl.program_id(1)"
        edits = [source.parameter(kernel, parts, f"{split}: tl.constexpr")]
        for before, (vector, joined) in enumerate(vectors[:at]):
            other, indent = loops[before], " " * loops[before].col_offset
            joint = joined.format("tl.load(" + place(before, "part") + ")")
            edits.append(source.replace(other, f"for part in range({split}):\n{indent}    {vector} = {joint}"))
        bounds = f"range({mine} * ({share}), tl.minimum(({mine} + 1) * ({share}), {end}), {block})"
        edits.append(source.replace(range_of(loop), bounds))
        if at < len(vectors):
            store = f"\n{' ' * loop.col_offset}tl.store({place(at, mine)}, {vectors[at][0]})"
            edits.append(Edit(source.end(loop), source.end(kernel), store))
        own = source.fresh(f"{kernel.name}_pass_{at}")
        text += "\n\n\n" + source.between(edits, source.top(kernel), source.end(kernel)).replace(
            f"def {kernel.name}(", f"def {own}(", 1
        )
        call = [
            source.replace(launch.callee, own),
            source.replace(length.value, size),
            source.replace(launch.grid, f"({grid[0]}, {count})"),
            append_arguments(source, launch, f"{parts}={buffer}, {split}={count}"),
        ]
        launches += f"\n{lead}" + source.between(call, source.start(statement), source.end(statement))
    made = (
        f"{size} = {source.of(length.value)}\n"  # one number for all passes, which a knob turns at once
        # four programs on each multiprocessor run at once
        f"{lead}{count} = max(1, (torch.cuda.get_device_properties({tensor}.device).multi_processor_count * 4 "
        f"if {tensor}.is_cuda else 16) // ({grid[0]}))\n"
        f"{lead}{buffer} = torch.empty(({len(vectors)}, {grid[0]}, {count}, {size}), "
        f"device={tensor}.device, dtype=torch.float32)"
    )
    return source.apply([
        source.after(kernel, text),
        source.replace(statement, made + launches),
    ])  # fmt: skip


def _steps(kernel: Function, loops: list[ast.For]) -> tuple[str, str]:
    """Return the block and the end that all loops share: `for start in range(0, END, BLOCK)`."""
    spans = [ranged(loop, 3) for loop in loops]
    require("a pass is no loop in steps of a block", *spans)
    first, end, block = spans[0]
    same = all(span == spans[0] for span in spans)
    require("the passes are not over the same row", same, first == "0", block in constexprs(kernel))
    require("the length of a row is not an argument", end in parameters(kernel))
    return block, end


def _vector(kernel: Function, loop: ast.For, block: str) -> tuple[str, str]:
    """Return the vector of one block that a loop fills, and how a part is joined to it (`{}`: the part)."""
    no_vector = "a pass does not fill one vector with sums or maxima"
    filled = needed(filled_by(kernel, loop), no_vector)
    require(no_vector, filled.shape in (f"[{block}]", f"({block},)"))
    return filled.name, filled.name + " + {}" if filled.kind == "sum" else f"tl.maximum({filled.name}, {{}})"


# -- T24


@every_kernel
def joined_passes(source: KernelSource, kernel: Function) -> str:
    """A pass for the maximum and the next one, which adds up exponentials, become one, as in an online softmax.

    The sum is kept relative to the maximum so far, and scaled where that grows (Milakov and Gimelshein, 2018).
    """
    body = body_of(kernel)
    loops = [at for at, statement in enumerate(body) if isinstance(statement, ast.For)]
    for first, second in itertools.pairwise(loops):
        one, other = body[first], body[second]
        assert isinstance(one, ast.For) and isinstance(other, ast.For)
        same = [ast.unparse(x) for x in (one.target, one.iter)] == [ast.unparse(x) for x in (other.target, other.iter)]
        text = _joined(source, kernel, one, body[first + 1 : second], other) if same else None
        if text is not None:
            return source.apply([Edit(source.line(one), source.end(other), text)])
    raise NotApplicable("no pass for a maximum is followed by one that adds up exponentials")


def _joined(
    source: KernelSource, kernel: Function, one: ast.For, between: list[ast.stmt], other: ast.For
) -> str | None:
    """Return the text of one loop in the place of two and of what lies between them; None if they do not fit."""
    rises, adds = filled_by(kernel, one), filled_by(kernel, other)
    if rises is None or adds is None or calls(one, "store") or calls(other, "store"):
        return None
    top, total = rises.name, adds.name
    begun = [s for s in between if total in stored_names(s)]
    kept = [s for s in between if s not in begun]
    largest = _largest(kept, top, names_in(*other.body))
    power = _power(adds.value, largest)
    if power is None or not _separate(rises, adds, stored_names(one), begun, kept, largest):
        return None
    higher, shift = map(source.fresh, ("higher", "shift"))
    moved = ast.unparse(substituted(adds.value, {largest: ast.Name(shift)}.get))
    inside = [
        *map(ast.unparse, rises.others),
        f"{higher} = tl.maximum({top}, {ast.unparse(rises.value)})",
        f"{shift} = tl.where({higher} > float('-inf'), {higher}, 0.0)",  # -inf - -inf would be no number
        *map(ast.unparse, adds.others),  # the compiler joins what both loops load
        f"{total} = {total} * {_raised(power, largest, shift, top)} + {moved}",
        f"{top} = {higher}",
    ]
    lines = [
        *map(source.of, begun),
        f"for {ast.unparse(one.target)} in {ast.unparse(one.iter)}:",
        *("    " + line for text in inside for line in text.split("\n")),
        *map(source.of, kept),
    ]
    if largest != top:  # lanes have maxima of their own
        lines.append(f"{total} = {total} * {_raised(power, largest, largest, top)}")
    return "\n".join(" " * one.col_offset + line for line in lines)


def _separate(
    rises: Filled, adds: Filled, made_by_first: set[str], begun: list[ast.stmt], kept: list[ast.stmt], largest: str
) -> bool:
    """Return whether a sum depends on the maximum before it through `largest` alone, and nothing else on either.

    begun, kept: what lies between the two loops and begins the sum, or does not.
    """
    first, second = (*rises.others, rises.value), (*adds.others, adds.value)
    made = stored_names(*kept)
    known = names_in(*second) & {rises.name, *made}  # what the second loop knows of the first
    early = names_in(*begun) & {rises.name, *made, *made_by_first}
    return all((
        (rises.kind, adds.kind, rises.shape) == ("maximum", "sum", adds.shape),
        known == {largest} and not early,
        rises.name not in made | names_in(*first),
        adds.name not in names_in(*first, *kept, *second),
    ))  # fmt: skip


def _largest(between: list[ast.stmt], top: str, read: set[str]) -> str:
    """Return the name of the maximum over the lanes of `top`; `top` itself if none of those that are read is so."""
    for statement in between:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[ast.Name(id=of), *_]) as value) if (
                of == top and is_tl(value, "max")
            ):
                return name if name in read else top
    return top


def _power(added: ast.expr, largest: str) -> ast.Call | None:
    """Return the one power of `something - largest` of which a value is a multiple; None for any other value."""
    node = added
    while is_tl(node, "sum", "where"):
        if is_tl(node, "where") and (len(node.args) != 3 or ast.unparse(node.args[2]) not in ("0.0", "0")):
            return None
        node = operand(node, 1, "x") if is_tl(node, "where") else operand(node, 0, "input")
    places = [n for n in nodes(added, ast.Name) if n.id == largest]
    if is_tl(node, "exp", "exp2") and len(places) == 1 and _difference(node, largest) is not None:
        return node
    return None


def _difference(power: ast.Call, largest: str) -> ast.BinOp | None:
    """Return `something - largest` of a power, which may be multiplied by a number."""
    node = operand(power, 0, "x")
    scaled = matched("_difference * _number", node)
    if scaled and isinstance(scaled["_number"], ast.Constant):
        node = scaled["_difference"]
    fits = any(matched(form, node, _largest=largest) for form in ("_value - _largest", "_value - _largest[_lanes]"))
    return node if fits and isinstance(node, ast.BinOp) else None


def _raised(power: ast.Call, largest: str, shift: str, top: str) -> str:
    """Return the text of the power of `top - shift`: by this the sum shrinks where the maximum grows."""
    power = copy.deepcopy(power)
    difference = _difference(power, largest)
    assert difference is not None
    difference.left, difference.right = ast.Name(top), ast.Name(shift)
    return ast.unparse(power)
