"""The code that writes a bundle: the hash of its files, its requirement files, its git commit."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from repro import __version__, config
from repro.bundle.seal import sha256
from repro.fingerprint import git


def tree_digest(folder: Path, pattern: str) -> str:
    """Returns one hash over the files of a folder: of the lines "<sha256>  <name>", sorted, as of `sha256sum`."""
    files = sorted((str(f.relative_to(folder.parent)), f) for f in folder.rglob(pattern) if f.is_file())
    return sha256("".join(f"{sha256(file.read_bytes())}  {name}\n" for name, file in files).encode())


@cache
def origin() -> dict[str, Any]:
    """Describes this process's code. A tree without git history has a hash and the reason why it has no commit."""
    requirements = sorted((config.ROOT / "requirements").glob("*.txt"))
    return {
        "tool": f"repro {__version__}",
        "code_sha256": tree_digest(config.PACKAGE, "*.py"),
        "requirements": {f"requirements/{file.name}": sha256(file.read_bytes()) for file in requirements},
        **git.values(),
    }
