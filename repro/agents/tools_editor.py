"""The text editor tool: view, create, str_replace, insert. It reads any text file and writes below one folder only."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repro.agents.tools_result import Result, shorten

MOST_FILE_BYTES = 16 << 20
MOST_ENTRIES = 500
# Lines shown before and after an edit.
AROUND = 4


class EditorError(Exception):
    """The call cannot be carried out; the model receives the text."""


class Editor:
    """Edits files below `folder`, also if links lead out of it. Relative paths begin there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._commands: dict[str, Callable[[Path, dict[str, Any]], str]] = {
            "view": _view,
            "create": self._create,
            "str_replace": self._str_replace,
            "insert": self._insert,
        }

    def run(self, given: dict[str, Any]) -> Result:
        """Run one call, as the model made it."""
        try:
            command = self._commands.get(str(given.get("command")))
            if command is None:
                raise EditorError(f"no command {given.get('command')!r}: there are {', '.join(self._commands)}")
            path = self.folder / _text(given, "path")
            return Result(shorten(command(path, given)))
        except EditorError as error:
            return Result(str(error), is_error=True)
        except (OSError, ValueError) as error:  # ValueError: a path with NUL
            why = error.strerror if isinstance(error, OSError) else str(error)
            return Result(f"{given.get('path')}: {why or error}", is_error=True)

    def _writable(self, path: Path) -> Path:
        """Return the real path behind all links. Raises EditorError if it is outside the folder."""
        real, home = path.resolve(), self.folder.resolve()
        if real == home or not real.is_relative_to(home):
            raise EditorError(f"{path} is outside {home}: this tool writes below that folder only")
        return real

    def _create(self, path: Path, given: dict[str, Any]) -> str:
        text, real = _text(given, "file_text"), self._writable(path)
        if real.exists() and not real.is_file():
            raise EditorError(f"{path} is not a file")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(text.encode(errors="replace"))
        return f"{path}: written, {len(text.splitlines())} lines"

    def _str_replace(self, path: Path, given: dict[str, Any]) -> str:
        old, new = _text(given, "old_str"), _text(given, "new_str", "")
        real = self._writable(path)
        text = _read(real)
        found = text.count(old) if old else 0
        if not old:
            raise EditorError("old_str is empty")
        if found != 1:
            lines = [str(number) for number, line in enumerate(text.splitlines(), 1) if old.splitlines()[0] in line]
            near = f"; its first line is in lines {', '.join(lines[:20])}" if lines else ""
            raise EditorError(f"old_str must occur exactly once in {path}, it occurs {found} times{near}")
        begin = text.index(old)
        changed = text[:begin] + new + text[begin + len(old) :]
        real.write_bytes(changed.encode())
        first = text[:begin].count("\n") + 1
        return f"{path}: replaced\n{_numbered(changed, first - AROUND, first + new.count(chr(10)) + AROUND)}"

    def _insert(self, path: Path, given: dict[str, Any]) -> str:
        new, real = _text(given, "insert_text"), self._writable(path)
        lines = _read(real).splitlines(keepends=True)
        after = given.get("insert_line")
        if not isinstance(after, int) or not 0 <= after <= len(lines):
            raise EditorError(f"insert_line must be the line after which to insert, 0 to {len(lines)}")
        if after and not lines[after - 1].endswith("\n"):
            lines[after - 1] += "\n"
        if after < len(lines) and not new.endswith("\n"):
            new += "\n"
        changed = "".join([*lines[:after], new, *lines[after:]])
        real.write_bytes(changed.encode())
        return f"{path}: inserted\n{_numbered(changed, after + 1 - AROUND, after + len(new.splitlines()) + AROUND)}"


def _text(given: dict[str, Any], name: str, otherwise: str | None = None) -> str:
    value = given.get(name, otherwise)
    if not isinstance(value, str):
        raise EditorError(f"`{name}` is missing or not a text")
    return value


def _read(path: Path) -> str:
    """Return the text of a file. Pipes and devices, which may never end, are refused."""
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise EditorError(f"{path} is not a file")
    if facts.st_size > MOST_FILE_BYTES:
        raise EditorError(f"{path} has {facts.st_size} bytes, more than this tool reads: use bash")
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        raise EditorError(f"{path} is not a text file in UTF-8: use bash") from None


def _view(path: Path, given: dict[str, Any]) -> str:
    if path.is_dir():
        return _listing(path)
    text = _read(path)
    span = given.get("view_range")
    if span is None:
        return _numbered(text, 1, len(text.splitlines())) or "[empty]"
    if not (isinstance(span, list) and len(span) == 2 and all(isinstance(each, int) for each in span)):
        raise EditorError("view_range must be two line numbers, the second -1 for the end")
    count = len(text.splitlines())
    first, last = span[0], count if span[1] == -1 else span[1]
    if not 1 <= first <= max(count, 1) or last < first:
        raise EditorError(f"view_range {span} is outside 1 to {count}")
    return _numbered(text, first, last)


def _numbered(text: str, first: int, last: int) -> str:
    lines = text.replace("\0", "\ufffd").splitlines()
    return "\n".join(f"{n:6d}\t{line}" for n, line in enumerate(lines, 1) if first <= n <= last)


def _listing(folder: Path) -> str:
    """Return two levels of a folder without hidden names. Links are shown, not followed."""
    found = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        found.append(_entry(entry, folder))
        if entry.is_dir() and not entry.is_symlink():
            inner = [each for each in sorted(entry.iterdir()) if not each.name.startswith(".")]
            found += [_entry(each, folder) for each in inner]
    if len(found) > MOST_ENTRIES:
        found = [*found[:MOST_ENTRIES], f"[{len(found) - MOST_ENTRIES} more]"]
    return "\n".join([f"{folder}:", *found])


def _entry(path: Path, folder: Path) -> str:
    mark = "@" if path.is_symlink() else "/" if path.is_dir() else ""
    return f"{path.relative_to(folder)}{mark}"
