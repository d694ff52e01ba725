"""Reads files that a stranger may have written: the one place that opens them, and that parses what they hold.

A file must be regular, lie inside its folder and have a bounded size. So no pipe is waited for, no device is read
without end, and no link brings another file's text into a bundle. Parsing raises one kind of error, whatever the text.
"""

from __future__ import annotations

import ast
import io
import json
import math
import os
import re
import stat
import tokenize
import warnings
from pathlib import Path
from typing import Any, BinaryIO

from repro.errors import Unreadable

# Most bytes of a text or JSON file; and of a program, whose syntax tree takes 300 times as much.
MOST_BYTES, MOST_SOURCE = 4 << 20, 1 << 20
# Most values of one JSON document, and its levels. A row of a timed solution has 1,400 values and 8 levels.
MOST_VALUES, MOST_LEVELS = 1_000_000, 60
# Most levels of a program: recursive visitors of a syntax tree take up to five calls for each.
_MOST_NESTED = 180
# Integers beyond it cannot become floats.
_MOST_INTEGER = 1 << 256
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
          stat.S_IFBLK: "a device"}  # fmt: skip


# Waits for no pipe, should the file have become one meanwhile.
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


def named(path: Path) -> Path:
    """Return the path of a file or folder whose name becomes part of results. Raises Unreadable for one that cannot."""
    if path.name.isprintable():
        return path
    raise Unreadable(f"cannot read {path}", "its name has control characters or is not UTF-8", "Rename it.")


def opened(path: Path, most: int = MOST_BYTES, *, within: Path | None = None) -> BinaryIO:
    """Open a file to read its bytes. Raises Unreadable where it is missing, no plain file, or larger than `most`.

    within: the folder that a link must not lead out of, by default the file's own.
    """
    what = f"cannot read {path}"
    try:
        real = os.path.realpath(path)
        kind = stat.S_IFMT(os.stat(real).st_mode)
        if kind != stat.S_IFREG:  # a device may do something when it is opened
            raise Unreadable(what, f"it is {_KINDS.get(kind, 'no file')}, not a plain file")
        if not Path(real).is_relative_to(os.path.realpath(within or path.parent)):
            raise Unreadable(what, "it is a link to a file outside of its folder", "Name that file, or copy it.")
        stream = open(os.open(real, _OPEN), "rb")  # noqa: SIM115 the caller closes it
    except (OSError, ValueError) as error:
        raise Unreadable(what, getattr(error, "strerror", None) or str(error)) from error
    facts = os.fstat(stream.fileno())
    if stat.S_ISREG(facts.st_mode) and facts.st_size <= most:
        return stream
    stream.close()
    raise Unreadable(what, f"it has {facts.st_size:,} bytes, and at most {most:,} are read")


def read(path: Path, most: int = MOST_BYTES, *, within: Path | None = None) -> bytes:
    """Return a file's bytes. Raises Unreadable, as `opened`."""
    with opened(path, most, within=within) as stream:
        content = stream.read(most + 1)
    if len(content) > most:  # it grew, or its file system states no size
        raise Unreadable(f"cannot read {path}", f"it has more than {most:,} bytes")
    return content


def text(path: Path, most: int = MOST_BYTES) -> str:
    """Return a file's text, which is UTF-8. Raises Unreadable."""
    try:
        return read(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"cannot read {path}", f"it is not UTF-8 at byte {error.start}") from error


def program(source: bytes) -> str:
    """Return a program's text as Python reads it: by its mark or its declared encoding, with LF at the end of lines.

    The declaration then says UTF-8. Raises SyntaxError, UnicodeDecodeError.
    """
    encoding, declared = tokenize.detect_encoding(io.BytesIO(source).readline)
    told = io.TextIOWrapper(io.BytesIO(source), encoding).read()
    if encoding.startswith("utf-8"):
        return told
    head = "".join(line.decode(encoding) for line in declared)
    return re.sub(r"(coding[:=][ \t]*)[-\w.]+", r"\1utf-8", told[: len(head)]) + told[len(head) :]


def tree(source: bytes | str, name: str = "<unknown>") -> ast.Module:
    """Return the syntax tree of a program. Raises SyntaxError, and nothing else."""
    if len(source) > MOST_SOURCE:
        raise SyntaxError(f"it has more than {MOST_SOURCE:,} bytes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the program's own text
        try:
            found = ast.parse(source, name)
        except (ValueError, OverflowError) as error:
            raise SyntaxError(str(error)) from error
        except (RecursionError, MemoryError) as error:
            raise SyntaxError("it is nested too deep") from error
    level: list[ast.AST] = [found]
    for _ in range(_MOST_NESTED):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return found
    raise SyntaxError(f"it is nested more than {_MOST_NESTED} levels deep")


def document(content: bytes | str) -> Any:
    """Return the value of strict JSON: finite numbers, Unicode text, bounded depth. Raises ValueError alone."""
    told = content.decode() if isinstance(content, bytes) else content
    if values(content) > MOST_VALUES:
        raise ValueError(f"it holds more than {MOST_VALUES:,} values")
    try:
        value = json.loads(told, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError(f"it is nested more than {MOST_LEVELS} levels deep") from error
    _sound(value, MOST_LEVELS)
    return value


def values(content: bytes | str) -> int:
    """Return how many values a JSON text holds at most: what decides how much memory it takes."""
    if isinstance(content, bytes):
        return sum(map(content.count, (b"[", b"{", b",")))
    return sum(map(content.count, "[{,"))


def _refuse(token: str) -> None:
    raise ValueError(f"{token} is not JSON")


def _sound(value: Any, levels: int) -> None:
    """Raise ValueError for a value that cannot be written again, shown or computed with."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            raise ValueError(f"{value[:40]!r} is not Unicode text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not JSON")
    elif isinstance(value, int):
        if abs(value) > _MOST_INTEGER:
            raise ValueError("an integer is too large")
    elif isinstance(value, list | dict):
        if not levels:
            raise ValueError(f"it is nested more than {MOST_LEVELS} levels deep")
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            _sound(each, levels - 1)
