"""A bundle as it lies on disk, read once and believed in nothing: what cannot be read is noted, not raised."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.bundle.seal import MANIFEST, STATEMENT
from repro.bundle.write import FINGERPRINTS, ROWS
from repro.errors import UsageError


def _refuse(token: str) -> None:
    raise ValueError(f"{token} is not JSON")


@dataclass
class Evidence:
    """`lines` holds every row in order, `rows` the last of each id; `damage` says of a file why it cannot be read."""

    path: Path
    manifest: dict[str, Any] = field(default_factory=dict)
    manifest_bytes: bytes = b""
    lines: list[dict[str, Any]] = field(default_factory=list)
    fingerprints: dict[str, dict[str, Any]] = field(default_factory=dict)
    statement: dict[str, Any] | None = None
    report: dict[str, Any] | None = None
    damage: dict[str, str] = field(default_factory=dict)

    @property
    def version(self) -> int:
        found = self.manifest.get("schema_version")
        return found if isinstance(found, int) else 0

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        return {str(row.get("row")): row for row in self.lines}

    @property
    def plan(self) -> list[str]:
        plan = self.manifest.get("plan")
        return [str(name) for name in plan] if isinstance(plan, list) else []

    @property
    def files(self) -> dict[str, str]:
        files = self.manifest.get("files")
        return files if isinstance(files, dict) else {}

    @property
    def running(self) -> bool:
        return self.manifest.get("status") == "running"

    def bytes_of(self, name: str) -> bytes | None:
        """One file, None where it is not there or lies outside the bundle."""
        file = self.path / name
        inside = not Path(name).is_absolute() and ".." not in Path(name).parts
        return file.read_bytes() if inside and file.is_file() and not file.is_symlink() else None

    def _object(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads((self.bytes_of(name) or b"").decode(), parse_constant=_refuse)
            if not isinstance(value, dict):
                raise ValueError("it holds no object")
        except (ValueError, RecursionError) as error:
            self.damage[name] = str(error)
            return {}
        return value

    def _lines(self) -> list[dict[str, Any]]:
        found = []
        for number, text in enumerate((self.bytes_of(ROWS) or b"").split(b"\n"), 1):
            try:
                if text:
                    row = json.loads(text.decode(), parse_constant=_refuse)
                    if not isinstance(row, dict) or not isinstance(row.get("row"), str):
                        raise ValueError("it is no row")
                    found.append(row)
            except (ValueError, RecursionError) as error:
                self.damage[ROWS] = f"line {number}: {error}"
        return found


def read(path: Path) -> Evidence:
    """Reads a bundle. Raises UsageError where the folder holds no manifest."""
    found = Evidence(path)
    content = found.bytes_of(MANIFEST)
    if content is None:
        raise UsageError(f"{path} is not a bundle", f"it holds no {MANIFEST}")
    found.manifest_bytes = content
    found.manifest = found._object(MANIFEST)
    found.lines = found._lines()
    for file in sorted((path / FINGERPRINTS).glob("*.json")):
        found.fingerprints[file.stem] = found._object(f"{FINGERPRINTS}/{file.name}")
    if (path / STATEMENT).is_file():
        found.statement = found._object(STATEMENT)
    if (path / "report.json").is_file():
        found.report = found._object("report.json")
    return found
