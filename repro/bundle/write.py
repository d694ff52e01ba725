"""A bundle while it grows: rows are appended and synced one by one, everything else is written whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repro import __version__, jsonio
from repro.errors import BundleError, PrerequisiteError, UsageError

SCHEMA_VERSION = 1
MANIFEST, ROWS, FINGERPRINTS = "manifest.json", "rows.jsonl", "fingerprints"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def plan_digest(plan: list[str], parameters: dict[str, Any]) -> str:
    """What two runs must share for one to continue the other."""
    return hashlib.sha256(jsonio.dumps([plan, parameters]).encode()).hexdigest()[:16]


class Bundle:
    """One bundle on disk. `rows` holds the last row of every id."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest
        self.rows: dict[str, dict[str, Any]] = {}
        self._release: Callable[[], Any] = lambda: None

    @staticmethod
    def create(results: Path, verb: str, plan: list[str], parameters: dict[str, Any]) -> Bundle:
        """A new bundle `<results>/<utc>-<verb>`. Raises PrerequisiteError where the folder is not writable."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        for attempt in range(1000):
            path = results / (f"{stamp}-{verb}" + (f"-{attempt}" if attempt else ""))
            try:
                path.mkdir(parents=True)
                break
            except FileExistsError:
                if results.exists() and not results.is_dir():
                    raise PrerequisiteError(
                        f"results folder {results} is a file", "", "Choose another --results."
                    ) from None
            except OSError as error:
                raise PrerequisiteError(
                    f"cannot write to the results folder {results}",
                    error.strerror or str(error),
                    "Choose another --results.",
                ) from error
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "tool": f"repro {__version__}",
            "verb": verb,
            "parameters": parameters,
            "plan": plan,
            "plan_digest": plan_digest(plan, parameters),
            "started": _now(),
            "finished": None,
            "status": "running",
        }
        bundle = Bundle(path, manifest)
        bundle._guard(bundle._hold)
        bundle._save()
        return bundle

    @staticmethod
    def open(path: Path) -> Bundle:
        """An existing bundle. Raises UsageError where the folder is none."""
        import json

        try:
            manifest = json.loads((path / MANIFEST).read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} is not a bundle", str(error)) from error
        if not isinstance(manifest, dict) or not {"plan", "plan_digest", "status", "verb"} <= manifest.keys():
            raise UsageError(f"{path} is not a bundle", f"its {MANIFEST} is of something else")
        bundle = Bundle(path, manifest)
        try:
            bundle.rows = {row["row"]: row for row in jsonio.lines(path / ROWS)}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise BundleError(f"{path / ROWS} is damaged", str(error), "Measure again without --resume.") from error
        return bundle

    @staticmethod
    def resume(results: Path, verb: str, plan: list[str], parameters: dict[str, Any]) -> Bundle | None:
        """The newest unfinished bundle of the same plan that no other process is writing, or None."""
        digest = plan_digest(plan, parameters)
        for path in sorted(results.glob(f"*-{verb}*"), reverse=True):
            if (path / MANIFEST).exists():
                bundle = Bundle.open(path)
                if bundle.manifest["plan_digest"] == digest and bundle._take():
                    return bundle
        return None

    def _take(self) -> bool:
        """Goes on with this bundle, unless it is complete or another process has it."""
        if self.manifest["status"] == "complete" or not self._hold():
            return False
        now = Bundle.open(self.path)  # whoever held it may have written since
        if now.manifest["status"] == "complete":
            self._release()
            return False
        self.manifest, self.rows = now.manifest, now.rows
        self._guard(lambda: jsonio.mend(self.path / ROWS))
        self.manifest["status"] = "running"
        self.manifest.pop("error", None)
        self._save()
        return True

    def _save(self) -> None:
        self._guard(lambda: jsonio.write(self.path / MANIFEST, self.manifest))

    def _hold(self) -> bool:
        """Takes the bundle for this process until it is finished or the process ends; False where another has it."""
        lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        self._release = weakref.finalize(self, os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._release()
            return False
        except OSError:  # a file system without locks
            return True
        return True

    def _guard(self, call: Any) -> None:
        try:
            call()
        except OSError as error:
            kept = f"{len(self.rows)} rows written before are kept; free space and repeat with --resume."
            raise BundleError(f"cannot write to {self.path}", error.strerror or str(error), kept) from error

    def done(self, row: str, content: str | None = None) -> bool:
        """Whether a row was measured; content: the hash of what it must be the result of."""
        found = self.rows.get(row, {})
        return found.get("status") == "done" and (content is None or found.get("content") == content)

    def add(self, row: dict[str, Any]) -> None:
        """Appends one row and syncs it. Raises BundleError where the disk refuses."""
        self._guard(lambda: jsonio.append(self.path / ROWS, row))
        self.rows[row["row"]] = row

    def fingerprint(self, fingerprint: dict[str, Any] | None) -> str | None:
        """Stores a fingerprint once and returns its id."""
        if fingerprint is None:
            return None
        name = str(fingerprint["fingerprint_id"])
        file = self.path / FINGERPRINTS / f"{name}.json"
        if not file.exists():
            self._guard(lambda: jsonio.write(file, fingerprint))
        return name

    def fingerprints(self) -> dict[str, dict[str, Any]]:
        """All fingerprints of this bundle by id."""
        import json

        return {f.stem: json.loads(f.read_text()) for f in sorted((self.path / FINGERPRINTS).glob("*.json"))}

    def file(self, name: str, content: bytes) -> None:
        """A file beside the rows: a solution, a report."""
        target = self.path / name

        def write() -> None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

        self._guard(write)

    def finish(self, status: str, **facts: Any) -> None:
        """Sets the status (complete, incomplete, interrupted, failed) and hashes every file of the bundle."""
        files = {}
        for file in sorted(self.path.rglob("*")):
            if file.is_file() and file.name != MANIFEST and not file.name.startswith("."):
                files[str(file.relative_to(self.path))] = hashlib.sha256(file.read_bytes()).hexdigest()
        self.manifest |= {"status": status, "finished": _now(), "files": files, **facts}
        self._save()
        self._release()


def latest(results: Path, verbs: tuple[str, ...]) -> Bundle | None:
    """The newest bundle of these verbs below a results folder."""
    pattern = re.compile(r"^\d{8}T\d{6}Z-(" + "|".join(verbs) + r")(-\d+)?$")
    folders = sorted(p for p in results.glob("*") if pattern.match(p.name) and (p / MANIFEST).exists())
    return Bundle.open(folders[-1]) if folders else None
