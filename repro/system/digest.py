"""One hash over the files of a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path


def tree_digest(folder: Path) -> str:
    """Return a hash over the files of a folder but compiled ones: of the lines "<sha256>  <name>", sorted.

    It is the `dirHash` of in-toto's digest set, of a folder that holds this one.
    """
    found = (f for f in folder.rglob("*") if f.is_file() and f.parent.name != "__pycache__")
    files = sorted((str(f.relative_to(folder.parent)), f) for f in found)
    lines = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {name}\n" for name, file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
