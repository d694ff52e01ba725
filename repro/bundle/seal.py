"""Closing a bundle: the hash of every file, and the bundle id, which is the hash of the manifest that holds them.

Any changed byte then contradicts a hash. Hashes are no signature: a person can change a bundle and renew all hashes.
Only a bundle id that was published elsewhere shows that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from repro.bundle import statement
from repro.errors import UsageError
from repro.system import jsonio
from repro.system.digest import sha256 as sha256
from repro.system.jsonio import Json

MANIFEST, SIGNED = "manifest.json", "statements.intoto.jsonl"


def no_bundle(path: Path) -> UsageError:
    """Returns the error for a path that holds no bundle."""
    why = f"it holds no {MANIFEST} that can be read" if path.exists() else "it does not exist"
    return UsageError(f"{path} is not a bundle", why)


def content(texts: Iterable[tuple[str, str]]) -> str:
    """Return the content hash of a row from the name and the SHA-256 of each judged text."""
    return sha256(b"".join(name.encode() + bytes.fromhex(digest) for name, digest in sorted(texts)))[:16]


def names(folder: Path) -> list[str]:
    """Returns the files of a bundle's folder, sorted, without the manifest and half-written files."""
    found = (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    return sorted(str(f.relative_to(folder)) for f in found if f.name != MANIFEST and not f.name.startswith("."))


def digest(folder: Path, name: str) -> str | None:
    """Returns the hash of one file, or None where it is missing."""
    file = folder / name
    if not file.is_file() or file.is_symlink():
        return None
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def changed(folder: Path, files: dict[str, str]) -> list[str]:
    """Returns the files that are missing or no longer have their hash."""
    return [name for name, known in sorted(files.items()) if digest(folder, name) != known]


def hashes(folder: Path, known: dict[str, str] | None, touched: set[str]) -> dict[str, str]:
    """Returns name -> hash of a bundle's files.

    known: the hashes that the bundle was closed with before, None where it never was closed. Only files in `touched`,
    which this process wrote, are hashed anew: drawing a report hides no change of the rows.
    """
    if known is None:
        return {name: digest(folder, name) or "" for name in names(folder)}
    fresh = {name: found for name in touched if (found := digest(folder, name)) is not None}
    return dict(sorted((known | fresh).items()))


def bundle_id(manifest: Json) -> str:
    """Returns the hash of a manifest without its own `bundle_id`."""
    return sha256(jsonio.render({name: value for name, value in manifest.items() if name != "bundle_id"}))


def close(folder: Path, manifest: Json, rows: Mapping[str, Json], files: dict[str, str]) -> None:
    """Writes the statements, and into `manifest` the hashes of all files and the bundle id. Raises OSError.

    rows: the last row of each id. files: name -> hash of every file but the manifest.
    """
    for name, value in statement.build(manifest, rows, statement.subjects(files)).items():
        jsonio.write(folder / name, value)
        files[name] = digest(folder, name) or ""
    manifest["files"] = dict(sorted(files.items()))
    manifest["bundle_id"] = bundle_id(manifest)
