"""Strict JSON: an infinity or a NaN becomes a string, never an invalid token."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from repro.system import foreign

# An object of a JSON file, as it was read or is to be written.
Json = dict[str, Any]


def strict(value: Any) -> Any:
    """Return the value with non-finite floats as "inf", "-inf" or "nan", and tuples as lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(k): strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [strict(v) for v in value]
    return value


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Return a JSON text. Raises TypeError for a value that JSON does not know."""
    return json.dumps(strict(value), allow_nan=False, indent=indent)


def render(value: Any) -> bytes:
    """Return a JSON file's bytes, equal for equal values. Raises TypeError for a value that JSON does not know."""
    return (dumps(value, indent=1) + "\n").encode()


def lines(values: Iterable[Any]) -> bytes:
    """Return values as lines of JSON. Raises TypeError as `render`."""
    return "".join(dumps(value) + "\n" for value in values).encode()


def write(path: Path, value: Any) -> None:
    """Write a JSON file atomically. Raises OSError, and TypeError for a value that JSON does not know."""
    replace(path, render(value))


def replace(path: Path, content: bytes) -> None:
    """Write a file atomically. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def append(path: Path, value: Any) -> None:
    """Append one line and sync it to disk. Raises OSError."""
    with path.open("a") as stream:
        stream.write(dumps(value) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def mend(path: Path) -> None:
    """Complete or remove a last line that a crash or a full disk cut short, so that lines can follow."""
    if not path.exists():
        return
    data = path.read_bytes()
    last = data.rpartition(b"\n")[2]
    if not last:
        return
    try:
        json.loads(last)
    except ValueError:
        os.truncate(path, len(data) - len(last))
    else:
        with path.open("ab") as stream:
            stream.write(b"\n")


def lines_of(text: str) -> list[Json]:
    """Return the objects of lines, without an incomplete last line. Raises ValueError for another invalid line."""
    *whole, last = text.split("\n")
    objects = [foreign.document(line) for line in whole if line]
    with contextlib.suppress(ValueError):
        objects.append(foreign.document(last))
    return objects
