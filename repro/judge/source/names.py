"""A solution's source as a tree with resolved names: `E.record` is `torch.cuda.Event.record` if E is that class.

It needs no torch and never runs the source. Names are followed through imports, simple assignments, getattr, vars,
`__dict__` and sys.modules with constant names, but not through computed values.
"""

from __future__ import annotations

import ast
import warnings
from collections import deque
from collections.abc import Iterator
from pathlib import Path

# Names as most files import them, for files that leave the import out, and builtins.
_USUAL = {"F": "torch.nn.functional", "functional": "torch.nn.functional", "nn": "torch.nn", "tl": "triton.language",
         "np": "numpy", "__builtins__": "builtins"}  # fmt: skip
_DEEPEST = 40  # nested calls and sums that are followed
# Steps of resolving names after which a source is too long to be checked; torch's own longest module takes a quarter.
_MOST_STEPS = 500_000
_BLOCKS = ast.stmt | ast.ExceptHandler | ast.match_case
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """A parsed file whose names are resolved through imports and simple assignments, in the order of execution.

    Its methods raise RecursionError after _MOST_STEPS, because the judge waits for them without a time limit.
    """

    def __init__(self, path: Path) -> None:
        with warnings.catch_warnings():  # warnings on the solution's code are not ours
            warnings.simplefilter("ignore")
            self.tree = ast.parse(path.read_bytes())
        self.names: dict[str, str] = {}  # name -> the dotted name behind it, "" if unknown
        self.jitted = False  # whether the current node belongs to a Triton kernel
        self.steps = 0
        self.docstrings = {id(node.value) for node in ast.walk(self.tree) if isinstance(node, ast.Expr)}
        changes = [node for node in ast.walk(self.tree) if isinstance(node, ast.AugAssign)]
        self.merged = {id(node.target) for node in changes if isinstance(node.op, ast.BitOr)}  # `|=` keeps the dict

    def nodes(self) -> Iterator[ast.AST]:
        """Yield every node; meanwhile `dotted` resolves names as they stand there.

        Functions come after the code around them, as they run.
        """
        self.names, self.jitted = dict(_USUAL), False
        self.pending: deque[tuple[_FUNCTIONS, dict[str, str], bool]] = deque()
        yield from self._statements(self.tree.body, self.names)
        while self.pending:
            function, around, self.jitted = self.pending.popleft()
            self._step(len(around) // 16)  # copying 16 names takes the time of a step
            self.names = around | {node.arg: "" for node in ast.walk(function.args) if isinstance(node, ast.arg)}
            yield from self._statements(function.body, self.names)

    def _statements(self, body: list[ast.stmt], closure: dict[str, str]) -> Iterator[ast.AST]:
        for statement in body:
            yield statement
            blocks = []
            for child in ast.iter_child_nodes(statement):
                if isinstance(child, _BLOCKS):
                    blocks.append(child)
                    continue
                for node in ast.walk(child):
                    yield node
                    if isinstance(node, ast.NamedExpr):
                        self._assign(node.target, node.value)
            self._bind(statement)
            if isinstance(statement, _FUNCTIONS):
                self.pending.append((statement, closure, self.jits(statement)))
                continue
            outside = self.names
            if isinstance(statement, ast.ClassDef):  # methods do not see the names in their class
                self._step(len(outside) // 16)
                self.names = dict(outside)
            for block in blocks:
                if isinstance(block, ast.stmt):
                    yield from self._statements([block], closure)
                    continue
                condition = block.type if isinstance(block, ast.ExceptHandler) else block.guard
                yield from () if condition is None else ast.walk(condition)
                yield from self._statements(block.body, closure)
            self.names = outside

    def _step(self, count: int) -> None:
        self.steps += count
        if self.steps > _MOST_STEPS:
            raise RecursionError("too long to be checked")

    def jits(self, function: _FUNCTIONS) -> bool:
        """Return whether a function is a Triton kernel."""
        return any(is_jit(self.dotted(d.func if isinstance(d, ast.Call) else d)) for d in function.decorator_list)

    def _import(self, statement: ast.Import | ast.ImportFrom) -> None:
        for alias, path in zip(statement.names, imports(statement), strict=True):
            if isinstance(statement, ast.Import) and not alias.asname:
                path = path.partition(".")[0]
            self.names[alias.asname or (path if isinstance(statement, ast.Import) else alias.name)] = path

    def _bind(self, statement: ast.stmt) -> None:
        """Record what a statement does to names."""
        match statement:
            case ast.Import() | ast.ImportFrom():
                self._import(statement)
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                self.names[name] = ""
            case ast.Assign(targets, value):
                for target in targets:
                    self._assign(target, value)
            case ast.AnnAssign(target, _, value):
                self._assign(target, value)
            case ast.For(target) | ast.AsyncFor(target) | ast.AugAssign(target):
                self._assign(target, None)
            case ast.With(items) | ast.AsyncWith(items):
                for item in items:
                    self._assign(item.optional_vars, None)

    def _assign(self, target: ast.expr | None, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = self.dotted(value)
        elif isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            for i, element in enumerate(target.elts):
                self._assign(element, values[i] if len(values) == len(target.elts) else None)

    def dotted(self, node: ast.AST | None, depth: int = 0) -> str:
        """Return the dotted name of an expression, `torch.cuda.Event`, or "" if unknown.

        A part that is looked up by a name that is not constant reads `?`.
        """
        parts = []
        while depth < _DEEPEST:
            self._step(1)
            match node:
                case ast.Attribute(value, attr):
                    parts.append(attr)
                    node = value
                    continue
                case ast.NamedExpr(_, value):
                    node = value
                    continue
                case ast.Name(name):
                    parts.append(self.names.get(name, name))
                case ast.Subscript(value, key):
                    parts.append(self._item(value, key, depth + 1))
                case ast.Call(func, arguments):
                    part, node = self._called(func, arguments, depth + 1)
                    parts.append(part)
                    if node is not None:
                        continue
                case _:
                    return ""
            return ".".join(reversed(parts)) if parts[-1] else ""
        return ""

    def _item(self, value: ast.expr, key: ast.expr, depth: int) -> str:
        """Return the dotted name of an item of sys.modules or of a `__dict__`, or ""."""
        owner = self.dotted(value, depth)
        if owner != "sys.modules" and not owner.endswith(".__dict__"):
            return ""
        return owner.removesuffix("__dict__").removeprefix("sys.modules") + (text(key) or "?")

    def _called(self, func: ast.expr, arguments: list[ast.expr], depth: int) -> tuple[str, ast.expr | None]:
        """Return the last part of what a call returns, "" if unknown, and the expression of which it is a part."""
        called = self.dotted(func, depth).removeprefix("builtins.")
        if not arguments:
            return ("os.getppid()" if called == "os.getppid" else ""), None
        first, *rest = arguments
        if called in ("getattr", "vars"):
            return (text(rest[0]) or "?" if called == "getattr" and rest else "__dict__"), first
        imported = called in ("__import__", "importlib.import_module", "sys.modules.get", "sys.modules.pop")
        return (text(first) or "?" if imported else ""), None


def is_jit(path: str) -> bool:
    """Return whether a dotted name is one of Triton's kernel decorators."""
    return path.startswith("triton.") and path.endswith("jit")


def text(node: ast.AST | None, depth: int = 0) -> str:
    """Return the string that constants make, with `{}` for other parts; "" if it is no string."""
    match node:
        case ast.Constant(str(value)):
            return value
        case ast.Constant(bytes(value)):
            return value.decode("latin-1")
        case ast.JoinedStr(values) if depth < _DEEPEST:
            return "".join(text(part, depth + 1) or "{}" for part in values)
        case ast.BinOp(left, ast.Add(), right) if depth < _DEEPEST:
            parts = [text(side, depth + 1) for side in (left, right)]
            return "".join(part or "{}" for part in parts) if any(parts) else ""
    return ""


def parsed(path: Path | None) -> Source | None:
    """Return the parsed file, or None if it is not readable Python."""
    try:
        return Source(path) if path is not None else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
        return None


def imports(node: ast.AST) -> list[str]:
    """Return the dotted names that an import statement brings."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
    return []
