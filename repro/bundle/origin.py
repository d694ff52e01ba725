"""The code that writes a bundle: the hash of its files, its requirement files, its git commit."""

from __future__ import annotations

from functools import cache

from repro import __version__, config
from repro.fingerprint import container
from repro.fingerprint.query import answers
from repro.system.digest import sha256, tree_digest
from repro.system.jsonio import Json

# The words after `repro` of the command that this process runs. The command line sets it; from Python it is empty.
COMMAND: list[str] = []


@cache
def origin() -> Json:
    """Describes this process's code. A tree without git history has a hash and the reason why it has no commit."""
    requirements = sorted((config.ROOT / "requirements").glob("*.txt"))
    return {
        "tool": f"repro {__version__}",
        "code_sha256": tree_digest(config.PACKAGE),
        "requirements": {f"requirements/{file.name}": sha256(file.read_bytes()) for file in requirements},
        **{name: found.to_json() for name, found in answers(container.GIT).items()},
    }
