"""A bundle as it is stored, read once and trusted in nothing: a file that cannot be read is noted, not raised."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from repro.bundle import seal, statement, storage
from repro.bundle.lines import row_of
from repro.bundle.seal import MANIFEST
from repro.bundle.storage import ARCHIVE, Storage
from repro.bundle.write import FINGERPRINTS, ROWS
from repro.errors import BundleError
from repro.records import reading
from repro.records.row import Row
from repro.system import foreign
from repro.system.jsonio import Json

# Most values of all rows together: 5,000 rows of timed solutions.
_MOST_VALUES = 8_000_000


@dataclass
class Evidence:
    """`lines` holds every row in order, `rows` the last of each id. `damage` says of a file why it cannot be read."""

    files_in: Storage
    manifest: Json = field(default_factory=dict)
    manifest_bytes: bytes = b""
    lines: list[Json] = field(default_factory=list)
    fingerprints: dict[str, Json] = field(default_factory=dict)
    statements: dict[str, Json] = field(default_factory=dict)
    report: Json | None = None
    damage: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The bundle's folder, or the folder that holds its archive."""
        return self.files_in.path

    @property
    def name(self) -> str:
        """The bundle's name."""
        return self.files_in.name

    @property
    def version(self) -> int:
        """The schema version of the manifest, 0 where it has none."""
        found = self.manifest.get("schema_version")
        return found if type(found) is int else 0

    @property
    def rows(self) -> dict[str, Json]:
        """The last row of each id."""
        return {str(row.get("row")): row for row in self.lines}

    @cached_property
    def records(self) -> dict[str, Row]:
        """The last row of each id as a record. `schema of rows` names those that are none, which are left out."""
        found = {}
        for name, row in self.rows.items():
            with contextlib.suppress(BundleError):
                found[name] = reading.row(row)
        return found

    @property
    def plan(self) -> list[str]:
        """The ids of the planned rows."""
        plan = self.manifest.get("plan")
        return [str(name) for name in plan] if isinstance(plan, list) else []

    @property
    def parameters(self) -> Json:
        """The parameters of the run."""
        parameters = self.manifest.get("parameters")
        return parameters if isinstance(parameters, dict) else {}

    @property
    def files(self) -> dict[str, str]:
        """The file hashes of the manifest, by name."""
        files = self.manifest.get("files")
        return files if isinstance(files, dict) else {}

    @property
    def open(self) -> bool:
        """Whether the bundle was never closed: its run has not ended, or its process was killed."""
        return self.manifest.get("status") == "running" and "files" not in self.manifest

    def bytes_of(self, name: str) -> bytes | None:
        """Returns one file's bytes, or None where it is missing, a link, or outside the bundle."""
        return self.files_in.read(name)

    def _object(self, name: str) -> Json:
        try:
            content = self.bytes_of(name)
            if content is None:
                raise ValueError("it is no plain file, or too large")
            value = foreign.document(content)
            if not isinstance(value, dict):
                raise ValueError("it holds no object")
        except ValueError as error:
            self.damage[name] = str(error)
            return {}
        return value

    def _lines(self) -> list[Json]:
        found: list[Json] = []
        content = self.bytes_of(ROWS) or b""
        if foreign.values(content) > _MOST_VALUES:
            self.damage[ROWS] = f"it holds more than {_MOST_VALUES:,} values"
            return found
        texts = content.split(b"\n")
        for number, text in enumerate(texts, 1):
            try:
                if text:
                    found.append(row_of(text))
            except ValueError as error:
                if not (self.open and number == len(texts)):  # a killed process may leave half a line
                    self.damage[ROWS] = f"line {number}: {error}"
        return found


def read(path: Path) -> Evidence:
    """Reads a bundle: a folder, a folder with an archive, or an archive. Raises UsageError where it has no manifest."""
    try:
        found = Evidence(storage.find(path))
    except BundleError as error:
        found = Evidence(storage.Folder(path if path.is_dir() else path.parent))
        found.damage[ARCHIVE] = f"{error.why}"
    content = found.bytes_of(MANIFEST)
    if content is None and not found.damage:
        raise seal.no_bundle(path)
    found.manifest_bytes = content or b""
    found.manifest = found._object(MANIFEST)
    found.lines = found._lines()
    names = found.files_in.entries()
    for name in names:
        if name.startswith(f"{FINGERPRINTS}/") and name.count("/") == 1 and name.endswith(".json"):
            found.fingerprints[Path(name).stem] = found._object(name)
    found.statements = {n: found._object(n) for n in (statement.PROVENANCE, statement.TEST_RESULT) if n in names}
    if "report.json" in names:
        found.report = found._object("report.json")
    return found
