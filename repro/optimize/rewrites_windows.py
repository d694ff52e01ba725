"""Rewrites of kernels that move a window over their input: several outputs of a program, or products of matrices.

The entries of the catalogue are in rewrites.py.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Set
from itertools import dropwhile

from repro.optimize.guards import every_launch, plain
from repro.optimize.kernel_source import (
    MEMORY,
    Edit,
    Function,
    KernelSource,
    Launch,
    NotApplicable,
    assigned,
    axis_of,
    body_of,
    calls,
    constexprs,
    inlined,
    is_tl,
    lanewise,
    loops_in,
    matched,
    names_in,
    needed,
    nodes,
    parameters,
    pointer_of,
    pointers,
    reads,
    require,
    stored_names,
    substituted,
    value_of,
)
from repro.optimize.knobs import append_arguments
from repro.optimize.rewrites_tiles import filled_by, flat_index

# The outputs of a program with which T27 begins, and what it names in a kernel.
OUTPUTS, WINDOW_NAMES = 4, "lane first step kept places masks runs RUN SIZE".split()
# The parts of a sum of products.
LINEAR = (ast.BinOp, ast.Name, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Load)
# A statement that names a program's id on an axis.
PROGRAM = re.compile(r"^(\w+) = tl\.program_id\((?:axis=)?(\d)\)(?:\.to\(tl\.int64\))?$", re.MULTILINE)
# Placeholders of the texts below: `first`: the first coordinate; `step`: how many outputs lie between.
INDEX = """tl.static_assert({total} % ({plane} * {size}) == 0)
{indent}    {index} = ({lane} // ({plane}) * {size} + {first} + {step}) * ({plane}) + {lane} % ({plane})
"""
PROGRAM_OF_STEP = "{index} = {first} + {step}\n"
BEFORE = """{indent}{runs}: tl.constexpr = {RUN} if {RUN} < {size} else {size}
{indent}{first} = tl.minimum({program} * {RUN}, {size} - {runs})
{indent}{kept} = ()
{indent}{places} = ()
{indent}{masks} = ()
{indent}for {step} in tl.static_range({runs}):
{indent}    """
AFTER = """
{indent}for {step} in tl.static_range({runs}):
{indent}    tl.store({places}[{step}], {kept}[{step}], mask={masks}[{step}])"""
# Edits, and the texts of some expressions of what is repeated.
Moved = tuple[list[Edit], dict[ast.expr, str]]


@every_launch
def windows(source: KernelSource, kernel: Function, launch: Launch) -> str:
    """A program makes several outputs along the axis of the outermost loop over taps, and all loops are unrolled.

    A position in the input is written as that of the first output plus a constant. So the compiler sees which loads
    are the same, and loads each once. Each output is computed as before; the stores come after all loads. The axis is
    part of a flat index of lanes, or one of the grid.
    """
    accesses = calls(kernel, "store") + calls(kernel, "load")
    passed = [source.argument(launch, str(pointer_of(kernel, call))) for call in accesses]
    require("there is no loop over taps, or the launch is unusual, or its output an input",
            loops_in(kernel), plain(kernel, launch), {*passed[:1]}.isdisjoint(passed[1:]))  # fmt: skip
    known = {key: source.fresh(key) for key in WINDOW_NAMES}
    moved = _of_lanes if len(calls(kernel, "program_id")) == 1 else _of_programs
    edits, texts = moved(source, kernel, launch, known)
    return source.apply([
        *edits,
        _repeated(source, kernel, texts, known),
        source.parameter(kernel, f"{known['RUN']}: tl.constexpr"),
        append_arguments(source, launch, f"{known['RUN']}={OUTPUTS}"),
    ])  # fmt: skip


def _of_lanes(source: KernelSource, kernel: Function, launch: Launch, known: dict[str, str]) -> Moved:
    """Return how the coordinate becomes an axis of the grid, if it is part of a flat index."""
    index, statement, _, block, total, _, bounds = flat_index(source, kernel, launch)
    require("the launch is not of one dimension", len(source.grid_parts(launch)) == 1)
    chains = {s: chain for s in nodes(kernel, ast.Assign) if (chain := _chain(kernel, s.value, index))}
    coordinates = {name: s for s, (_, size) in chains.items()
                   if size and assigned(kernel, name := ast.unparse(s.targets[0])) == [s.value]}  # fmt: skip
    name, texts, constant = _walked(kernel, coordinates.keys(), known)
    inner, size = chains[coordinates[name]]
    for each, chain in chains.items():
        if text := _shared(chain, inner, size, known["lane"]):
            texts[each.value] = text
    texts[coordinates[name].value] = f"{known['first']} + {known['step']}"
    texts |= {bound: f"{known['lane']} < {total} // {size}" for bound in bounds}
    known |= {"total": total, "size": size, "index": index, "plane": " * ".join(inner) or "1", "block": block,
              "program": "tl.program_id(0)", "each": INDEX}  # fmt: skip
    return [
        *_constants(source, kernel, constant | {total, size, *inner}),
        source.replace(statement.targets[0], known["lane"]),
        source.replace(calls(kernel, "program_id")[0], "tl.program_id(1)"),
        source.replace(launch.grid, "lambda meta: (triton.cdiv(meta['{size}'], meta['{RUN}']), triton.cdiv("
                       "meta['{total}'] // meta['{size}'], meta['{block}']))".format(**known)),
    ], texts  # fmt: skip


def _of_programs(source: KernelSource, kernel: Function, launch: Launch, known: dict[str, str]) -> Moved:
    """Return how an axis of the grid gets fewer programs, if the coordinate is a program's id on it."""
    found = dict(PROGRAM.findall(ast.unparse(ast.Module(body_of(kernel), []))))
    name, texts, constant = _walked(kernel, found.keys(), known)
    axis, grid, asked = int(found[name]), source.grid_parts(launch), "".join(map(axis_of, calls(kernel, "program_id")))
    require("the kernel asks twice for the coordinate or changes it, or calls what may",
            asked.isdigit(), asked.count(found[name]) == 1 == len(assigned(kernel, name)), grid[axis:],
            lanewise(kernel, *MEMORY, "program_id", "arange"))  # fmt: skip
    due = grid[axis]
    for bound in nodes(kernel, ast.Compare):
        if ast.unparse(_whole(kernel, bound.left)) == name:
            end = source.constant(launch, ast.unparse(bound).partition(" < ")[2])
            require("the coordinate is compared with more than the grid's size", end == due)
            texts[bound.left] = known["first"]  # the same for each output
    known |= {"size": known["SIZE"], "index": name, "program": name, "each": PROGRAM_OF_STEP}
    grid[axis] = f"triton.cdiv({due}, meta['{known['RUN']}'])"
    return [
        *_constants(source, kernel, constant),
        source.parameter(kernel, f"{known['size']}: tl.constexpr"),
        append_arguments(source, launch, f"{known['size']}={due}"),
        source.replace(launch.grid, f"lambda meta: ({', '.join(grid)},)"),
    ], texts


def _range(loop: ast.For) -> ast.Call:
    """Return a loop's `range(END)` or `range(START, END)` without options."""
    match loop.iter:
        case ast.Call(func=func, keywords=[]) as count if len(count.args) < 3 and "range" in ast.unparse(func):
            return count
    raise NotApplicable("a loop is not over taps")


def _constants(source: KernelSource, kernel: Function, names: set[str]) -> list[Edit]:
    """Return the edits by which parameters, and the bounds of loops, become compile-time constants."""
    free = {a.arg: a for a in kernel.args.args if a.annotation is None and not assigned(kernel, a.arg)}
    needed = names.union(*(names_in(*_range(loop).args) for loop in loops_in(kernel))) - constexprs(kernel)
    require("a size, a stride or a number of taps is not an argument", needed <= free.keys())
    return [source.replace(free[name], f"{name}: tl.constexpr") for name in sorted(needed)]


def _chain(kernel: Function, value: ast.expr, index: str) -> tuple[list[str], str] | None:
    """Return the divisors A, B and the size C of `index // A // B % C`, "" without one; None for others."""
    whole = ast.unparse(_whole(kernel, value))
    text = re.sub(r"// \(([\w *]+)\)", lambda found: "// " + found[1].replace(" * ", " // "), whole)
    found = re.fullmatch(rf"{index}((?: // [A-Za-z_]\w*)*)(?: % ([A-Za-z_]\w*))?", text)
    return (found[1].split(" // ")[1:], found[2] or "") if found else None


def _shared(chain: tuple[list[str], str], inner: list[str], size: str, lane: str) -> str:
    """Return a coordinate in terms of the lanes, whose index leaves one coordinate out; "" if it depends on that."""
    divisors, rest = chain
    without = Counter(divisors)
    if Counter([*inner, size]) <= without:
        without[size] -= 1
    elif not rest or not Counter([*divisors, rest]) <= Counter(inner):
        return ""
    return " // ".join([lane, *without.elements()]) + (f" % {rest}" if rest else "")


def _whole(kernel: Function, node: ast.expr) -> ast.expr:
    """Return an expression with names put in that are sums, products, quotients or other names."""
    return inlined(kernel, node, lambda value: isinstance(value, ast.BinOp | ast.Name)
                   and not nodes(value, ast.Call) and not nodes(value, ast.Mod))  # fmt: skip


def _walked(
    kernel: Function, coordinates: Set[str], names: dict[str, str]
) -> tuple[str, dict[ast.expr, str], set[str]]:
    """Return the coordinate added to the first loop's tap, the positions so made, and what must be constants in them.

    A position becomes its value for the first output and tap 0, plus a constant.
    """
    loop = loops_in(kernel)[0]
    tap, edits, constant, walked = ast.unparse(loop.target), {}, set(), []
    known = {*parameters(kernel)} - pointers(kernel)
    require("a loop changes its tap, or a position may be no integer before",
            len(assigned(loop, tap)) == 1, "tl.int" not in ast.unparse(loop))  # fmt: skip
    for statement in nodes(loop, ast.Assign):
        value = _whole(kernel, statement.value)
        read = names_in(value)
        used = coordinates & read
        moving = {tap, *used}
        if len(used) != 1 or not {tap} <= read <= moving | known or not _linear(value, moving):
            continue
        (name,) = used
        zero, step, first = ast.Constant(0), ast.Name(names["step"]), ast.Name(names["first"])
        here, moved, nothing = (ast.unparse(substituted(value, given.get)) for given in (
            {name: first, tap: zero}, {name: step}, {name: zero, tap: zero}))  # fmt: skip
        edits[statement.value] = f"{here} + ({moved} - ({nothing}))"
        constant |= read - moving
        walked.append(name)
    require("the outermost loop moves a window along no axis, or several", len(set(walked)) == 1)
    return walked[0], edits, constant


def _linear(value: ast.expr, moving: set[str]) -> bool:
    """Return whether a value is a sum in which no two of some names are multiplied."""
    products = [n for n in nodes(value, ast.BinOp) if isinstance(n.op, ast.Mult)]
    mixed = [n for n in products if moving & names_in(n.left) and moving & names_in(n.right)]
    return not mixed and all(isinstance(n, LINEAR) for n in ast.walk(value))


def _repeated(source: KernelSource, kernel: Function, texts: dict[ast.expr, str], known: dict[str, str]) -> Edit:
    """Return the edit by which what depends on the coordinate is done for each output, and stored at the end."""
    filled = stored_names(*loops_in(kernel))
    part = [*dropwhile(lambda s: not (reads(s, known["index"]) or names_in(s) & filled), kernel.body)]
    known["indent"] = source.indent(part[0])
    match part[-1]:
        case ast.Expr(ast.Call(args=[at, value], keywords=[ast.keyword("mask") as mask]) as store) if is_tl(
            store, "store"
        ):
            keep = [Edit(source.start(store), source.start(at), f"{known['places']} += ("),
                    Edit(source.end(at), source.start(value), f",)\n{known['indent']}{known['kept']} += ("),
                    Edit(source.end(value), source.start(mask.value), f",)\n{known['indent']}{known['masks']} += ("),
                    source.after(mask, ",")]  # fmt: skip
        case _:
            raise NotApplicable("the kernel does not end with a masked store")
    before = [s for s in kernel.body if s not in part]
    again = stored_names(*part) & {known["index"], *parameters(kernel), *stored_names(*before)}
    require("an output goes on from the one before, or not one store ends the kernel",
            not again, len(calls(kernel, "store")) == 1, not nodes(kernel, ast.Return))  # fmt: skip
    begin, end = source.line(part[0]), source.end(part[-1])
    edits = [*keep, *(source.replace(node, text) for node, text in texts.items())]
    for loop in loops_in(ast.Module(part, [])):
        edits.append(source.replace(_range(loop).func, "tl.static_range"))
    text = textwrap.indent(source.between(edits, begin, end), "    ")
    return Edit(begin, end, (BEFORE + known["each"]).format(**known) + text + AFTER.format(**known))


# -- T30

# What T30 names in a kernel, and the tile with which it begins: positions, channels, steps of one loop.
NAMES = "CHANNELS DEPTH lane column step rest chunks depth inside x_tile w_tile".split()
TILE = "{block}=128, {CHANNELS}=64, {DEPTH}=16"
# The last tile begins earlier rather than end later, so that lanes stay next to each other.
LANES = """
{indent}tl.static_assert({total} % ({plane} * {size}) == 0)
{indent}if {total} // {size} < {block}:
{indent}    {lane} = tl.minimum({index}, {total} // {size} - 1)[:, None]
{indent}else:
{indent}    {lane} = ({index} - tl.maximum(tl.program_id(0) * {block} + {block} - {total} // {size}, 0))[:, None]
{indent}{column} = tl.program_id(1) * {CHANNELS} + tl.arange(0, {CHANNELS})
{indent}{column} = tl.minimum({column}, {size} - 1)[None, :].to({lane}.dtype)
{indent}{index} = ({lane} // ({plane}) * {size} + {column}) * ({plane}) + {lane} % ({plane})"""
PRODUCT = """{acc} = tl.zeros([{block}, {CHANNELS}], dtype=tl.float32)
{indent}{chunks}: tl.constexpr = ({end} + {DEPTH} - 1) // {DEPTH}
{indent}for {step} in range({steps}):
{indent}    {rest} = {step}
{indent}    {taps}
{indent}    {depth} = {deep} * {DEPTH} + tl.arange(0, {DEPTH})
{indent}    {deep} = tl.minimum({depth}, {end} - 1)[None, :]
{indent}    {x_tile} = {x}
{indent}    {deep} = tl.minimum({depth}, {end} - 1)[:, None]
{indent}    {w_tile} = {w}
{indent}    if {end} % {DEPTH} == 0:
{indent}        {acc} = tl.dot({x_tile}, {w_tile}, {acc}, input_precision="tf32")
{indent}    else:
{indent}        {inside} = ({depth} < {end})[None, :]
{indent}        {acc} = tl.dot(tl.where({inside}, {x_tile}, 0.0), {w_tile}, {acc}, input_precision="tf32")"""


@every_launch
def implicit_product(source: KernelSource, kernel: Function, launch: Launch) -> str:
    """A convolution with an output in each lane becomes a product of matrices, whose tiles are read in place.

    It fits any sum of products of which one factor depends on one coordinate of the output alone, the channel, and the
    other factor on the rest. So masks, strides and the order of loops stay as they are. One loop becomes a dimension
    of the tiles, and all become one loop, whose loads the compiler starts ahead. Lanes and steps beyond the end repeat
    the last one, such a step with zeros: the weights must be finite.
    """
    index, statement, _, block, total, _, _ = flat_index(source, kernel, launch, "store")
    loops = loops_in(kernel)
    require("there is no nest of loops, or the launch is not of one dimension",
            loops, all(loops[-1] in loops_in(loop) for loop in loops),
            len(source.grid_parts(launch)) == 1, plain(kernel, launch))  # fmt: skip
    filled = needed(filled_by(kernel, loops[-1]), "the loops do not fill one sum")
    added = _placed(kernel, filled.value, index, total)
    factors = needed(matched("_x * _w", added), "the loops add up no product")
    chains = {name: chain for name in names_in(added)
              if (chain := _chain(kernel, value_of(kernel, ast.Name(name)), index))}  # fmt: skip
    x, w = sorted(factors.values(), key=lambda factor: -len(names_in(factor) & chains.keys()))
    own = names_in(w) & chains.keys()
    inner, size = chains.get("".join(own), ([], ""))  # of the one coordinate
    known = {name: source.fresh(name) for name in NAMES}
    texts = {name: _shared(chain, inner, size, known["lane"]) or known["column"] for name, chain in chains.items()}
    counts = {ast.unparse(loop.target): re.sub(r".*range\((0, )?|\)$", "", ast.unparse(loop.iter)) for loop in loops}
    require(
        "the loops do more than add up products, or the factors share or lack a coordinate",
        calls(kernel, "load") == calls(loops[0], *MEMORY), len(own) == 1 < len(chains), not own & names_in(x),
        [*texts.values()].count(known["column"]) == 1,
        sum(len(assigned(kernel, name)) - 1 for name in stored_names(loops[0])) == 1,
        not any(assigned(kernel, name) for name in names_in(added) - {*counts, *chains}),
    )  # fmt: skip
    deep = min(counts, key=lambda tap: reads(x, tap) or 9)  # input channels, which no padding bounds
    steps, indent = {**counts, deep: known["chunks"]}, source.indent(statement)
    known |= {
        "deep": deep, "end": counts[deep], "size": size, "total": total, "index": index, "block": block,
        "acc": filled.name, "plane": " * ".join(inner) or "1", "indent": indent, "steps": " * ".join(steps.values()),
        "x": ast.unparse(x), "w": ast.unparse(w),
        "taps": f"\n{indent}    ".join("{0}, {rest} = {rest} % {1}, {rest} // {1}".format(*step, **known)
                                       for step in reversed(steps.items())),
    }  # fmt: skip
    return source.apply([
        *_constants(source, kernel, {total, size, *inner, *counts.values()}),
        source.after(statement, LANES.format(**known)),
        source.replace(loops[0], PRODUCT.format(**known)),
        *(source.replace(value_of(kernel, ast.Name(name)), text) for name, text in texts.items()),
        source.parameter(kernel, "{CHANNELS}: tl.constexpr, {DEPTH}: tl.constexpr".format(**known)),
        source.replace(needed(launch.keyword(block), "the block has no name"), TILE.format(**known)),
        source.replace(launch.grid, "lambda meta: (triton.cdiv(meta['{total}'] // meta['{size}'], meta['{block}']), "
                       "triton.cdiv(meta['{size}'], meta['{CHANNELS}']))".format(**known)),
    ])  # fmt: skip


def _placed(kernel: Function, value: ast.expr, index: str, total: str) -> ast.expr:
    """Return the value of a lane within the bound, in terms of coordinates, arguments and steps."""
    whole = inlined(kernel, value, lambda part: not (_chain(kernel, part, index) or "range(" in ast.unparse(part)), 9)
    return ast.parse(ast.unparse(whole).replace(f"{index} < {total}", "True"), mode="eval").body
