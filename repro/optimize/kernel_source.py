"""A solution's source as a rewrite sees it: its Triton kernels, their launches, and edits of exact spans.

Positions are byte offsets. Nothing outside an edited span changes, so comments and formatting survive.
"""

from __future__ import annotations

import ast
import functools
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard, TypeVar

from repro.artifacts import layout
from repro.judge.source.bans import bans
from repro.system.digest import sha256

Function = ast.FunctionDef
# What stands at a place of the text.
_Placed = ast.expr | ast.stmt | ast.arg | ast.keyword
T = TypeVar("T")
N = TypeVar("N", bound=ast.AST)
POINTER = re.compile(r"ptrs?$")
MEMORY, GRID = ("load", "store"), ("program_id", "num_programs")
# Functions of `tl` that add up lanes, in an order that the compiler chooses.
ADDING = ("sum", "dot", "dot_scaled", "cumsum", "cumprod", "reduce", "associative_scan", "softmax")
# Functions of `tl` whose results depend on the same lane of their operands alone.
LANEWISE = (
    "abs cast cdiv ceil clamp cos div_rn erf exp exp2 fdiv floor fma full log log2 max_contiguous maximum minimum "
    "multiple_of range rsqrt sigmoid sin sqrt sqrt_rn static_range swizzle2d where zeros zeros_like"
).split()
BUILTINS = ("abs", "float", "int", "max", "min", "range")
# The value of a name that gets one, but not that of an expression.
UNKNOWN = ast.Constant(...)


@dataclass(frozen=True)
class Edit:
    """Replacement of the bytes from start to end."""

    start: int
    end: int
    text: str


class NotApplicable(Exception):  # noqa: N818 (it ends one rewrite, and is no failure)
    """A rewrite does not fit this source."""


def require(why: str, *conditions: object) -> None:
    """Raise NotApplicable with this reason unless all conditions hold."""
    if not all(conditions):
        raise NotApplicable(why)


def needed(value: T | None, why: str) -> T:
    """Return a value. Raises NotApplicable with this reason if there is none."""
    if value is None:
        raise NotApplicable(why)
    return value


@functools.lru_cache(1024)
def ast_hash(text: str) -> str:
    """Return a hash that ignores comments, formatting and docstrings; "" if the text is not Python."""
    try:
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        return sha256(ast.dump(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # of a tree that is too deep, too
        return ""


@functools.lru_cache(1024)
def refusal(text: str) -> str:
    """Return why a source may not be judged: it does not parse, or it uses what the judge bans. "" if it may."""
    if layout.program(text) is None:
        try:
            ast.parse(text, "its text")
        except (SyntaxError, ValueError) as error:
            return f"the source is not Python: {error}"
        return "the source is nested too deep"
    with tempfile.TemporaryDirectory(prefix="repro-optimize-") as folder:
        file = Path(folder) / "candidate.py"
        file.write_text(text)
        found = bans(file)
    return found[0] if found else ""


@dataclass(frozen=True)
class Launch:
    """One launch `kernel[grid](arguments)`. callee: the name of the kernel that runs where every guard holds."""

    call: ast.Call
    callee: ast.Name
    grid: ast.expr
    function: Function

    @property
    def kernel(self) -> str:
        return self.callee.id

    def keyword(self, name: str) -> ast.keyword | None:
        """Return a keyword argument of the launch."""
        return keyword_of(self.call, name)


class KernelSource:
    """A parsed source. Raises NotApplicable if it is not Python."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise NotApplicable(f"the source is not Python: {error}") from None
        self._lines = [0]
        for line in text.encode().split(b"\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)

    # -- positions

    def start(self, node: _Placed) -> int:
        """Return where a node begins."""
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: _Placed) -> int:
        """Return where a node ends."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: _Placed) -> str:
        """Return the text of a node."""
        return self.text.encode()[self.start(node) : self.end(node)].decode()

    def replace(self, node: _Placed, text: str) -> Edit:
        """Return the edit that puts a text in the place of a node."""
        return Edit(self.start(node), self.end(node), text)

    def apply(self, edits: list[Edit]) -> str:
        """Return the text after some edits. Raises NotApplicable if they overlap or the result does not parse."""
        raw = self.text.encode()
        before = len(raw) + 1
        for edit in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):
            if edit.end > before:
                raise NotApplicable("two edits of one place")
            raw = raw[: edit.start] + edit.text.encode() + raw[edit.end :]
            before = edit.start
        text = raw.decode()
        try:
            ast.parse(text, "its text")
        except SyntaxError as error:
            raise NotApplicable(f"the rewritten source does not parse: {error}") from None
        return text

    def between(self, edits: list[Edit], begin: int, end: int) -> str:
        """Return the text from `begin` to `end` after edits that all lie there."""
        changed = self.apply(edits).encode()
        return changed[begin : end + len(changed) - len(self.text.encode())].decode()

    def after(self, node: _Placed, text: str) -> Edit:
        """Return the edit that adds text behind a node."""
        return Edit(self.end(node), self.end(node), text)

    def line(self, statement: ast.stmt) -> int:
        """Return where the line of a statement begins, so that its indentation moves with it."""
        return self.text.encode().rfind(b"\n", 0, self.start(statement)) + 1

    def indent(self, statement: ast.stmt) -> str:
        """Return the spaces or tabs before a statement."""
        return self.text.encode()[self.line(statement) : self.start(statement)].decode()

    def before(self, statement: ast.stmt, *lines: str) -> Edit:
        """Return the edit that adds lines before a statement, indented as it is."""
        text = "".join(f"{self.indent(statement)}{line}\n" for line in lines)
        return Edit(self.line(statement), self.line(statement), text)

    def above(self, kernel: Function, text: str) -> Edit:
        """Return the edit that adds text above a kernel and its decorators."""
        return Edit(self.top(kernel), self.top(kernel), text)

    def top(self, kernel: Function) -> int:
        """Return where a kernel's decorators begin."""
        return min(map(self.start, kernel.decorator_list)) - 1  # the decorator's `@`

    def parameter(self, kernel: Function, *declared: str) -> Edit:
        """Return the edit that adds parameters to a kernel."""
        return self.after(kernel.args.args[-1], "".join(f", {text}" for text in declared))

    # -- kernels

    @functools.cached_property
    def kernels(self) -> dict[str, Function]:
        """Return the jitted functions of the module by name."""
        return {
            node.name: node
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list)
        }

    @functools.cached_property
    def launches(self) -> list[Launch]:
        """Return the launches of the module's kernels, in order, each with the innermost function around it."""
        found = {}
        for function in parts(self.tree):
            if not isinstance(function, ast.FunctionDef) or function.name in self.kernels:
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript):
                    callee = call.func.value
                    while isinstance(callee, ast.IfExp):
                        callee = callee.body
                    if isinstance(callee, ast.Name) and callee.id in self.kernels:
                        found[id(call)] = Launch(call, callee, call.func.slice, function)
        return list(found.values())

    def fresh(self, name: str) -> str:
        """Return a name that the source does not use, beginning with `name`."""
        used = set(re.findall(r"\w+", self.text))
        return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 1000))) if n not in used)

    def argument(self, launch: Launch, parameter: str) -> str | None:
        """Return the text of what a launch passes for a parameter; None if a starred argument hides it."""
        value = self.passed(launch, parameter)
        return None if value is None else self.of(value)

    def passed(self, launch: Launch, parameter: str) -> ast.expr | None:
        """Return what a launch passes for a parameter; None if a starred argument hides it."""
        keyword = launch.keyword(parameter)
        if keyword is not None:
            return keyword.value
        names = parameters(self.kernels[launch.kernel])
        for name, value in zip(names, launch.call.args, strict=False):
            if isinstance(value, ast.Starred):
                return None
            if name == parameter:
                return value
        return None

    def constant(self, launch: Launch, parameter: str) -> str | None:
        """Return the text of what a launch passes for a parameter that the kernel never changes."""
        return None if assigned(self.kernels[launch.kernel], parameter) else self.argument(launch, parameter)

    def helpers(self, kernel: str) -> list[Function]:
        """Return a kernel and the module's jitted functions that it calls."""
        found = [self.kernels[kernel]]
        for function in found:
            found += [f for f in self.kernels.values() if f.name in names_in(function) and f not in found]
        return found

    def every(self, kernel: str) -> list[ast.AST]:
        """Return all nodes of a kernel and of its helpers."""
        return [node for function in self.helpers(kernel) for node in parts(function)]

    def changed(self, edits: list[Edit], why: str) -> str:
        """As `apply`. Raises NotApplicable with this reason if there is no edit."""
        require(why, edits)
        return self.apply(edits)

    def only(self, kernel: str) -> tuple[Function, Launch]:
        """Return a kernel and its one launch. Raises NotApplicable if there is not exactly one."""
        found = [launch for launch in self.launches if launch.kernel == kernel]
        require(f"{kernel} has {len(found)} launches, one is needed", len(found) == 1)
        return self.kernels[kernel], found[0]

    def own_ids(self, kernel: str) -> None:
        """Raise NotApplicable if a kernel may ask elsewhere, or for a computed axis, which program it is."""
        every = self.every(kernel)
        bare = {n.func.id for n in every if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        own = [c for c in calls(self.kernels[kernel], *GRID) if axis_of(c).isdigit()]
        asks = sum(isinstance(n, ast.Attribute) and n.attr in GRID for n in every)
        if asks != len(own) or bare - {*BUILTINS, *self.kernels}:
            raise NotApplicable("a function of the kernel may ask which program it is")

    def grid_parts(self, launch: Launch) -> list[str]:
        """Return the texts of the grid's dimensions. Raises NotApplicable if the grid is no tuple.

        A grid that is a function of the launch's arguments (`meta`) counts as the tuple that it returns.
        """
        elements, meta = self.grid_elements(launch)
        return [_without_meta(ast.unparse(element), meta, launch) for element in elements]

    def grid_elements(self, launch: Launch) -> tuple[list[ast.expr], str]:
        """Return the grid's dimensions, and the name of its parameter if it is a function. Raises as `grid_parts`."""
        grid: ast.expr = launch.grid
        meta = ""
        if isinstance(grid, ast.Name):
            values = assigned(launch.function, grid.id)
            grid = values[0] if len(values) == 1 else _returned(launch.function, grid.id) or grid
        if isinstance(grid, ast.Lambda) and len(grid.args.args) == 1:
            meta = grid.args.args[0].arg
            grid = grid.body
        if not isinstance(grid, ast.Tuple) or any(isinstance(e, ast.Starred) for e in grid.elts):
            raise NotApplicable("the grid is not written as a tuple")
        return grid.elts, meta


def _without_meta(text: str, meta: str, launch: Launch) -> str:
    """Return the text of a grid's dimension with the launch's arguments in the place of `meta["NAME"]`."""
    if not meta:
        return text

    def argument(found: re.Match[str]) -> str:
        keyword = launch.keyword(found[1])
        if keyword is None or not isinstance(keyword.value, ast.Name):
            raise NotApplicable("the grid depends on a number that the launch does not name")
        return keyword.value.id

    text = re.sub(rf"(?<![\w.]){meta}\['(\w+)'\]", argument, text)
    require("the grid is not written as a tuple", meta not in names_in(ast.parse(text, mode="eval")))
    return text


def _returned(function: Function, name: str) -> ast.Lambda | None:
    """Return a function inside another that only returns a value, as a lambda."""
    for node in nodes(function, ast.FunctionDef):
        match body_of(node) if node.name == name else []:
            case [ast.Return(value=ast.expr() as value)]:
                return ast.Lambda(node.args, value)
    return None


def shown(call: ast.Call, index: int, name: str) -> str:
    """Return the text of what a call passes, by place or name; "" if that is not to be seen."""
    value = given(call, index, name)
    return "" if value is None else ast.unparse(value)


def axis_of(call: ast.Call) -> str:
    """Return the axis of `tl.program_id(axis)` as text."""
    return shown(call, 0, "axis")


def program_axis(kernel: Function, node: ast.expr, block: str) -> int | None:
    """Return the axis of `tl.program_id(axis) * BLOCK`, by name or with a cast to int64 too."""
    found = matched("_id * _block", value_of(kernel, node), _block=block)
    left = value_of(kernel, uncast(value_of(kernel, found["_id"]))) if found else node
    return int(axis_of(left)) if is_tl(left, "program_id") and axis_of(left).isdigit() and found else None


def matched(pattern: str, node: ast.AST | None, **known: str) -> dict[str, ast.expr] | None:
    """Return what the names of a pattern that begin with `_` stand for in an expression; None if it has another form.

    Such a name stands for the same wherever it is, and with two `_` for a name. known: what some stand for. A call may
    have keywords beside.
    """
    found = {name: _pattern(text) for name, text in known.items()}

    def same(part: object, other: object) -> bool:
        match part:
            case ast.Name(id=name) if name.startswith("_"):
                fits = isinstance(other, ast.Name if name.startswith("__") else ast.expr)
                return fits and ast.unparse(found.setdefault(name, other)) == ast.unparse(other)  # type: ignore[arg-type]
            case ast.AST():
                parts = [(value, getattr(other, name, None)) for name, value in ast.iter_fields(part)
                         if name not in ("ctx", "keywords")]  # fmt: skip
                return type(part) is type(other) and all(same(*each) for each in parts)
            case list():
                return isinstance(other, list) and len(part) == len(other) and all(map(same, part, other))
        return part == other

    return found if same(_pattern(pattern), node) else None


@functools.lru_cache(256)
def _pattern(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def uncast(value: ast.expr) -> ast.expr:
    """Return a value without `.to(type)`."""
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr="to")):
            return inner
    return value


def value_of(function: ast.AST, node: ast.expr) -> ast.expr:
    """Return what is assigned to a name, if that is one value; else the expression itself."""
    values = assigned(function, node.id) if isinstance(node, ast.Name) else []
    return values[0] if len(values) == 1 and values[0] is not UNKNOWN else node


def keyword_of(call: ast.Call, name: str) -> ast.keyword | None:
    """Return a keyword argument of a call."""
    return next((k for k in call.keywords if k.arg == name), None)


def given(call: ast.Call, index: int, name: str) -> ast.expr | None:
    """Return what a call passes, by place or name; None if that is not to be seen."""
    plain = call.args if not any(isinstance(a, ast.Starred) for a in call.args) else []
    return next((k.value for k in call.keywords if k.arg == name), plain[index] if index < len(plain) else None)


def operand(call: ast.Call, index: int, name: str) -> ast.expr:
    """As `given`. Raises NotApplicable in place of None."""
    return needed(given(call, index, name), f"{ast.unparse(call)} does not show its {name}")


def address_of(call: ast.Call) -> ast.expr:
    """Return where a call loads or stores."""
    return operand(call, 0, "pointer")


def mask_of(call: ast.Call) -> ast.expr | None:
    """Return the mask of a load or store; None without one."""
    return given(call, 2 if is_tl(call, "store") else 1, "mask")


def joined(mask: ast.expr | None) -> list[ast.expr]:
    """Return what `&` joins to a mask."""
    return terms(mask, ast.BitAnd)


def lanewise(node: ast.AST, *more: str) -> bool:
    """Return whether all calls in an expression or a kernel are of functions by lane, or of `more`."""
    known = {*BUILTINS, *more, *(f"tl.{name}" for name in (*LANEWISE, *more))}
    called = [n.func for n in nodes(node, ast.Call)]
    cast = [f for f in called if isinstance(f, ast.Attribute) and f.attr == "to"]
    return all(f in cast or ast.unparse(f) in known or "libdevice." in ast.unparse(f) for f in called)


def _declared(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def parameters(function: Function) -> list[str]:
    """Return the names of a kernel's parameters, in order."""
    return [a.arg for a in _declared(function)]


def constexprs(function: Function) -> set[str]:
    """Return the parameters that are compile-time constants."""
    return {a.arg for a in _declared(function) if a.annotation is not None and "constexpr" in ast.unparse(a.annotation)}


def is_tl(node: ast.AST | None, *names: str) -> TypeGuard[ast.Call]:
    """Return whether a node is a call of `tl.NAME`."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="tl"), attr=attr)):
            return attr in names
    return False


def terms(node: ast.expr | None, operator: type[ast.operator]) -> list[ast.expr]:
    """Return what an operator joins to an expression, from left to right; the expression itself without one."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, operator):
        return terms(node.left, operator) + terms(node.right, operator)
    return [] if node is None else [node]


def nodes(node: ast.AST, kind: type[N]) -> list[N]:
    """Return the parts of a node that are of one kind, the outermost first."""
    return [n for n in ast.walk(node) if isinstance(n, kind)]


@functools.lru_cache(256)
def parts(node: ast.AST) -> tuple[ast.AST, ...]:
    """Return a node and all below it, as `ast.walk`, and once: rewrites ask hundreds of times of one kernel."""
    return tuple(ast.walk(node))


def calls(function: ast.AST, *names: str) -> list[ast.Call]:
    """Return the calls of `tl.NAME` in a function, in order of the text."""
    return sorted((n for n in parts(function) if is_tl(n, *names)), key=lambda n: (n.lineno, n.col_offset))


def assigned(function: ast.AST, name: str) -> list[ast.expr]:
    """Return the values that a name gets in a function, through tuples too; UNKNOWN for the first of a parameter.

    `name += value` counts as `name + value`, and a loop gives `range()`.
    """
    return _values(function).get(name, [])


@functools.lru_cache(256)
def _values(function: ast.AST) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    read = set()
    for node in parts(function):
        pairs = []
        match node:
            case ast.Assign(targets=targets, value=value):
                pairs = [pair for target in targets for pair in _pairs(target, value)]
            case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                pairs = [(target, ast.copy_location(ast.BinOp(ast.Name(target.id), op, value), node))]
            case ast.For(target=ast.Name() as target, iter=ast.Call(func=func)):
                pairs = [(target, ast.Call(func, [], []))]
            case ast.Name(ctx=ast.Store() | ast.Del()) if id(node) not in read:  # below what gives it a value
                pairs = [(node, UNKNOWN)]
        for target, value in pairs:
            read.add(id(target))
            found.setdefault(target.id, []).append(value)
    if isinstance(function, ast.FunctionDef):
        for name in set(parameters(function)) & found.keys():
            found[name].insert(0, UNKNOWN)
    return found


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.Name, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target, value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from _pairs(one, other)


def substituted(node: ast.expr, value: Callable[[str], ast.expr | None]) -> ast.expr:
    """Return a copy of an expression in which names have their value; None keeps a name."""

    class Put(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return value(name.id) or name

    copy: ast.expr = Put().visit(ast.parse(ast.unparse(node), mode="eval").body)
    return ast.fix_missing_locations(copy)


def inlined(function: ast.AST, node: ast.expr, fits: Callable[[ast.expr], object], depth: int = 4) -> ast.expr:
    """Return an expression in which names with one value that fits have it, also in such values, down to a depth."""

    def value(name: str) -> ast.expr | None:
        known = ast.Name(name)
        single = value_of(function, known) if depth else known
        return inlined(function, single, fits, depth - 1) if single is not known and fits(single) else None

    return substituted(node, value)


def names_in(*within: ast.AST) -> set[str]:
    """Return the names that expressions read."""
    return {n.id for node in within for n in nodes(node, ast.Name)}


def reaches(function: Function, node: ast.AST) -> tuple[set[str], set[str]]:
    """Return (the names, the `tl` functions) on which an expression depends, through the kernel's assignments."""
    every = reached(function, node)
    functions = {n.attr for n in every if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "tl"}
    return {n.id for n in every if isinstance(n, ast.Name)}, functions


def reached(function: Function, node: ast.AST, ends: Callable[[ast.AST], bool] | None = None) -> list[ast.AST]:
    """Return all parts of the expressions on which one depends, but what is in those that `ends` names."""
    seen, found, pending = set(), [], [node]
    while pending:
        part = pending.pop()
        found.append(part)
        pending += [] if ends and ends(part) else ast.iter_child_nodes(part)
        if isinstance(part, ast.Name) and part.id not in seen:
            seen.add(part.id)
            pending += assigned(function, part.id)
    return found


def pointers(function: Function) -> set[str]:
    """Return the parameters that are addresses: named so, or the leftmost term of a loaded or stored address."""
    found = {name for name in parameters(function) if POINTER.search(name)}
    for call in calls(function, *MEMORY):
        node = address_of(call)
        while isinstance(node, ast.BinOp):
            node = node.left
        if isinstance(node, ast.Name) and node.id in parameters(function):
            found.add(node.id)
    return found


def pointer_of(function: Function, call: ast.Call) -> str | None:
    """Return the pointer parameter of a load or store; None if that is not one."""
    found = sorted(reaches(function, address_of(call))[0] & pointers(function))
    return found[0] if len(found) == 1 else None


def loops_of(statements: list[ast.stmt]) -> list[ast.For]:
    """Return the loops among some statements."""
    return [s for s in statements if isinstance(s, ast.For)]


def loops_in(node: ast.AST) -> list[ast.For]:
    """Return all loops in a node, the outermost first."""
    return nodes(node, ast.For)


def ranged(loop: ast.For, arguments: int) -> list[str]:
    """Return the texts of the arguments of a loop over `range` or `tl.range`; empty if it has others."""
    match loop.iter:
        case ast.Call(func=func, args=args) if ast.unparse(func) in ("range", "tl.range") and len(args) == arguments:
            return list(map(ast.unparse, args))
    return []


def stored_names(*within: ast.AST) -> set[str]:
    """Return the names that something assigns."""
    return {n.id for node in within for n in nodes(node, ast.Name) if isinstance(n.ctx, ast.Store)}


def reads(node: ast.AST, name: str) -> int:
    """Return how often a name is read."""
    return sum(n.id == name and isinstance(n.ctx, ast.Load) for n in nodes(node, ast.Name))


def body_of(function: Function) -> list[ast.stmt]:
    """Return a function's statements without its docstring."""
    return function.body[1:] if ast.get_docstring(function) is not None else function.body
