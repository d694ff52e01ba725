"""The rewrite of kernels that move a window over their input: a program makes several outputs along one axis.

The entry of the catalogue is in rewrites.py.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter

from repro.optimize.guards import every_launch, plain
from repro.optimize.kernel_source import (
    Edit,
    Function,
    KernelSource,
    Launch,
    NotApplicable,
    assigned,
    body_of,
    calls,
    constexprs,
    inlined,
    is_tl,
    loops_in,
    names_in,
    nodes,
    parameters,
    require,
    stored_names,
    substituted,
)
from repro.optimize.knobs import append_arguments
from repro.optimize.rewrites_tiles import flat_index

# The outputs of a program with which T27 begins.
OUTPUTS = 4
# The parts of a sum of products.
LINEAR = (ast.BinOp, ast.Name, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Load)
# Placeholders of the texts below: `first`: the first coordinate; `step`: how many outputs lie between.
BEFORE = """tl.static_assert({total} % ({plane} * {size}) == 0)
{indent}{runs}: tl.constexpr = {run} if {run} < {size} else {size}
{indent}{first} = tl.minimum(tl.program_id(0) * {run}, {size} - {runs})
{indent}{lane} = {lanes}
{indent}{kept} = ()
{indent}{places} = ()
{indent}{masks} = ()
{indent}for {step} in tl.static_range({runs}):
{indent}    {index} = ({lane} // ({plane}) * {size} + {first} + {step}) * ({plane}) + {lane} % ({plane})"""
AFTER = """
{indent}for {step} in tl.static_range({runs}):
{indent}    tl.store({places}[{step}], {kept}[{step}], mask={masks}[{step}])"""


@every_launch
def windows(source: KernelSource, kernel: Function, launch: Launch) -> str:
    """A program makes several outputs along the axis of the outermost loop over taps, and all loops are unrolled.

    A position in the input is written as that of the first output plus a constant. So the compiler sees which loads
    are the same, and loads each once. Each output is computed as before; the stores come after all loads.
    """
    index, statement, axis, block, total, _, bounds = flat_index(source, kernel, launch)
    loops, asked = loops_in(kernel), calls(kernel, "program_id")
    alone = [axis, len(source.grid_parts(launch)), len(asked)] == [0, 1, 1]
    require("there is no loop over taps, or the launch is not of one dimension", loops, alone, plain(kernel, launch))
    chains = {s: chain for s in nodes(kernel, ast.Assign) if (chain := _chain(kernel, s, index))}
    names = {key: source.fresh(key) for key in ("lane", "first", "step", "kept", "places", "masks", "runs")}
    names["run"] = source.fresh("RUN")
    walked, edits, constant = _walked(kernel, loops[0], chains, names)
    inner, size = chains[walked]
    constants = _constants(source, kernel, constant | {total, size, *inner})
    for each, chain in chains.items():
        if text := _shared(chain, inner, size, names["lane"]):
            edits[each.value] = text
    edits[walked.value] = f"{names['first']} + {names['step']}"
    edits |= {bound: f"{names['lane']} < {total} // {size}" for bound in bounds}
    known = names | {"total": total, "size": size, "index": index, "plane": " * ".join(inner) or "1",
                     "indent": source.indent(statement)}  # fmt: skip
    ids = source.replace(asked[0], "tl.program_id(1)")
    assert isinstance(statement, ast.Assign)
    begin, end = source.start(statement.value), source.end(statement.value)
    within = [ids] if begin <= ids.start < end else []
    known["lanes"] = source.between(within, begin, end)
    part = [s for s in body_of(kernel) if s.lineno > statement.lineno]
    return source.apply([
        *constants,
        *([] if within else [ids]),
        source.replace(statement, BEFORE.format(**known)),
        _repeated(source, kernel, part, edits, known),
        source.parameter(kernel, f"{known['run']}: tl.constexpr"),
        append_arguments(source, launch, f"{known['run']}={OUTPUTS}"),
        source.replace(launch.grid, "lambda meta: (triton.cdiv(meta['{size}'], meta['{run}']), triton.cdiv("
                       "meta['{total}'] // meta['{size}'], meta['{block}']))".format(**known, block=block)),
    ])  # fmt: skip


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


def _chain(kernel: Function, statement: ast.Assign, index: str) -> tuple[list[str], str] | None:
    """Return the divisors A, B and the size C of `name = index // A // B % C`, "" without one; None for others."""
    text = re.sub(r"// \((\w+) \* (\w+)\)", r"// \1 // \2", ast.unparse(_whole(kernel, statement.value)))
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
    kernel: Function, loop: ast.For, chains: dict[ast.Assign, tuple[list[str], str]], names: dict[str, str]
) -> tuple[ast.Assign, dict[ast.expr, str], set[str]]:
    """Return the coordinate that is added to a loop's tap, the positions so made, and what must be constants in them.

    A position becomes its value for the first output and tap 0, plus a constant.
    """
    tap, edits, constant, walked = ast.unparse(loop.target), {}, set(), []
    coordinates = {name: s for s, (_, size) in chains.items()
                   if size and assigned(kernel, name := ast.unparse(s.targets[0])) == [s.value]}  # fmt: skip
    require("a loop changes its tap", len(assigned(loop, tap)) == 1)
    for statement in nodes(loop, ast.Assign):
        value = _whole(kernel, statement.value)
        used, read = coordinates.keys() & names_in(value), names_in(value)
        moving = {tap, *used}
        if len(used) != 1 or tap not in read or not _linear(value, moving):
            continue
        (name,) = used
        zero, step, first = ast.Constant(0), ast.Name(names["step"]), ast.Name(names["first"])
        here, moved, nothing = (ast.unparse(substituted(value, given.get)) for given in (
            {name: first, tap: zero}, {name: step}, {name: zero, tap: zero}))  # fmt: skip
        edits[statement.value] = f"{here} + ({moved} - ({nothing}))"
        constant |= read - moving
        walked.append(coordinates[name])
    require("the outermost loop moves a window along no axis, or several", len(set(walked)) == 1)
    return walked[0], edits, constant


def _linear(value: ast.expr, moving: set[str]) -> bool:
    """Return whether a value is a sum in which no two of some names are multiplied."""
    products = [n for n in nodes(value, ast.BinOp) if isinstance(n.op, ast.Mult)]
    mixed = [n for n in products if moving & names_in(n.left) and moving & names_in(n.right)]
    return not mixed and all(isinstance(n, LINEAR) for n in ast.walk(value))


def _repeated(
    source: KernelSource, kernel: Function, part: list[ast.stmt], texts: dict[ast.expr, str], known: dict[str, str]
) -> Edit:
    """Return the edit by which statements are done for each output, and what they store at their end is kept."""
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
    again = stored_names(*part) & {*parameters(kernel), *stored_names(*before)}
    require("an output goes on from the one before, or more is stored", len(calls(kernel, "store")) == 1, not again)
    begin, end = source.line(part[0]), source.end(part[-1])
    edits = [*keep, *(source.replace(node, text) for node, text in texts.items())]
    for loop in loops_in(kernel):
        edits.append(source.replace(_range(loop).func, "tl.static_range"))
    text = textwrap.indent(source.between(edits, begin, end), "    ")
    return Edit(begin, end, text + AFTER.format(**known))
