"""Hashes of texts and of folders."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256(content: bytes | str) -> str:
    """Return the SHA-256 of bytes, or of a text in UTF-8: 64 hexadecimal digits."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def tree_digest(folder: Path) -> str:
    """Return a hash over the files of a folder but compiled ones: of the lines "<sha256>  <name>", sorted.

    It is the `dirHash` of in-toto's digest set, of a folder that holds this one.
    """
    found = (f for f in folder.rglob("*") if f.is_file() and f.parent.name != "__pycache__")
    files = sorted((str(f.relative_to(folder.parent)), f) for f in found)
    return sha256("".join(f"{sha256(file.read_bytes())}  {name}\n" for name, file in files))
