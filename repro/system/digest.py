"""One hash over the files of a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path


def tree_digest(folder: Path, pattern: str) -> str:
    """Return a hash over the files of a folder: of the lines "<sha256>  <name>", sorted, as of `sha256sum`."""
    files = sorted((str(f.relative_to(folder.parent)), f) for f in folder.rglob(pattern) if f.is_file())
    lines = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {name}\n" for name, file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
