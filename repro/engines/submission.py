"""What is read from the folder in which an agent leaves its solutions, within bounds."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from repro.errors import Unreadable, printable
from repro.system import foreign

#: Most bytes of one file and of all files, and most files; beyond them the rest is cut off and named.
FILE_BYTES, MOST_BYTES, MOST_FILES = 32 << 20, 96 << 20, 1000
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@=-]{0,119}\.py")


@dataclass
class Basket:
    """Collects solutions up to the bounds. files: name -> text. cut: what was left out, or cut off, by name."""

    files: dict[str, bytes] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    left: int = MOST_BYTES

    def put(self, name: str, read: Callable[[int], bytes]) -> None:
        """Add a file. read: a function of the most bytes to read."""
        if not NAME.fullmatch(name) or len(self.files) >= MOST_FILES:
            self.drop(name)
            return
        bound = min(FILE_BYTES, self.left)
        content = read(bound + 1)
        if len(content) > bound:
            content = content[:bound]
            self.drop(name)
        self.left -= len(content)
        self.files[name] = content

    def drop(self, name: str) -> None:
        """Name a file that is left out or cut off."""
        shown = printable(name[:200])
        if shown not in self.cut and len(self.cut) < MOST_FILES:
            self.cut.append(shown)


def collect(folder: Path) -> Basket:
    """Return the plain files of a folder of this machine, and name what is not one."""
    basket = Basket()
    if folder.is_symlink() or not folder.is_dir():
        basket.drop(folder.name)
        return basket
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if not entry.is_file(follow_symlinks=False):
            basket.drop(entry.name)
            continue
        try:
            with foreign.opened(Path(entry.path), sys.maxsize) as stream:
                basket.put(entry.name, stream.read)
        except (OSError, Unreadable):
            basket.drop(entry.name)
    return basket
