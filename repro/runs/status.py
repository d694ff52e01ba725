"""What a run does now, in a file beside its rows, for `repro report --live` in another terminal.

The file is written at most once a second, and removed when the run ends. Its name is hidden, so that it is no part of
the bundle.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from repro.bundle import storage
from repro.bundle.seal import MANIFEST
from repro.bundle.write import Bundle
from repro.errors import Unreadable, UsageError
from repro.runs.progress import Progress
from repro.system import foreign, jsonio
from repro.system.jsonio import Json

FILE = ".status.json"
_WRITE_S = 1.0
SCHEMA_VERSION = 2


class Board:
    """Writes the file of one run: what its progress shows."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._file, self._progress = folder / FILE, progress
        self._written = float("-inf")

    def write(self) -> None:
        """Write the file, unless it was written a moment ago. A full disk is no reason to end a run."""
        now = time.monotonic()
        if now - self._written < _WRITE_S:
            return
        self._written = now
        running = [{"what": lane.what, "since": lane.since, "line": lane.line[:200]}
                   for lane in self._progress.lanes() if lane.what]  # fmt: skip
        with contextlib.suppress(OSError):
            jsonio.write(self._file, {"expected_s": self._progress.rest_s, "running": running})

    def close(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)


def find(results: Path) -> Path:
    """Return the bundle to look at: the newest that a process writes, else the newest. Raises UsageError."""
    known = sorted(file.parent for file in results.glob(f"*/{MANIFEST}"))
    live = [path for path in known if storage.Folder(path).held()]
    if not known:
        raise UsageError(f"no bundle in {results}", "", "Name the folder of a run, or its --results.")
    return (live or known)[-1]


def read(path: Path) -> Json:
    """Return what a run does or did. status: of the manifest, or `died` if its process ended without setting one."""
    bundle = Bundle.open(path)
    plan = bundle.manifest["plan"]
    done = [name for name in plan if bundle.done(name)]
    failed = [bundle.record(name) for name in plan if name in bundle.rows and not bundle.done(name)]
    status = bundle.manifest["status"]
    live = status == "running" and bundle.held()
    try:
        now = foreign.document(foreign.read(path / FILE)) if live else {}
    except (Unreadable, ValueError):
        now = {}
    return {
        "schema_version": SCHEMA_VERSION,
        "bundle": str(path),
        "status": "died" if status == "running" and not live else status,
        "planned": len(plan),
        "done": len(done),
        "finished": done,
        "failed": {row.row: f"{row.status}: {row.error}" for row in failed},
        "running": now.get("running", []),
        "expected_s": now.get("expected_s"),
    }
