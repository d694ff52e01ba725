"""Rewrites of kernels that walk over tiles: split reductions, order of programs, layout of weights, tensor descriptors.

The entries of the catalogue are in rewrites.py.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import NamedTuple

from repro.optimize.guards import chosen, copied, every_kernel, plain, statement_of
from repro.optimize.kernel_source import (
    ADDING,
    GRID,
    MEMORY,
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
    given,
    is_tl,
    joined,
    lanewise,
    loops_in,
    loops_of,
    mask_of,
    matched,
    names_in,
    needed,
    nodes,
    operand,
    parameters,
    pointers,
    program_axis,
    program_ids,
    ranged,
    reached,
    reaches,
    reads,
    require,
    stored_names,
    substituted,
    uncast,
    value_of,
)
from repro.optimize.knobs import append_arguments

Pair = tuple[str, str]
SPLITS = 8
# The tile with which T25 begins.
TILE_ROWS, TILE_COLUMNS = 4, 64
# How lanes become the rows and the columns of a tile.
ROWS, COLUMNS = "[:, None]", "[None, :]"
# Weights with more elements are not packed anew in each call.
SMALL_WEIGHT = 1 << 20


# -- T4


@every_kernel
def split_reduction(source: KernelSource, name: str) -> str:
    """The loop that adds up is shared by several programs; a second kernel adds their parts, in a fixed order."""
    kernel, launch = source.only(name)
    loop, total, block = _sum_loop(kernel)
    stores = calls(kernel, "store")
    source.own_ids(name)
    require("the sum is not stored as it is", len(stores) == 1, plain(kernel, launch))
    value = operand(stores[0], 1, "value")
    require("the sum is not stored as it is", _is_sum(kernel, value, total))
    target = _written(kernel, stores[0])
    output = source.argument(launch, target)
    statement = statement_of(launch)
    made = assigned(launch.function, output) if output and output.isidentifier() else []
    empty = any(isinstance(v, ast.Call) and ast.unparse(v.func).startswith("torch.empty") for v in made)
    require("the output is not allocated beside the launch", empty)
    parts = source.grid_parts(launch)
    require("the grid has no dimension left", len(parts) < 3)
    parameter, size, count = source.fresh("SPLIT"), source.fresh("out_elements"), source.fresh("split")
    partial, adder = source.fresh("partial"), source.fresh("add_parts")
    end, at = source.of(range_of(loop).args[1]), f"tl.program_id({len(parts)})"
    chunk = f"tl.cdiv(tl.cdiv({end}, {parameter}), {block}) * {block}"
    address = address_of(stores[0])
    passed = needed(launch.place(output), "the output is not passed by its place")
    indent = " " * statement.col_offset
    before = (
        f"{count} = {SPLITS}",
        f"{partial} = torch.empty(({count}, {output}.numel()), device={output}.device, dtype=torch.float32)",
    )
    after = f"\n{indent}{adder}[(triton.cdiv({output}.numel(), 256),)](\n{indent}    {partial}, {output}, "
    after += f"{output}.numel(), PARTS={count}, BLOCK=256,\n{indent})"
    edits = [
        source.replace(range_of(loop), f"range({at} * ({chunk}), tl.minimum(({at} + 1) * ({chunk}), {end}), {block})"),
        source.replace(address, f"{source.of(address)} + {at}.to(tl.int64) * {size}"),
        source.replace(value, total),
        source.parameter(kernel, size, f"{parameter}: tl.constexpr"),
        source.before(statement, *before),
        source.replace(passed, partial),
        source.replace(launch.grid, f"({', '.join(parts)}, {count})"),
        append_arguments(source, launch, f"{size}={output}.numel(), {parameter}={count}"),
        source.after(statement, after),
        source.above(kernel, ADDER.format(name=adder)),
    ]
    return source.apply(edits)


ADDER = '''@triton.jit
def {name}(parts_ptr, out_ptr, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Add PARTS rows of n partial sums."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(parts_ptr + part * n + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, total, mask=at < n)


'''


def range_of(loop: ast.For) -> ast.Call:
    """Return the call of a loop over `range(...)`."""
    assert isinstance(loop.iter, ast.Call)
    return loop.iter


def _sum_loop(kernel: Function) -> tuple[ast.For, str, str]:
    """Return the one outer loop in steps of a block, the sum that it fills from zeros, and the block."""
    loops = loops_of(body_of(kernel))
    steps = "there is not one loop from 0 in steps of a block"
    require(steps, len(loops) == 1)
    (loop,) = loops
    start, _, step = ranged(loop, 3) or ("", "", "")
    require(steps, start == "0", step in constexprs(kernel))
    filled = needed(filled_by(kernel, loop), "the loop does not fill one sum from zeros")
    require("the loop does not fill one sum from zeros", filled.kind == "sum", filled.shape != "number")
    return loop, filled.name, step


@dataclass(frozen=True)
class Filled:
    """A loop that carries one name. kind: `sum` or `maximum` of `value`. shape: that of the name, as text."""

    name: str
    kind: str
    shape: str
    value: ast.expr
    others: list[ast.stmt]


def filled_by(kernel: Function, loop: ast.For) -> Filled | None:
    """Return what a loop fills, beginning with zeros or with -inf everywhere; None for any other loop."""
    outside = ast.Module([s for s in kernel.body if not isinstance(s, ast.For)], [])
    carried = [n for n in stored_names(ast.Module(loop.body, [])) if assigned(outside, n)]
    if len(carried) != 1:
        return None
    (name,) = carried
    begun, updates = assigned(outside, name), [s for s in loop.body if name in stored_names(s)]
    if len(begun) != 1 or len(updates) != 1:
        return None
    kind, value = _joins(updates[0], name)
    rest, shape = [s for s in loop.body if s not in updates], _begins(begun[0], kind)
    if value is None or not shape or name in names_in(ast.Module([*rest, ast.Expr(value)], [])):
        return None
    return Filled(name, kind, shape, value, rest)


def _joins(update: ast.stmt, name: str) -> tuple[str, ast.expr | None]:
    """Return how a statement joins a value to a name, `sum` or `maximum`, and the value; None if it does not."""
    match update:
        case ast.AugAssign() | ast.Assign(targets=[ast.Name()]):
            (new,) = assigned(update, name)
        case _:
            return "", None
    joins = {"_name + _v": "sum", "tl.maximum(_name, _v)": "maximum", "tl.maximum(_v, _name)": "maximum"}
    for pattern, kind in joins.items():
        if found := matched(pattern, new, _name=name):
            return kind, found["_v"]
    return "", None


def _begins(first: ast.expr, kind: str) -> str:
    """Return the shape of what a sum or a maximum begins with, "number" for one; "" if it is not zero or -inf."""
    text = ast.unparse(first)
    least = "-inf" in text or "-float('inf')" in text
    if least is not (kind == "maximum"):
        return ""
    if is_tl(first, "full" if least else "zeros"):
        return ast.unparse(operand(first, 0, "shape"))
    return "number" if text in ("0.0", "float('-inf')", "-float('inf')") else ""


def _is_sum(kernel: Function, stored: ast.expr, total: str) -> bool:
    """Return whether a stored value is the sum, or the sum in the output's type."""
    values = assigned(kernel, stored.id) if isinstance(stored, ast.Name) and stored.id != total else [stored]
    return len(values) == 1 and re.fullmatch(rf"{total}(\.to\([\w.]+\))?", ast.unparse(values[0])) is not None


def _written(kernel: Function, store: ast.Call) -> str:
    bases = reaches(kernel, address_of(store))[0] & pointers(kernel)
    require("the stored address is not of one pointer", len(bases) == 1)
    return bases.pop()


# -- T13


@every_kernel
def packed_weight(source: KernelSource, name: str) -> str:
    """A small tensor whose lanes lie K elements apart is transposed before the launch, so that they are neighbours."""
    kernel, launch = source.only(name)
    require("it is no product, or chooses between kernels", calls(kernel, "dot"), plain(kernel, launch))
    for load in calls(kernel, "load"):
        whole = _inlined(kernel, address_of(load))
        apart = _apart(kernel, whole)
        found = names_in(whole) & pointers(kernel)
        if apart is None or len(found) != 1:
            continue
        (pointer,) = found
        others = [names_in(_inlined(kernel, address_of(c))) for c in calls(kernel, *MEMORY)]
        if sum(pointer in each for each in others) == 1 and not assigned(kernel, pointer):
            return _packed(source, kernel, launch, load, whole, pointer, apart)
    raise NotApplicable("no tensor is read with lanes that lie apart")


def _packed(
    source: KernelSource, kernel: Function, launch: Launch, load: ast.Call, whole: ast.expr, pointer: str, apart: str
) -> str:
    tensor = source.argument(launch, pointer)
    passed = launch.place(tensor)
    if tensor is None or not tensor.isidentifier() or passed is None:
        raise NotApplicable("the tensor is not passed by its name")
    if any(isinstance(a, ast.Starred) for a in launch.call.args[: launch.call.args.index(passed)]):
        raise NotApplicable("the tensor is not passed by its name")
    offset = ast.unparse(substituted(whole, {pointer: ast.Constant(0)}.get))
    rows = source.fresh("PACKED_ROWS")
    packed, distance = source.fresh("packed"), source.fresh("apart")
    # the distance is the product of the tensor's last dimensions, which the wrapper knows from its shape
    before = (
        f"{distance} = {tensor}[0, 0].numel() if {tensor}.dim() > 2 else 1",
        f"{packed} = {tensor}.numel() <= {SMALL_WEIGHT} and {tensor}.is_contiguous() and {distance} > 1",
        f"if {packed}:",
        f"    {tensor} = {tensor}.reshape(-1, {distance}).t().contiguous()",
    )
    helper = source.fresh("packed_offset")
    edits = [
        source.replace(address_of(load), f"{pointer} + {helper}({offset}, {apart}, {rows})"),
        source.parameter(kernel, f"{rows}: tl.constexpr"),
    ]
    changed = copied(source, kernel.name, "packed", edits, packed, f"{rows}={tensor}.numel() // {distance}")
    again = KernelSource(changed)
    statement = statement_of(_launch_of(again, kernel.name))
    text = PACKED.format(name=helper)
    return again.apply([again.before(statement, *before), again.above(again.kernels[kernel.name], text)])


def _launch_of(source: KernelSource, kernel: str) -> Launch:
    """Return the launch of a kernel, also where it is one among several names."""
    for launch in source.launches:
        assert isinstance(launch.call.func, ast.Subscript)
        if kernel in names_in(launch.call.func.value):
            return launch
    raise NotApplicable("the launch is lost")


PACKED = '''@triton.jit
def {name}(offset, APART: tl.constexpr, ROWS: tl.constexpr):
    """Where the element at `offset` lies after rows of APART elements were transposed."""
    return offset % APART * ROWS + offset // APART


'''


def _inlined(kernel: Function, node: ast.expr, depth: int = 0) -> ast.expr:
    """Return an address with names of single assignments to sums and products of addresses put in."""

    def address(name: str) -> ast.expr | None:
        values = assigned(kernel, name)
        single = len(values) == 1 and isinstance(values[0], ast.BinOp) and depth < 3
        if not single or not (names_in(values[0]) & pointers(kernel) or _is_lanes(values[0])):
            return None
        return _inlined(kernel, values[0], depth + 1)

    return substituted(node, address)


def _is_lanes(node: ast.expr) -> bool:
    return COLUMNS in ast.unparse(node) and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add)


def _apart(kernel: Function, whole: ast.expr) -> str | None:
    """Return the product of constants by which the last lanes of an address are multiplied."""
    for node in ast.walk(whole):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and COLUMNS in ast.unparse(node.left):
            names = names_in(node.right)
            if names and names <= constexprs(kernel) and isinstance(node.left, ast.BinOp):
                return f"({ast.unparse(node.right)})"
    return None


# -- T18


@dataclass(frozen=True)
class Tile:
    """A load of a tile. starts: its first row and column; sizes, blocks: of the matrix and the tile, as parameters.

    stride: the parameter by which rows lie apart; "" for the row's width. column_stride: "" for 1.
    """

    load: ast.Call
    pointer: str
    starts: Pair
    sizes: Pair
    blocks: Pair
    stride: str = ""
    column_stride: str = ""


@every_kernel
def descriptors(source: KernelSource, name: str) -> str:
    """Loads of whole tiles of matrices go through tensor descriptors, where the hardware copies tiles."""
    kernel, launch = source.only(name)
    require("the launch chooses between kernels", plain(kernel, launch))
    source = _blocks_named(source, launch, {block for tile in _tiles(kernel) for block in tile.blocks})
    kernel, launch = source.only(name)
    described = source.fresh("described")
    edits, names, guards, made = list[Edit](), list[str](), list[str](), list[str]()
    for tile in _tiles(kernel):
        strides = (tile.stride, tile.column_stride) if tile.stride else ()
        passed = [source.constant(launch, name) for name in (tile.pointer, *tile.sizes, *tile.blocks, *strides)]
        if None in passed:
            continue
        tensor, *numbers = map(str, passed)
        described_tile = _described(tile, tensor, numbers)
        names.append(f"{source.fresh('tile_desc')}_{len(names)}")
        edits.append(source.replace(tile.load, described_tile.loaded.format(names[-1])))
        guards.append(described_tile.guard)
        made.append(f"{names[-1]}=TensorDescriptor({tensor}, {described_tile.shape}) if {described} else None")
    require("no load is of a whole tile of a matrix that the launch names", edits)
    edits.append(source.parameter(kernel, *names))
    changed = KernelSource(copied(source, kernel.name, "tiles", edits, described, ", ".join(made)))
    statement = statement_of(_launch_of(changed, kernel.name))
    wide = f"(not {tensor}.is_cuda or torch.cuda.get_device_capability({tensor}.device)[0] >= 9)"
    lines = (f"{described} = (", f"    {wide}", *(f"    and {guard}" for guard in guards), ")")
    top = min(node.lineno for node in changed.tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    place = len("".join(changed.text.splitlines(keepends=True)[: top - 1]).encode())
    line = "from triton.tools.tensor_descriptor import TensorDescriptor\n"
    return changed.apply([changed.before(statement, *lines), Edit(place, place, line)])


class _Described(NamedTuple):
    """Texts of a tensor descriptor: the load (`{}`: its name), when it holds, and shape, strides and tile."""

    loaded: str
    guard: str
    shape: str


def _described(tile: Tile, tensor: str, numbers: list[str]) -> _Described:
    """Return the descriptor of a tile. numbers: rows, columns, the tile's rows and columns, and strides if any."""
    sizes, edges, starts = numbers[:2], numbers[2:4], list(tile.starts)
    apart, loaded, guard = sizes[1], "{}", f"{tensor}.is_contiguous()"
    if len(numbers) > 4:
        apart, step = numbers[4:]
        guard = f"({step}) == 1"
        if apart.startswith("1"):  # columns of the tile are contiguous
            sizes, edges, starts, apart, guard = sizes[::-1], edges[::-1], starts[::-1], step, f"({apart}) == 1"
            loaded = "tl.trans({})"
    guard += f" and ({apart}) % 16 == 0 and {tensor}.data_ptr() % 16 == 0"
    guard += f" and ({edges[1]}) * {tensor}.element_size() >= 16 and max({edges[0]}, {edges[1]}) <= 256"
    load = loaded.format(f"{{}}.load([{starts[0]}, {starts[1]}])")
    return _Described(load, guard, f"[{sizes[0]}, {sizes[1]}], [{apart}, 1], [{edges[0]}, {edges[1]}]")


def _tiles(kernel: Function) -> list[Tile]:
    return [tile for load in calls(kernel, "load") if (tile := _tile(kernel, load))]


def _blocks_named(source: KernelSource, launch: Launch, blocks: set[str]) -> KernelSource:
    """Return the source with a local name for each of these blocks that a launch passes as a number.

    So a knob turns it everywhere.
    """
    statement, edits = statement_of(launch), list[Edit]()
    for block in sorted(blocks):
        passed = source.passed(launch, block)
        if isinstance(passed, ast.Constant):
            local = source.fresh(block.lower())
            edits += [source.before(statement, f"{local} = {source.of(passed)}"), source.replace(passed, local)]
    return KernelSource(source.apply(edits))


def _tile(kernel: Function, load: ast.Call) -> Tile | None:
    """Return the tile of `ptr + rows[:, None] * STRIDE + cols[None, :] * STRIDE`, whose mask bounds both."""
    found, mask = _matrix(kernel, load), mask_of(load)
    if found is None or found[1] not in pointers(kernel) or _other(load) not in ("0.0", "0") or mask is None:
        return None
    ends = re.fullmatch(rf"\({found[2]} < (\w+)\)\[:, None\] & \({found[4]} < (\w+)\)\[None, :\]",
                        ast.unparse(value_of(kernel, mask)))  # fmt: skip
    rows, columns = _lanes(kernel, found[2]), _lanes(kernel, found[4])
    if ends is None or rows is None or columns is None or not (found[5] or found[3] == ends[2]):
        return None
    strides = (found[3], found[5]) if found[5] else ("", "")
    return Tile(load, found[1], (rows[0], columns[0]), (ends[1], ends[2]), (rows[1], columns[1]), *strides)


def _matrix(kernel: Function, load: ast.Call) -> re.Match[str] | None:
    """Return the pointer, and the lanes and strides of rows and columns, of a tile; the last is None for 1."""
    text = ast.unparse(_inlined(kernel, address_of(load))).replace(".to(tl.int64)", "")
    return re.fullmatch(r"(\w+) \+ \(?(\w+)\[:, None\] \* (\w+) \+ (\w+)\[None, :\](?: \* (\w+))?\)?", text)


def _other(load: ast.Call) -> str:
    """Return the text of what a load gives where its mask does not hold."""
    found = given(load, 2, "other")
    return "" if found is None else ast.unparse(found)


def _lanes(kernel: Function, name: str) -> Pair | None:
    """Return (start, block) of `name = start + tl.arange(0, block)`."""
    values = assigned(kernel, name)
    lanes = lanes_of(values[0]) if len(values) == 1 else None
    return None if lanes is None else (ast.unparse(lanes[0]), lanes[1])


def lanes_of(value: ast.expr) -> tuple[ast.expr, str] | None:
    """Return (start, block) of `start + tl.arange(0, block)`; None for anything else."""
    found = matched("_start + tl.arange(0, __block)", value)
    return (found["_start"], ast.unparse(found["__block"])) if found else None


# -- T19


def dot_tf32(source: KernelSource) -> str:
    """Products of float32 use TF32."""
    edits = []
    for kernel in source.kernels.values():
        for call in calls(kernel, "dot"):
            known = next((k for k in call.keywords if k.arg == "input_precision"), None)
            if known is not None and ast.unparse(known.value) != "'tf32'":
                edits.append(source.replace(known.value, '"tf32"'))
    return source.changed(edits, "no product names its precision")


# -- T20


@every_kernel
def skipped(source: KernelSource, name: str) -> str:
    """Products with a tile that is masked everywhere are skipped: in a transposed convolution most taps are so.

    The other matrix must be finite: 0 times inf would be no number.
    """
    kernel = source.kernels[name]
    innermost = [inner for inner in loops_in(kernel) if len(loops_in(inner)) == 1]
    for loop, mask in [(inner, mask) for inner in innermost for mask in _empty_when(inner)]:
        idle = _idle(kernel, loop, mask)
        test = f"if tl.max({mask}.to(tl.int32)) > 0:"
        if idle and test not in source.text:
            begin, end, indent = source.line(idle[0]), source.end(idle[-1]), " " * idle[0].col_offset
            lines = source.between([], begin, end).split("\n")
            moved = "\n".join(f"    {line}" if line.strip() else line for line in lines)
            return source.apply([Edit(begin, end, f"{indent}{test}\n{moved}")])
    raise NotApplicable("no product's tile can be masked everywhere")


def _idle(kernel: Function, loop: ast.For, mask: str) -> list[ast.stmt]:
    """Return the statements that do nothing where a mask holds nowhere; empty if that is not known of them."""
    if len(assigned(kernel, mask)) != 1:
        return []
    made = next((at for at, s in enumerate(loop.body) if mask in stored_names(s)), len(loop.body))
    idle: list[ast.stmt] = loop.body[made + 1 :] if mask in stored_names(loop) else [loop]
    live = _live_after(kernel, idle) & stored_names(ast.Module(idle, [])) - _sums(loop)
    return [] if live else idle


def _empty_when(loop: ast.For) -> list[str]:
    """Return the masks that, where they hold nowhere, make every product of a loop zero."""
    factors = [o.id for product in calls(loop, "dot") for o in product.args[:2] if isinstance(o, ast.Name)]
    masks = [part for factor in factors for load in _zero_filled(loop, factor) for part in _mask_parts(loop, load)]
    return [n.value.id for n in masks if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)]


def _zero_filled(loop: ast.For, name: str) -> list[ast.Call]:
    """Return the loads that a name gets in a loop with zeros outside their mask; its other values keep zeros."""
    values = assigned(loop, name)
    loads = [(value, load) for value in values if (load := _load(value)) and _other(load) in ("0.0", "0")]
    return [load for value, load in loads if all(v is value or _zeroed(v, name) for v in values)]


def _load(value: ast.expr) -> ast.Call | None:
    """Return the load that a value is, perhaps in another type; None for any other value."""
    load = uncast(value)
    return load if is_tl(load, "load") else None


def _mask_parts(loop: ast.For, load: ast.Call) -> list[ast.expr]:
    """Return what `&` joins to a load's mask, which may have a name in the loop."""
    mask = mask_of(load)
    return joined(mask and value_of(loop, mask))


def _zeroed(value: ast.expr, name: str) -> bool:
    """Return whether a value is `tl.where(condition, name, zeros)` or the same in another type: zeros stay zeros."""
    value = uncast(value)
    if not is_tl(value, "where") or len(value.args) != 3:
        return ast.unparse(value) == name
    kept, zeros = map(ast.unparse, value.args[1:])
    return kept == name and zeros in ("0", "0.0", f"tl.zeros_like({name})")


def _sums(loop: ast.For) -> set[str]:
    """Return the names that a loop only adds products to: `acc = tl.dot(a, b, acc)`."""
    added = [(ast.unparse(s.targets[0]), s.value) for s in loop.body if isinstance(s, ast.Assign)]
    return {name for name, value in added if matched("tl.dot(_a, _b, _sum)", value, _sum=name)}


def _live_after(kernel: Function, idle: list[ast.stmt]) -> set[str]:
    """Return the names that a kernel reads outside some statements."""
    inside = {id(node) for statement in idle for node in ast.walk(statement)}
    return {n.id for n in nodes(kernel, ast.Name)
            if isinstance(n.ctx, ast.Load) and id(n) not in inside}  # fmt: skip


# -- T22


@every_kernel
def residue_order(source: KernelSource, name: str) -> str:
    """Positions that share their residues by the stride come together, so that whole tiles have the same taps."""
    kernel = source.kernels[name]
    if calls(kernel, *{*ADDING} - {"dot"}):
        raise NotApplicable("lanes are added up")
    for lanes, statement in _lane_statements(kernel):
        found = _volume(kernel, lanes)
        if found is None:
            continue
        names, sizes = found
        strides = _divisors(kernel, names)
        if strides is None:
            continue
        helper = source.fresh("residue_order")
        line = f"\n{' ' * statement.col_offset}{lanes} = {helper}({lanes}, {', '.join((*sizes, *strides))})"
        return source.apply([source.after(statement, line), source.above(kernel, RESIDUES.format(name=helper))])
    raise NotApplicable("no block of positions is taken apart into three coordinates that strides divide")


RESIDUES = '''@triton.jit
def {name}(at, D, H, W, SD, SH, SW):
    """Return the position in D x H x W that comes `at`-th if equal residues by SD, SH and SW come together."""
    found = at
    start = 0
    for rd in range(SD):
        for rh in range(SH):
            for rw in range(SW):
                high = (H - rh + SH - 1) // SH
                wide = (W - rw + SW - 1) // SW
                many = (D - rd + SD - 1) // SD * high * wide
                q = at - start
                d, h, w = q // (high * wide) * SD + rd, q // wide % high * SH + rh, q % wide * SW + rw
                found = tl.where((q >= 0) & (q < many), (d * H + h) * W + w, found)
                start += many
    return found


'''


def _lane_statements(kernel: Function) -> list[tuple[str, ast.stmt]]:
    """Return the names of blocks of lanes that are assigned once, with their statements."""
    lanes: list[tuple[str, ast.stmt]] = []
    for statement in body_of(kernel):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp() as value) if calls(value, "arange"):
                lanes += [(name, statement)] * (len(assigned(kernel, name)) == 1)
    return lanes


def _volume(kernel: Function, lanes: str) -> tuple[list[str], list[str]] | None:
    """Return the names of depth, row and column into which a flat position is taken apart, and the three sizes."""
    parts = {}
    for node in ast.walk(kernel):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and len(assigned(kernel, node.id)) == 1:
            parts[node.id] = _with_quotients(kernel, assigned(kernel, node.id)[0], lanes)
    for column, width in _named_by("_lanes % __n", parts, _lanes=lanes):
        for row, height in _named_by("_lanes // _width % __n", parts, _lanes=lanes, _width=width):
            forms = (f"{lanes} // ({height} * {width})", f"{lanes} // {width} // {height}")
            depth = next((n for n, value in parts.items() if ast.unparse(value) in forms), None)
            tall = _depth_size(kernel, lanes, height, width)
            if depth is not None and tall is not None:
                return [depth, row, column], [tall, height, width]
    return None


def _named_by(pattern: str, parts: dict[str, ast.expr], **known: str) -> list[tuple[str, str]]:
    """Return the names whose value has a form, each with the pattern's one name."""
    found = ((name, matched(pattern, value, **known)) for name, value in parts.items())
    return [(name, ast.unparse(each["__n"])) for name, each in found if each]


def _with_quotients(kernel: Function, value: ast.expr, lanes: str) -> ast.expr:
    """Return an expression with the names of quotients of the lanes put in."""

    def quotient(name: str) -> ast.expr | None:
        match assigned(kernel, name):
            case [ast.BinOp(op=ast.FloorDiv()) as value] if name != lanes and lanes in names_in(value):
                return value
        return None

    return substituted(value, quotient)


def _depth_size(kernel: Function, lanes: str, height: str, width: str) -> str | None:
    """Return the first size of the volume, by the bound of the lanes: the product of all three."""
    for node in nodes(kernel, ast.Compare):
        if ast.unparse(node.left) == lanes and isinstance(node.ops[0], ast.Lt):
            factors = re.sub("[()]", "", ast.unparse(value_of(kernel, node.comparators[0]))).split(" * ")
            rest = [f for f in factors if f.isidentifier() and f not in (height, width)]
            if sorted((*rest, height, width)) == sorted(factors) and len(rest) == 1:
                return rest[0]
    return None


def _divisors(kernel: Function, coordinates: list[str]) -> list[str] | None:
    """Return for each coordinate the stride S of a test `(something of it) % S == 0`."""
    found = dict[str, str]()
    for test in filter(None, (matched("_value % __stride == 0", node) for node in nodes(kernel, ast.Compare))):
        names = reaches(kernel, test["_value"])[0]
        found |= {each: ast.unparse(test["__stride"]) for each in coordinates if each in names}
    return [found[each] for each in coordinates] if len(found) == len(coordinates) else None


# -- T25


@every_kernel
def row_tiles(source: KernelSource, name: str) -> str:
    """Lanes that a flat index takes apart by the width of a row become tiles of rows and columns.

    Then no lane divides, and what depends on the row alone is computed and loaded once a row.
    """
    kernel, launch = source.only(name)
    lanes, statement, axis, block = _flat_lanes(source, kernel, launch)
    total, width, bounds = _flat_sizes(kernel, lanes)
    whole = grid_covers(source, launch, axis, total, block)
    require("no flat index over the whole output is taken apart by a width that is an argument", width, whole)
    for call in calls(kernel, *MEMORY):
        mask = mask_of(call)
        inside = f"{lanes} < {total}" in map(ast.unparse, joined(mask and value_of(kernel, mask)))
        free = not is_tl(call, "store") and not _by_lane(kernel, call, lanes, width)
        require("an access is not bounded by the size of the output", inside or free)
    row, column, across = source.fresh("row"), source.fresh("column"), source.fresh("across")
    rows, columns = source.fresh("ROWS"), source.fresh("COLUMNS")
    edits = [source.replace(n, f"(({column} < {width}) & ({source.of(n)}))") for n in bounds]
    for by, text in (("%", column), ("//", row)):
        edits += [source.replace(n, text) for n in nodes(kernel, ast.BinOp) if _divided(n, lanes, by) == width]
    shapes = [operand(call, 0, "shape") for call in calls(kernel, "zeros", "full")]
    edits += [source.replace(shape, f"[{rows}, {columns}]") for shape in shapes]
    indent, cast = " " * statement.col_offset, ".to(tl.int64)" if "int64" in ast.unparse(statement) else ""
    parameter = next(a for a in kernel.args.args if a.arg == block)
    keyword = needed(launch.keyword(block), "the block is not passed by its name")
    grid = source.grid_parts(launch)
    meta = f'triton.cdiv(meta["{width}"], meta["{columns}"])'
    grid[axis] = f'triton.cdiv(triton.cdiv(meta["{total}"], meta["{width}"]), meta["{rows}"]) * {meta}'
    return source.apply([
        *edits,
        source.replace(statement, f"""{across} = tl.cdiv({width}, {columns})
{indent}{row} = (tl.program_id({axis}) // {across}){cast} * {rows} + tl.arange(0, {rows})[:, None]
{indent}{column} = tl.program_id({axis}) % {across} * {columns} + tl.arange(0, {columns})[None, :]
{indent}{lanes} = {row} * {width} + {column}"""),
        source.replace(parameter, f"{rows}: tl.constexpr, {columns}: tl.constexpr"),
        source.replace(keyword, f"{rows}={TILE_ROWS}, {columns}={TILE_COLUMNS}"),
        source.replace(launch.grid, f"lambda meta: ({', '.join(grid)},)"),
    ])  # fmt: skip


def _flat_sizes(kernel: Function, lanes: str) -> tuple[str, str, list[ast.expr]]:
    """Return the size that bounds the lanes, the width that takes them apart, and their bounds; "" if unknown."""
    widths = (_divided(node, lanes, "%") for node in ast.walk(kernel))
    width = next(filter(None, widths), "")
    bounds: list[ast.expr] = [n for n in nodes(kernel, ast.Compare) if lanes in names_in(n)]
    totals = {ast.unparse(n).removeprefix(f"{lanes} < ") for n in bounds}
    total = totals.pop() if len(totals) == 1 else ""
    given_once = {total, width} <= {p for p in parameters(kernel) if not assigned(kernel, p)}
    return (total, width, bounds) if given_once else ("", "", bounds)


def _flat_lanes(source: KernelSource, kernel: Function, launch: Launch) -> tuple[str, ast.stmt, int, str]:
    """Return a kernel's only lanes `program_id(axis) * BLOCK + arange(0, BLOCK)`: name, statement, axis, BLOCK."""
    lanes_of, arrays = _lane_statements(kernel), calls(kernel, "zeros", "full")
    one = len(lanes_of) == 1 and len(calls(kernel, "arange")) == 1
    require("the kernel has not one block of lanes, or the launch chooses between kernels", one, not chosen(launch))
    ((lanes, statement),) = lanes_of
    assert isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp)
    block = ast.unparse(operand(calls(statement, "arange")[0], 1, "end"))
    no_block = "the lanes are no block of a grid dimension, or a tile has another shape"
    axis = needed(program_axis(kernel, statement.value.left, block), no_block)
    shapes = {ast.unparse(operand(call, 0, "shape")) for call in arrays}
    require(no_block, launch.keyword(block), shapes <= {f"[{block}]", f"({block},)"})
    _, *others = source.helpers(kernel.name)
    known = [helper.name for helper in others]
    alone = lanewise(kernel, *MEMORY, *GRID, "arange", *known) and all(lanewise(helper, *known) for helper in others)
    uses = sum(n.id == block for n in nodes(kernel, ast.Name))
    require("the block's size or order matters elsewhere", alone, uses == 2 + len(arrays))
    body = ast.Module(body_of(kernel), [])
    require("the kernel widens its lanes", not nodes(body, ast.Subscript))
    ids = program_ids(kernel, axis)
    once = all(reads(kernel, n) == 1 for n in reaches(kernel, statement.value.left)[0] if assigned(kernel, n))
    asks = "the kernel asks elsewhere which program it is"
    require(asks, len(ids) == 1, not calls(kernel, "num_programs"), once)
    return lanes, statement, axis, block


def _divided(node: ast.AST, lanes: str, by: str) -> str | None:
    """Return the parameter by which lanes are divided. by: `//` or `%`."""
    found = matched(f"_lanes {by} __n", node, _lanes=lanes)
    return ast.unparse(found["__n"]) if found else None


def _by_lane(kernel: Function, load: ast.Call, lanes: str, width: str | None) -> bool:
    """Return whether a load's address depends on more of the lanes than on their rows."""
    every = reached(kernel, address_of(load))
    rows = {id(n.left) for n in every if isinstance(n, ast.BinOp) and _divided(n, lanes, "//") == width}
    return any(isinstance(n, ast.Name) and n.id == lanes and id(n) not in rows for n in every)


def grid_covers(source: KernelSource, launch: Launch, axis: int, total: str, block: str) -> bool:
    """Return whether a grid dimension is `triton.cdiv(total, BLOCK)`, in the launch's words."""
    size, step = (source.constant(launch, name) for name in (total, block))
    try:
        parts = source.grid_parts(launch)
    except NotApplicable:
        return False
    if axis >= len(parts) or size is None or step is None:
        return False
    due = ast.dump(ast.parse(f"triton.cdiv({size}, {step})", mode="eval"))
    return ast.dump(ast.parse(parts[axis], mode="eval")) == due


# -- T26


@every_kernel
def turned_operand(source: KernelSource, name: str) -> str:
    """A matrix that a TF32 product reads across its rows is transposed before the launch, so that K is contiguous.

    The tensor cores take TF32 tiles with K contiguous alone, so the compiler copies others in pieces of four bytes.
    """
    kernel, launch = source.only(name)
    products = [c for c in calls(kernel, "dot") if "tf32" in "".join(ast.unparse(k.value) for k in c.keywords)]
    for factor, first in (pair for c in products for pair in zip(c.args, (True, False), strict=False)):
        passed = _strided(source, kernel, launch, factor, first=first)
        if not passed:
            continue
        matrix, step, rest = map(source.of, passed)
        turned, copy = source.fresh("turned"), source.fresh(f"turned_{matrix}")
        whole = f"{matrix}.dim() == 2 and {matrix}.is_contiguous() and ({step}, {rest}) == ({matrix}.shape[1], 1)"
        lines = (f"{turned} = {whole}", f"{copy} = {matrix}.t().contiguous() if {turned} else {matrix}")
        new = (copy, f"1 if {turned} else {step}", f"{matrix}.shape[0] if {turned} else {rest}")
        edits = [source.replace(node, text) for node, text in zip(passed, new, strict=True)]
        return source.apply([source.before(statement_of(launch), *lines), *edits])
    raise NotApplicable("no product in TF32 reads a matrix across its rows, by two strides")


def _strided(
    source: KernelSource, kernel: Function, launch: Launch, factor: ast.expr, *, first: bool
) -> list[ast.expr]:
    """Return what a launch passes for a factor's matrix and its strides along K and across it.

    Empty if the factor is no tile, if the kernel uses one of the three elsewhere, or if K is contiguous.
    """
    load = _load(value_of(kernel, factor))
    matrix = _matrix(kernel, load) if load else None
    every = matrix.group(1, 5, 3) if matrix and first else matrix.group(1, 3, 5) if matrix else ()
    if not every or None in every:
        return []
    passed = [node for name in every if (node := source.passed(launch, name)) is not None]
    if any(reads(kernel, name) != 1 or assigned(kernel, name) for name in every) or len(passed) < len(every):
        return []
    named = isinstance(passed[0], ast.Name) and not source.of(passed[1]).startswith("1")
    return passed if named else []


def programs_at_once(tensor: str, otherwise: int) -> str:
    """Return the text of how many programs a tensor's GPU runs at once, four on each multiprocessor."""
    return (
        f"torch.cuda.get_device_properties({tensor}.device).multi_processor_count * 4 "
        f"if {tensor}.is_cuda else {otherwise}"
    )


def first_tensor(source: KernelSource, launch: Launch, kernel: Function) -> str | None:
    """Return the launch's text of the first pointer."""
    found = pointers(kernel)
    return next((source.argument(launch, p) for p in parameters(kernel) if p in found), None)
