"""Rewrites of kernels that walk over tiles: split reductions, order of programs, layout of weights, tensor descriptors.

The entries of the catalogue are in rewrites.py.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from repro.optimize.guards import chosen, every_kernel, every_launch, guarded, plain, statement_of
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
    axis_of,
    body_of,
    calls,
    constexprs,
    inlined,
    is_tl,
    joined,
    keyword_of,
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
    parts,
    pointer_of,
    pointers,
    program_axis,
    ranged,
    reached,
    reaches,
    reads,
    require,
    shown,
    stored_names,
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


# -- T4


@every_launch
def split_reduction(source: KernelSource, kernel: Function, launch: Launch) -> str:
    """The loop that adds up is shared by several programs; a second kernel adds their parts, in a fixed order."""
    loop, total, block = _sum_loop(kernel)
    stores = calls(kernel, "store")
    source.own_ids(kernel.name)
    require("the sum is not stored as it is", len(stores) == 1, plain(kernel, launch))
    value = operand(stores[0], 1, "value")
    require("the sum is not stored as it is", ast.unparse(uncast(value_of(kernel, value))) == total)
    target = needed(pointer_of(kernel, stores[0]), "the stored address is not of one pointer")
    output = source.argument(launch, target)
    statement = statement_of(launch)
    made = assigned(launch.function, output) if output and output.isidentifier() else []
    empty = any(isinstance(v, ast.Call) and ast.unparse(v.func).startswith("torch.empty") for v in made)
    require("the output is not allocated beside the launch", empty)
    parts = source.grid_parts(launch)
    require("the grid has no dimension left", len(parts) < 3)
    wanted = ("SPLIT", "out_elements", "split", "partial", "add_parts")
    parameter, size, count, partial, adder = map(source.fresh, wanted)
    end, at = source.of(range_of(loop).args[1]), f"tl.program_id({len(parts)})"
    chunk = f"tl.cdiv(tl.cdiv({end}, {parameter}), {block}) * {block}"
    address = address_of(stores[0])
    passed = needed(source.passed(launch, target), "the output is not passed by its place")
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
    carried = [n for n in stored_names(*loop.body) if assigned(outside, n)]
    if len(carried) != 1:
        return None
    (name,) = carried
    begun, updates = assigned(outside, name), [s for s in loop.body if name in stored_names(s)]
    if len(begun) != 1 or len(updates) != 1:
        return None
    kind, value = _joins(updates[0], name)
    rest, shape = [s for s in loop.body if s not in updates], _begins(begun[0], kind)
    if value is None or not shape or name in names_in(*rest, value):
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


# -- T18


# A load of a tile of a matrix, the tile's first row and column, and names of parameters: the pointer, rows and columns
# of the matrix and of the tile, and the strides of rows and columns where they are parameters.
Tile = tuple[ast.Call, Pair, list[str]]


@every_launch
def descriptors(source: KernelSource, kernel: Function, launch: Launch) -> str:
    """Loads of whole tiles of matrices go through tensor descriptors, where the hardware copies tiles."""
    require("the launch chooses between kernels", plain(kernel, launch))
    source, kernel, launch = _blocks_named(
        source, launch, {block for *_, names in _tiles(kernel) for block in names[3:5]}
    )
    described = source.fresh("described")
    edits, names, guards, made = list[Edit](), list[str](), list[str](), list[str]()
    for load, starts, given_by in _tiles(kernel):
        passed = [source.constant(launch, parameter) for parameter in given_by]
        if None in passed:
            continue
        tensor, *numbers = map(str, passed)
        loaded, guard, shape = _described(starts, tensor, *numbers)
        names.append(f"{source.fresh('tile_desc')}_{len(names)}")
        edits.append(source.replace(load, loaded.format(names[-1])))
        guards.append(guard)
        made.append(f"{names[-1]}=TensorDescriptor({tensor}, {shape}) if {described} else None")
    require("no load is of a whole tile of a matrix that the launch names", edits)
    wide = f"(not {tensor}.is_cuda or torch.cuda.get_device_capability({tensor}.device)[0] >= 9)"
    lines = (f"{described} = (", f"    {wide}", *(f"    and {guard}" for guard in guards), ")")
    top = next(node for node in source.tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    more = source.parameter(kernel, *names)
    return guarded(
        source, kernel.name, "tiles", [*edits, more], described, ", ".join(made), more,
        source.before(statement_of(launch), *lines),
        source.before(top, "from triton.tools.tensor_descriptor import TensorDescriptor"),
    )  # fmt: skip


def _described(
    starts: Pair, tensor: str, rows: str, columns: str, tall: str, wide: str, apart: str = "", step: str = ""
) -> tuple[str, str, str]:
    """Return texts of a tensor descriptor: the load (`{}`: its name), when it holds, and shape, strides and tile.

    tall, wide: rows and columns of the tile. apart, step: strides of rows and columns, if the launch passes them.
    """
    guard, loaded = f"({step}) == 1" if step else f"{tensor}.is_contiguous()", "{}"
    if apart.startswith("1"):  # columns of the tile are contiguous
        starts, rows, columns, tall, wide, guard = starts[::-1], columns, rows, wide, tall, f"({apart}) == 1"
        apart, loaded = step, "tl.trans({})"
    apart = apart or columns
    guard += f" and ({apart}) % 16 == 0 and {tensor}.data_ptr() % 16 == 0"
    guard += f" and ({wide}) * {tensor}.element_size() >= 16 and max({tall}, {wide}) <= 256"
    load = loaded.format(f"{{}}.load([{', '.join(starts)}])")
    return load, guard, f"[{rows}, {columns}], [{apart}, 1], [{tall}, {wide}]"


def _tiles(kernel: Function) -> list[Tile]:
    return [tile for load in calls(kernel, "load") if (tile := _tile(kernel, load))]


def _blocks_named(source: KernelSource, launch: Launch, blocks: set[str]) -> tuple[KernelSource, Function, Launch]:
    """Return the source, kernel and launch with a local name for each of these blocks that is passed as a number.

    So a knob turns it everywhere.
    """
    statement, edits = statement_of(launch), []
    for block in sorted(blocks):
        passed = source.passed(launch, block)
        if isinstance(passed, ast.Constant):
            local = source.fresh(block.lower())
            edits += [source.before(statement, f"{local} = {source.of(passed)}"), source.replace(passed, local)]
    named = KernelSource(source.apply(edits))
    return named, *named.only(launch.kernel)


def _tile(kernel: Function, load: ast.Call) -> Tile | None:
    """Return the tile of `ptr + rows[:, None] * STRIDE + cols[None, :] * STRIDE`, whose mask bounds both."""
    found, mask = _matrix(kernel, load), mask_of(load)
    if found is None or found[1] not in pointers(kernel) or shown(load, 2, "other") not in ("0.0", "0") or mask is None:
        return None
    ends = re.fullmatch(rf"\({found[2]} < (\w+)\)\[:, None\] & \({found[4]} < (\w+)\)\[None, :\]",
                        ast.unparse(value_of(kernel, mask)))  # fmt: skip
    rows, columns = _lanes(kernel, found[2]), _lanes(kernel, found[4])
    if ends is None or rows is None or columns is None or not (found[5] or found[3] == ends[2]):
        return None
    names = [found[1], ends[1], ends[2], rows[1], columns[1], *((found[3], found[5]) if found[5] else ())]
    return load, (rows[0], columns[0]), names


def _matrix(kernel: Function, load: ast.Call) -> re.Match[str] | None:
    """Return the pointer, and the lanes and strides of rows and columns, of a tile; the last is None for 1."""

    def address(value: ast.expr) -> bool:
        of_pointer = bool(names_in(value) & pointers(kernel))
        return isinstance(value, ast.BinOp) and (of_pointer or COLUMNS in ast.unparse(value))

    text = ast.unparse(inlined(kernel, address_of(load), address)).replace(".to(tl.int64)", "")
    return re.fullmatch(r"(\w+) \+ \(?(\w+)\[:, None\] \* (\w+) \+ (\w+)\[None, :\](?: \* (\w+))?\)?", text)


def _lanes(kernel: Function, name: str) -> Pair | None:
    """Return (start, block) of `name = start + tl.arange(0, block)`."""
    lanes = lanes_of(value_of(kernel, ast.Name(name)))
    return None if lanes is None else (ast.unparse(lanes[0]), lanes[1])


def lanes_of(value: ast.expr) -> tuple[ast.expr, str] | None:
    """Return (start, block) of `start + tl.arange(0, block)`; None for anything else."""
    found = matched("_start + tl.arange(0, __block)", value)
    return (found["_start"], ast.unparse(found["__block"])) if found else None


# -- T19, T28, T29


def _products(kernel: Function) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield every product that names its precision, as one of float32 does, with that precision."""
    for call in calls(kernel, "dot"):
        if known := keyword_of(call, "input_precision"):
            yield call, known.value


@every_kernel
def dot_tf32(source: KernelSource, kernel: Function) -> str:
    """Products of float32 use TF32."""
    edits = [source.replace(named, '"tf32"') for _, named in _products(kernel) if ast.unparse(named) != "'tf32'"]
    return source.changed(edits, "no product names its precision")


@every_kernel
def dot_fp16(source: KernelSource, kernel: Function) -> str:
    """Products of float32 use float16: as many bits of mantissa as TF32 at twice its rate, but less range."""
    return source.changed(_in_half(source, kernel), "no product names its precision")


def _in_half(source: KernelSource, kernel: Function) -> list[Edit]:
    operands = [each for call, _ in _products(kernel) for each in call.args[:2]]
    return [source.replace(each, f"({source.of(each)}).to(tl.float16)") for each in operands if not _half(each)]


@every_launch
def halved(source: KernelSource, kernel: Function, launch: Launch) -> str:
    """As `dot_fp16`, and matrices that feed products alone are made so before the launch: half the bytes are loaded."""
    feed = {ast.unparse(value_of(kernel, each)) for call, _ in _products(kernel) for each in call.args[:2]}
    used = [(pointer_of(kernel, call), ast.unparse(call) in feed) for call in calls(kernel, *MEMORY)]
    edits, name = list[Edit](), source.fresh("half")
    for pointer in sorted({of for of, fed in used if of and fed} - {of for of, fed in used if not fed}):
        if passed := source.passed(launch, pointer):
            made = f"{name}_{pointer} = ({source.of(passed)}).to(torch.float16)"
            edits += [source.before(statement_of(launch), made), source.replace(passed, f"{name}_{pointer}")]
    require("no matrix feeds products of float32 alone", edits)
    return source.apply([*edits, *_in_half(source, kernel)])


def _half(value: ast.expr) -> bool:
    return ast.unparse(value).endswith(".to(tl.float16)")


# -- T20


@every_kernel
def skipped(source: KernelSource, kernel: Function) -> str:
    """Products with a tile that is masked everywhere are skipped: in a transposed convolution most taps are so.

    A loop around them is skipped by the part of the mask that is known there. The other matrix must be finite: 0 times
    inf would be no number.
    """
    for loop in reversed(loops_in(kernel)):
        mask, idle = _idle(kernel, loop)
        test = f"if tl.max({mask}.to(tl.int32)) > 0:"
        if idle and test not in source.text:
            begin, end, indent = source.line(idle[0]), source.end(idle[-1]), " " * idle[0].col_offset
            lines = source.between([], begin, end).split("\n")
            moved = "\n".join(f"    {line}" if line.strip() else line for line in lines)
            text = source.apply([Edit(begin, end, f"{indent}{test}\n{moved}")])
            with contextlib.suppress(NotApplicable):
                text = skipped(KernelSource(text))
            return text
    raise NotApplicable("no product's tile can be masked everywhere")


def _idle(kernel: Function, loop: ast.For) -> tuple[str, list[ast.stmt]]:
    """Return the last mask that a loop makes for all its products, and the statements behind it that do nothing where
    it holds nowhere; empty if that is not known of them."""
    masks = [_masks(kernel, loop, product) for product in calls(loop, "dot")]
    for at, made in reversed([*enumerate(loop.body)]):
        mask = ast.unparse(made.targets[0]) if isinstance(made, ast.Assign) else ""
        if masks and all(mask in each for each in masks) and len(assigned(kernel, mask)) == 1:
            idle = loop.body[at + 1 :]
            inside = {id(node) for statement in idle for node in ast.walk(statement)}
            live = {*parameters(kernel), *(n.id for n in nodes(kernel, ast.Name) if id(n) not in inside)}
            live &= stored_names(*idle) - _sums(loop)  # read later, or from step to step
            return mask, [] if live or nodes(loop, ast.Expr) else idle
    return "", []


def _masks(kernel: Function, loop: ast.For, product: ast.Call) -> list[str]:
    """Return the names that `&` joins to the mask of a product's factor, and to their own values."""
    factors = [o.id for o in product.args[:2] if isinstance(o, ast.Name)]
    masks = [part for factor in factors for load in _zero_filled(loop, factor) for part in _mask_parts(loop, load)]
    names = [n.value.id for n in masks if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)]
    for name in names:
        joins = joined(value_of(kernel, ast.Name(name)))
        names += [part.id for part in joins if isinstance(part, ast.Name) and part.id not in names
                  and "arange" in reaches(kernel, part)[1]]  # fmt: skip
    return names


def _zero_filled(loop: ast.For, name: str) -> list[ast.Call]:
    """Return the loads that a name gets in a loop with zeros outside their mask, perhaps in another type; its other
    values keep zeros."""
    values = assigned(loop, name)
    loads = [
        (value, load)
        for value in values
        if is_tl(load := uncast(value), "load") and shown(load, 2, "other") in ("0.0", "0")
    ]
    return [load for value, load in loads if all(v is value or _zeroed(v, name) for v in values)]


def _mask_parts(within: ast.AST, call: ast.Call) -> list[ast.expr]:
    """Return what `&` joins to the mask of a load or store, which may have a name in a loop or kernel."""
    mask = mask_of(call)
    return joined(mask and value_of(within, mask))


def _zeroed(value: ast.expr, name: str) -> bool:
    """Return whether a value is `tl.where(condition, name, zeros)` or the same in another type: zeros stay zeros."""
    value = uncast(value)
    if not is_tl(value, "where") or len(value.args) != 3:
        return ast.unparse(value) == name
    kept, zeros = map(ast.unparse, value.args[1:])
    return kept == name and zeros in ("0", "0.0", f"tl.zeros_like({name})")


def _sums(loop: ast.For) -> set[str]:
    """Return the names that a loop only adds products to: `acc = tl.dot(a, b, acc)`."""
    return {name for name in stored_names(loop)
            if all(matched("tl.dot(_a, _b, _sum)", value, _sum=name) for value in assigned(loop, name))}  # fmt: skip


# -- T22


@every_kernel
def residue_order(source: KernelSource, kernel: Function) -> str:
    """Positions that share their residues by the stride come together, so that whole tiles have the same taps."""
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

    def quotient(value: ast.expr) -> bool:
        return isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv) and lanes in names_in(value)

    parts = {}
    for node in ast.walk(kernel):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and len(assigned(kernel, node.id)) == 1:
            parts[node.id] = inlined(kernel, assigned(kernel, node.id)[0], quotient)
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


# -- T31


PACK = '''@triton.jit
def packed_tile(packed_tiles, {parameters}):
    """Store one of the tiles that many programs of the kernel load."""
    packed_tile_step = tl.program_id(0).to(tl.int64)
    packed_tiles += packed_tile_step * ({rows} * {columns})
    packed_tiles += tl.arange(0, {rows})[:, None] * {columns} + tl.arange(0, {columns})[None, :]
    {taps}tl.store(packed_tiles, {load})


def packed_tiles_of(packed_tile_programs, {parameters}, **packed_tile_options):
    """Return the tiles that many programs of the kernel load, one after another."""
    packed_tile_shape = (packed_tile_programs{steps}, {rows}, {columns})
    packed_tiles = torch.empty(packed_tile_shape, dtype={tensor}.dtype, device={tensor}.device)
    packed_tile[packed_tile_shape[:1]](packed_tiles, {names})
    return packed_tiles


'''
TAP = "{each}, packed_tile_step = packed_tile_step % tl.{count} * ({by}), packed_tile_step // tl.{count}\n    {taps}"
TILE = ("tl.load(packed_tiles + {tile} * tl.cast({rows} * {columns}, tl.int64)"
        " + tl.arange(0, {rows})[:, None] * {columns} + tl.arange(0, {columns})[None, :])")  # fmt: skip


@every_launch
def packed(source: KernelSource, kernel: Function, launch: Launch) -> str:
    """A tile with gaps in memory that many programs load is loaded once, before the launch, and stored without gaps.

    It depends on one axis of a grid of several, and on loops.
    """
    source, kernel, launch = _blocks_named(source, launch, {*parameters(kernel)})
    for load in calls(kernel, "load"):
        with contextlib.suppress(NotApplicable):
            return _packed(source, kernel, launch, load)
    raise NotApplicable("programs share no tile with gaps")


def _packed(source: KernelSource, kernel: Function, launch: Launch, load: ast.Call) -> str:
    whole = inlined(kernel, load, lambda value: "range()" not in ast.unparse(value), 9)
    assert isinstance(whole, ast.Call)
    (axis, rows, columns), grid = _shared_tile(whole), source.grid_parts(launch)
    known = {"rows": rows, "columns": columns, "tensor": str(pointer_of(kernel, load)), "taps": "", "steps": "",
             "parameters": ast.unparse(kernel.args), "names": ", ".join(parameters(kernel)),
             "tile": f"tl.program_id({axis})",
             "load": re.sub(r"tl\.program_id\([^)]*\)", "packed_tile_step", ast.unparse(whole))}  # fmt: skip
    around, fixed = _always(kernel, load), {*parameters(kernel)} - stored_names(kernel)
    for loop in around:
        start, end, by = [*["0"] * (len(range_of(loop).args) == 1), *map(ast.unparse, range_of(loop).args),
                          shown(range_of(loop), 2, "step") or "1"][:3]  # fmt: skip
        known |= {"each": ast.unparse(loop.target), "by": by, "count": f"cdiv({end}, {by})"}
        known |= {"taps": TAP.format(**known), "steps": "{steps} * triton.{count}".format(**known),
                  "tile": "({tile} * tl.{count} + {each} // ({by}))".format(**known)}  # fmt: skip
        require("a loop does not take all its steps", start == "0", len(assigned(kernel, known["each"])) == 1,
                names_in(*range_of(loop).args) <= fixed)  # fmt: skip
    stored = {
        source.argument(launch, str(pointer_of(kernel, n))) for n in source.every(kernel.name) if is_tl(n, "store")
    }
    require(
        "the tile depends on more than arguments and steps, or may be written to, or the kernel is unusual",
        around, len(grid) > max(axis, 1),
        names_in(whole) <= {"tl"} | fixed | {ast.unparse(loop.target) for loop in around},
        not re.search("atomic|packed_tile", source.text), plain(kernel, launch), not kernel.decorator_list[1:],
        source.argument(launch, known["tensor"]) not in (None, *stored), None not in stored,
        not nodes(kernel, ast.Return),
    )  # fmt: skip
    return source.apply([
        source.above(kernel, PACK.format(**known)),
        source.replace(load, TILE.format(**known)),
        source.parameter(kernel, "packed_tiles"),
        source.before(
            statement_of(launch),
            f"packed_tiles = packed_tiles_of({grid[axis]}, "
            + source.of(launch.call).partition("](")[2],  # of another bracket's end it would not parse
        ),
        append_arguments(source, launch, "packed_tiles=packed_tiles"),
    ])  # fmt: skip


def _shared_tile(load: ast.Call) -> tuple[int, str, str]:
    """Return the axis of the grid on which a tile depends, and its rows and columns, none next to each other."""
    address = address_of(load)
    scaled = {n for each in nodes(address, ast.BinOp) if isinstance(each.op, ast.Mult) for n in ast.walk(each)}
    lanes, axes = nodes(address, ast.Subscript), "".join({axis_of(call) for call in calls(load, "program_id")})
    sizes = sorted({(ast.unparse(n.slice), shown(each, 1, "end")) for n in lanes for each in calls(n, "arange")})
    require("the load is of no tile with gaps that depends on one axis", len(axes) == 1, axes.isdigit(),
            [of for of, _ in sizes] == ["(:, None)", "(None, :)"], scaled.issuperset(lanes),
            len(calls(load, "load")) == 1, lanewise(load, "load", "arange", "program_id"))  # fmt: skip
    return int(axes), sizes[0][1], sizes[1][1]


def _always(kernel: Function, load: ast.Call) -> list[ast.For]:
    """Return the loops around a load that is done in each of their steps, or skipped by T20."""
    around = [s for s in nodes(kernel, ast.stmt)[1:] if load in parts(s)]
    guard = "tl.max(__mask.to(tl.int32)) > 0"
    skips = [s for s in around if isinstance(s, ast.If) and not s.orelse and matched(guard, s.test)]
    loops = [loop for loop in loops_of(around) if "range" in ast.unparse(range_of(loop).func)]
    once = isinstance(around[-1], ast.Assign) and not nodes(around[-1], ast.IfExp)
    require("a load is not always done", once, len(loops) + len(skips) + 1 == len(around), mask_of(load) or not skips)
    return loops


# -- T25


@every_launch
def row_tiles(source: KernelSource, kernel: Function, launch: Launch) -> str:
    """Lanes that a flat index takes apart by the width of a row become tiles of rows and columns.

    Then no lane divides, and what depends on the row alone is computed and loaded once a row.
    """
    lanes, statement, axis, block, total, width, bounds = flat_index(source, kernel, launch)
    row, column, across, rows, columns = map(source.fresh, ("row", "column", "across", "ROWS", "COLUMNS"))
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


def flat_index(
    source: KernelSource, kernel: Function, launch: Launch, *bounded: str
) -> tuple[str, ast.Assign, int, str, str, str, list[ast.expr]]:
    """Return a flat index over the whole output, each lane of which is computed alone.

    They are: name, statement, axis and size of the block, size of the output, width of a row, comparisons with the
    size. bounded: the accesses that the size must bound, if not all.
    """
    lanes, statement, axis, block = _flat_lanes(source, kernel, launch)
    total, width, bounds = _flat_sizes(kernel, lanes)
    whole = grid_covers(source, launch, axis, total, block)
    require("no flat index over the whole output is taken apart by a width that is an argument", width, whole)
    for call in calls(kernel, *(bounded or MEMORY)):
        inside = f"{lanes} < {total}" in map(ast.unparse, _mask_parts(kernel, call))
        free = not is_tl(call, "store") and not _by_lane(kernel, call, lanes, width)
        require("an access is not bounded by the size of the output", inside or free)
    return lanes, statement, axis, block, total, width, bounds


def _flat_sizes(kernel: Function, lanes: str) -> tuple[str, str, list[ast.expr]]:
    """Return the size that bounds the lanes, the width that takes them apart, and their bounds; "" if unknown."""
    widths = (_divided(node, lanes, "%") for node in ast.walk(kernel))
    width = next(filter(None, widths), "")
    bounds: list[ast.expr] = [n for n in nodes(kernel, ast.Compare) if lanes in names_in(n)]
    totals = {ast.unparse(n).removeprefix(f"{lanes} < ") for n in bounds}
    total = totals.pop() if len(totals) == 1 else ""
    given_once = {total, width} <= {p for p in parameters(kernel) if not assigned(kernel, p)}
    return (total, width, bounds) if given_once else ("", "", bounds)


def _flat_lanes(source: KernelSource, kernel: Function, launch: Launch) -> tuple[str, ast.Assign, int, str]:
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
    ids = [call for call in calls(kernel, "program_id") if axis_of(call) == str(axis)]
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
