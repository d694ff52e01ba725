"""A bundle while it grows. Rows are appended and synced one by one; every other file is written whole or not at all."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from repro.bundle import seal, storage
from repro.bundle.lines import Lines, row_of, settled
from repro.bundle.origin import COMMAND, origin
from repro.bundle.seal import MANIFEST
from repro.bundle.storage import Storage
from repro.errors import BundleError, Unreadable, UsageError, refusing
from repro.records import reading
from repro.records.fingerprint import Fingerprint
from repro.records.manifest import Manifest
from repro.records.row import Row
from repro.system import foreign, jsonio, signals, stopwatch
from repro.system.digest import sha256
from repro.system.jsonio import Json

SCHEMA_VERSION = 2
ROWS, FINGERPRINTS, INPUTS, SOLUTIONS, CLAIMS = "rows.jsonl", "fingerprints", "inputs", "solutions", "claims.toml"
# What `repro report` draws from the rows.
DRAWN = re.compile(r"report\.\w+|(?:figures|tables|flashinfer-trace)/.*")


def plan_digest(plan: list[str], parameters: Json) -> str:
    """Returns the hash of plan and parameters. A run continues another only where both have the same."""
    return sha256(jsonio.dumps([plan, parameters]))[:16]


class Bundle:
    """One bundle on disk. `rows` has the last row of every id, as `settled` leaves it.

    A packed bundle is only read. `path` is its folder, or the folder that holds its archive. Several threads may write
    to it, one at a time; a thread that holds `lock` keeps the others out for several writes.
    """

    def __init__(self, path: Path, manifest: Json, files: Storage | None = None) -> None:
        files = files or storage.Folder(path)
        self.path, self.name, self.packed = files.path, files.name, files.packed
        self._files, self.manifest = files, manifest
        self.rows: Mapping[str, Json] = {} if self.packed else Lines(self.path / ROWS)
        self._records: dict[str, Row] = {}
        self._touched: set[str] = set()
        self._kept: dict[str, str] = {}
        self._release: Callable[[], Any] = lambda: None
        self.lock = threading.RLock()

    @staticmethod
    def create(results: Path, verb: str, plan: list[str], parameters: Json) -> Bundle:
        """Makes a bundle `<results>/<utc>-<verb>`. Raises PrerequisiteError where the folder is not writable."""
        path = storage.new_folder(results, verb)
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "tool": origin()["tool"],
            "verb": verb,
            "argv": list(COMMAND),
            "parameters": parameters,
            "plan": plan,
            "plan_digest": plan_digest(plan, parameters),
            "started": stopwatch.utc(),
            "finished": None,
            "status": "running",
            "attempts": [],
        }
        bundle = Bundle(path, manifest)
        bundle._attempt()
        bundle._guard(bundle._hold)
        bundle._save()
        return bundle

    @staticmethod
    def open(path: Path) -> Bundle:
        """Opens a bundle: its folder, a folder that holds its archive, or the archive.

        Raises UsageError where the path holds no bundle, BundleError where rows or archive are damaged.
        """
        files = storage.find(path)
        try:
            content = files.read(MANIFEST)
            if content is None:
                raise seal.no_bundle(path)
            manifest = foreign.document(content)
        except ValueError as error:
            why = f"its {MANIFEST} cannot be read: {error}"
            raise UsageError(f"{path} is not a bundle", why, "Restore it from a copy, or measure again.") from error
        if isinstance(manifest, dict) and (schema := manifest.get("schema_version", SCHEMA_VERSION)) != SCHEMA_VERSION:
            why = f"its schema is {str(schema)[:20]}, this is schema {SCHEMA_VERSION}"
            raise UsageError(f"{path} cannot be read", why, "Use the release of repro that wrote it.")
        if wrong := reading.complaints(Manifest, manifest):
            raise UsageError(f"{path} is not a bundle", f"its {MANIFEST}: {'; '.join(wrong)}")
        try:
            bundle = Bundle(path, manifest, files)
            if files.packed:
                rows = map(row_of, filter(None, (files.read(ROWS) or b"").split(b"\n")))
                bundle.rows = {row["row"]: settled(row) for row in rows}
        except (Unreadable, ValueError) as error:
            raise BundleError(f"{path / ROWS} is damaged", str(error), "Measure again without --resume.") from error
        return bundle

    @staticmethod
    def resume(results: Path, verb: str, plan: list[str], parameters: Json) -> Bundle | None:
        """Takes the newest unfinished bundle of the same plan that no other process is writing, else returns None.

        A bundle that holds rows comes before one that holds none.
        """
        digest = plan_digest(plan, parameters)
        for path in sorted(results.glob(f"*-{verb}*"), key=lambda p: (_has_rows(p), p), reverse=True):
            if _planned(path) == digest and (bundle := Bundle.open(path))._take():
                return bundle
        return None

    def _take(self) -> bool:
        """Takes this bundle for writing; returns False where it is complete or another process is writing it."""
        if self.manifest["status"] == "complete":
            return False
        self._writable("resumed")
        if not self._hold():
            return False
        now = Bundle.open(self.path)  # the process that held it may have written since
        if now.manifest["status"] == "complete":
            self._release()
            return False
        self.manifest, self.rows = now.manifest, now.rows
        if self.manifest["status"] != "running" and (wrong := seal.changed(self.path, self.manifest.get("files", {}))):
            self._release()
            why = f"{', '.join(wrong)} changed after it was closed"
            raise BundleError(f"{self.path} is not as it was written", why, "Measure again without --resume.")
        self._guard(self._tidy)
        closed = self.manifest.get("files", {})
        for name in ("error", "files", "bundle_id"):
            self.manifest.pop(name, None)
        self.manifest |= {"status": "running", "finished": None}
        self._attempt()
        self._save()  # before anything is removed that the closed manifest names
        for name in {"report.json", "report.md", *filter(DRAWN.fullmatch, closed)}:  # drawn from fewer rows
            self._guard(partial((self.path / name).unlink, missing_ok=True))
        return True

    def _tidy(self) -> None:
        """Ends a line that a killed process cut short, and removes the files that it had half written."""
        jsonio.mend(self.path / ROWS)
        for half in self.path.rglob(".*"):
            if half.is_file():
                half.unlink()

    def _attempt(self) -> None:
        """Records in the manifest that this process's code writes from now on."""
        self.manifest.setdefault("origin", {name: value for name, value in origin().items() if name != "tool"})
        code = {name: origin()[name] for name in ("tool", "code_sha256")}
        self.manifest["attempts"].append({"started": stopwatch.utc(), **code})

    def _save(self) -> None:
        self._guard(lambda: jsonio.write(self.path / MANIFEST, self.manifest))

    @property
    def _holds(self) -> bool:
        return isinstance(self._release, weakref.finalize) and self._release.alive

    def _hold(self) -> bool:
        """Locks the bundle until it is finished or this process ends; returns False where another process holds it."""
        held = storage.Folder(self.path).hold(self)
        self._release = held or self._release
        return held is not None

    def _writable(self, use: str) -> None:
        """Raises UsageError for a packed bundle, which is never written to."""
        if self.packed:
            archive = self.path / storage.ARCHIVE
            remedy = {"resumed": f"Unpack it into another results folder: tar -xf {archive} -C DIR"}
            raise UsageError(
                f"{self.path} is not {use}", "it is packed as an archive, which is only read",
                remedy.get(use, "Add -o DIR to write elsewhere."),
            )  # fmt: skip

    def _guard(self, call: Callable[[], Any]) -> None:
        kept = (
            f"Rows that are kept: {len(self.rows)}. Free space or give access, then repeat a run with --resume, or "
            "draw a report elsewhere with -o DIR."
        )
        with refusing(BundleError, f"cannot write to {self.path}", kept):
            call()

    def record(self, row: str) -> Row:
        """Returns the last row of an id as a record. Raises KeyError or BundleError where it is missing or damaged."""
        return reading.row(self.rows[row])

    def records(self) -> dict[str, Row]:
        """Returns the last row of every id as a record, in the plan's order. Raises BundleError if one is damaged."""
        for name in self.rows:
            if name not in self._records:
                self._records[name] = self.record(name)
        planned = [name for name in self.manifest["plan"] if name in self.rows]
        return {name: self._records[name] for name in dict.fromkeys([*planned, *self.rows])}

    def done(self, row: str, content: str | None = None) -> bool:
        """Returns whether a row was measured. content: the hash of the inputs that it must be the result of."""
        if isinstance(self.rows, Lines):
            place = self.rows.place(row)
            return place is not None and place.status == "done" and content in (None, place.content)
        found = self.rows.get(row, {})
        return found.get("status") == "done" and content in (None, found.get("content"))

    def held(self) -> bool:
        """Returns whether a process is writing this bundle."""
        return not self.packed and self._files.held()

    def add(self, row: Json) -> None:
        """Appends one row and syncs it. Raises BundleError where it cannot be written."""
        with self.lock:
            assert isinstance(self.rows, Lines), "a packed bundle is only read"
            self._guard(lambda: jsonio.append(self.path / ROWS, row))
            self._touched.add(ROWS)
            self.rows.read()
            self._records.pop(row["row"], None)

    def declare(self, claims: bytes) -> None:
        """Stores the claims that a run is held to. Raises BundleError where rows exist: claims come first."""
        known = self.manifest.get("claims", {}).get("sha256")
        if known == sha256(claims):
            return
        if self.rows:
            raise BundleError(f"{self.path} has rows already", "claims are declared before a run", "Start another run.")
        self.file(CLAIMS, claims)
        self.manifest["claims"] = {"file": CLAIMS, "sha256": sha256(claims), "declared": stopwatch.utc()}
        self._save()

    def fingerprint(self, fingerprint: Fingerprint | None) -> str | None:
        """Stores a fingerprint once and returns its id."""
        if fingerprint is None:
            return None
        name = f"{FINGERPRINTS}/{fingerprint.fingerprint_id}.json"
        with self.lock:
            if not (self.path / name).exists():
                self.file(name, jsonio.render(fingerprint.to_json()))
        return fingerprint.fingerprint_id

    def fingerprints(self) -> dict[str, Json]:
        """Returns all fingerprints of this bundle by id. Raises BundleError where one is damaged."""
        found = {}
        for name in self._files.entries():
            if re.fullmatch(rf"{FINGERPRINTS}/[^/.][^/]*\.json", name):
                try:
                    value = foreign.document(self._files.read(name) or b"")
                except ValueError as error:
                    raise BundleError(f"{self.path / name} is damaged", str(error)) from error
                if wrong := reading.complaints(Fingerprint, value):
                    raise BundleError(f"{self.path / name} is damaged", "; ".join(wrong))
                found[Path(name).stem] = value
        return found

    def read(self, name: str) -> bytes | None:
        """Returns one file's bytes, or None where it is missing, a link, or outside the bundle."""
        return self._files.read(name)

    def file(self, name: str, content: bytes) -> None:
        """Writes a file beside the rows: a solution, a report. Raises UsageError for a packed bundle."""
        self._writable("written to")
        with self.lock:
            self._guard(lambda: jsonio.replace(self.path / name, content))
            self._touched.add(name)
            self._kept[sha256(content)] = name

    def keep(self, name: str, content: bytes) -> str:
        """Stores a source that a row was measured from, once, and returns its name in the bundle."""
        digest = sha256(content)
        with self.lock:
            if digest not in self._kept:
                self.file(f"{INPUTS}/{digest[:16]}-{re.sub(r'[^A-Za-z0-9._-]+', '_', name)[-80:]}", content)
            return self._kept[digest]

    def finish(self, status: str, **facts: Any) -> None:
        """Sets the status (complete, incomplete, interrupted, failed) and closes the bundle.

        Hashes the files that this process wrote, then writes statements and manifest. Ctrl-C waits until that is done.
        Does nothing where another process is writing the bundle.
        """
        with signals.held(), self.lock:
            if not self._holds and not self._hold():
                return
            known = self.manifest.get("files") if self.manifest["status"] != "running" else None
            finished = stopwatch.utc() if known is None else self.manifest["finished"]
            self.manifest |= {"status": status, "finished": finished, **facts}
            if status != "running":
                touched = self._touched
                self._guard(
                    lambda: seal.close(self.path, self.manifest, self.rows, seal.hashes(self.path, known, touched))
                )
                self._save()
            self._release()


def latest(results: Path, verbs: tuple[str, ...]) -> Bundle | None:
    """Returns the newest bundle of these verbs in a results folder that holds a row, or None."""
    pattern = re.compile(r"^\d{8}T\d{6}Z-(" + "|".join(verbs) + r")(-\d+)?$")
    folders = sorted(p for p in results.glob("*") if pattern.match(p.name) and (p / MANIFEST).exists())
    return next((Bundle.open(path) for path in reversed(folders) if _has_rows(path)), None)


def _planned(path: Path) -> str:
    """The digest of a bundle's plan; empty where its manifest cannot be read, as in a folder that is no bundle."""
    try:
        return str(foreign.document(storage.Folder(path).read(MANIFEST) or b"")["plan_digest"])
    except (ValueError, KeyError, TypeError):
        return ""


def _has_rows(path: Path) -> bool:
    """Whether a bundle holds a row. Only bundles with rows are packed."""
    file = path / ROWS
    return (path / storage.ARCHIVE).exists() or (file.exists() and file.stat().st_size > 0)
