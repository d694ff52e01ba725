"""A finding of a code check, and helpers of the Python checks for syntax trees.

A `fault` is wrong as far as the check can see. A `doubt` is often wrong, and its line says when it is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """severity: fault or doubt. line_number: in the snippet, from 1. page: explains the matter."""

    severity: str
    line_number: int
    what: str
    page: str

    def line(self) -> str:
        return f"- {self.severity}, line {self.line_number}: {self.what} [{self.page}]"


def called(node: ast.AST) -> str:
    """Return the dotted name that a call calls, or the empty string."""
    return name(node.func) if isinstance(node, ast.Call) else ""


def name(node: ast.AST) -> str:
    """Return a dotted name as it is written, or the empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = name(node.value)
        return f"{left}.{node.attr}" if left else ""
    return ""


def calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Yield the calls of any of these names below a node, in the order of their lines."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) in names]
    yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))


def keyword(call: ast.Call, word: str, position: int | None = None) -> ast.expr | None:
    """Return an argument by its keyword or its position, or None."""
    for each in call.keywords:
        if each.arg == word:
            return each.value
    return call.args[position] if position is not None and len(call.args) > position else None
