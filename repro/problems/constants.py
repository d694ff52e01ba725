"""Constants of a problem file: the sizes that its text holds, and the same file with other sizes.

A constant is named as its file names it (`batch_size`). A number inside a function or a compound expression is named by
where it stands and what it is: `get_inputs.224` is every 224 in the body of `get_inputs`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard

from repro.errors import UsageError

_INPUTS, _INIT = "get_inputs", "get_init_inputs"
# The name by which a rewritten file calls `_as`.
_AS = "__repro_as__"
_ASSIGN = (ast.Assign, ast.AnnAssign, ast.AugAssign)
# Constants of a problem file by name, as `--shapes` gives them.
Overrides = dict[str, Any]


@dataclass(frozen=True)
class Constant:
    """One number of a problem file that its inputs or constructor arguments are made from.

    name: as `--shapes` takes it. positions: where the number stands in a tuple or list; None for a plain number.
    init: whether constructor arguments depend on it.
    """

    name: str
    value: int
    positions: tuple[int, ...] | None
    init: bool


def _assignments(tree: ast.Module) -> dict[str, ast.expr]:
    """Module-level name -> the expression that is assigned to it. Of several assignments the last."""
    nodes = [node for node in tree.body if isinstance(node, _ASSIGN)]
    return {name: node.value for node in nodes if node.value for name in _stored(node)}


def _stored(node: ast.stmt) -> list[str]:
    """Names that an assignment gives a value."""
    if not isinstance(node, _ASSIGN) or node.value is None:
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    inner = [n for target in targets for n in ast.walk(target)]
    return [n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _reached(tree: ast.Module, start: str) -> list[str]:
    """Functions and assigned names of the module that a function uses, and what those use in turn."""
    scopes = {**_assignments(tree), **_functions(tree)}
    reached = []
    pending = [start]
    while pending:
        name = pending.pop(0)
        if name in scopes and name not in reached:
            reached.append(name)
            pending += [node.id for node in ast.walk(scopes[name]) if isinstance(node, ast.Name)]
    return reached


def _sources(tree: ast.Module) -> list[str]:
    """Functions and assigned names that inputs or constructor arguments depend on."""
    return list(dict.fromkeys([*_reached(tree, _INPUTS), *_reached(tree, _INIT)]))


def _integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _numbers(node: ast.AST) -> Iterator[int]:
    """Whole numbers that a piece of a program's text holds, each once."""
    values = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
    yield from dict.fromkeys(filter(_integer, values))


def sizes(source: bytes, values: Mapping[str, Any]) -> Iterator[Constant]:
    """The numbers that `get_inputs` and `get_init_inputs` use, in the order of the file. values: its namespace."""
    tree = ast.parse(source)
    assigned, functions = _assignments(tree), _functions(tree)
    init = set(_reached(tree, _INIT))
    for name in _sources(tree):
        node: ast.AST = functions[name] if name in functions else assigned[name]
        derived = any(isinstance(n, ast.Name) and n.id in assigned for n in ast.walk(node))
        if name in functions or derived:
            yield from (Constant(f"{name}.{number}", number, None, name in init) for number in _numbers(node))
        else:
            yield from _constants(name, values.get(name), init=name in init)


def _constants(name: str, value: Any, *, init: bool) -> Iterator[Constant]:
    """The numbers of an assigned value: itself, or those of a tuple or list, each once."""
    if _integer(value):
        yield Constant(name, value, None, init)
    elif isinstance(value, tuple | list) and all(map(_integer, value)):
        for number in dict.fromkeys(value):
            yield Constant(name, number, tuple(i for i, item in enumerate(value) if item == number), init)


def names(source: bytes) -> list[str]:
    """What `--shapes` may name: module-level names, then numbers inside the functions that make the inputs."""
    tree = ast.parse(source)
    functions = _functions(tree)
    inside = [
        f"{name}.{number}" for name in _sources(tree) if name in functions for number in _numbers(functions[name])
    ]
    return [*_assignments(tree), *inside]


@lru_cache
def holds(source: bytes, name: str) -> bool:
    """Whether a file has a constant of this name."""
    tree = ast.parse(source)
    scope, dot, number = name.partition(".")
    assigned = _assignments(tree)
    if not dot:
        return name in assigned
    nodes = {**assigned, **_functions(tree)}
    return number.isdecimal() and scope in nodes and int(number) in _numbers(nodes[scope])


class _Numbers(ast.NodeTransformer):
    """Replaces whole numbers by others."""

    def __init__(self, changed: dict[int, Any]) -> None:
        self.changed = changed

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if _integer(node.value) and node.value in self.changed:
            return ast.copy_location(ast.parse(repr(self.changed[node.value]), mode="eval").body, node)
        return node


def _as(original: Any, value: Any) -> Any:
    """`value` with the kinds of sequences that the file has: JSON knows lists alone."""
    if isinstance(original, list | tuple) and isinstance(value, list | tuple):
        like = [*original, *original[-1:] * (len(value) - len(original))]
        return type(original)(_as(o, v) for o, v in zip(like, value, strict=False)) if like else type(original)(value)
    return value


def rewritten(source: bytes, path: str, overrides: Overrides) -> tuple[ast.Module, Overrides]:
    """The file with other constants, and names that its namespace must hold before it runs.

    A name gets its new value right after its assignment, so that what the file computes from it follows.
    """
    tree = ast.parse(source, path)
    inside: dict[str, dict[int, Any]] = {}
    for name, value in overrides.items():
        scope, dot, number = name.partition(".")
        if dot and number.isdecimal():
            inside.setdefault(scope, {})[int(number)] = value
    body = []
    for node in tree.body:
        body.append(node)
        for name in [node.name] if isinstance(node, ast.FunctionDef) else _stored(node):
            if name in inside:
                _Numbers(inside[name]).visit(node)
            if name in overrides and not isinstance(node, ast.FunctionDef):
                again = ast.parse(f"{name} = {_AS}({name}, {overrides[name]!r})").body[0]
                body.append(ast.copy_location(again, node))
    tree.body = body
    return ast.fix_missing_locations(tree), {_AS: _as}


def free(source: bytes) -> dict[str, int]:
    """The whole numbers that inputs are made from and constructor arguments are not: name -> value."""
    literals = {name: getattr(node, "value", None) for name, node in _assignments(ast.parse(source)).items()}
    found = sizes(source, literals)
    return {each.name: each.value for each in found if not each.init and each.name in literals}


def given(text: str) -> Overrides:
    """Overrides from `NAME=VALUE,NAME=VALUE`, values as Python literals. Raises UsageError for anything else."""
    overrides = {}
    for word in re.split(r",(?=\s*[\w.]+\s*=)", text):
        name, equals, text = word.partition("=")
        try:
            if not equals or not name:
                raise ValueError
            overrides[name.strip()] = json.loads(json.dumps(ast.literal_eval(text.strip())))  # as bundles keep it
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
            why = "a value is a number, a text, or a tuple or list of them"
            remedy = "Write constants of the problem file and their values, such as --shapes batch_size=16,dim=64."
            raise UsageError(f"--shapes {word} is not NAME=VALUE", why, remedy) from error
    return overrides


def stamp(size: str, overrides: Overrides) -> str:
    """A size as results show it: `full`, or `smoke: batch_size=4, dim=64`."""
    return f"{size}: {listed(overrides)}" if overrides else size


def listed(overrides: Overrides) -> str:
    """Constants and their values on one line."""
    return ", ".join(f"{name}={_text(value)}" for name, value in overrides.items())


def _text(value: Any) -> str:
    return repr(tuple(value) if isinstance(value, list) else value).replace(" ", "")
