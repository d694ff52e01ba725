"""The rows of a bundle that is a folder, read from its file when they are asked for.

A row of a timed solution takes 100 kB in memory, so a run of 100,000 rows would need 10 GB. Kept are the place of each
row, its status and the hash of its texts. `settled` decides from a row's evidence whether its times are measurements: a
file of rows holds observations, not rules, so that a new rule also holds for bundles that were measured before it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from repro.fingerprint import series
from repro.system import foreign
from repro.system.jsonio import Json

# A row of a timed solution has 30 kB, and 100,000 of them have 2.4 GB.
_MOST_LINE, _MOST_BYTES = 8 << 20, 1 << 33


@dataclass(frozen=True)
class _Place:
    """Where a row stands: byte and length in the file; and what decides whether it is measured again."""

    at: int
    length: int
    status: Any
    content: Any


class Lines(Mapping[str, Json]):
    """Row id -> the last row of that id, as `settled` leaves it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._places: dict[str, _Place] = {}
        self._end = 0
        self._lock = threading.Lock()
        self.read()

    def read(self) -> None:
        """Take the lines that were appended since.

        Raises Unreadable, ValueError for a line that is no row. An incomplete last line is left.
        """
        if not os.path.lexists(self._file):
            return
        with self._lock, self._opened() as stream:
            stream.seek(self._end)
            while line := stream.readline(_MOST_LINE):
                whole = line.endswith(b"\n") or len(line) == _MOST_LINE
                if line.strip():
                    try:
                        row = row_of(line)
                    except ValueError:
                        if whole:
                            raise
                        return
                    place = _Place(self._end, len(line), row.get("status"), row.get("content"))
                    self._places[row["row"]] = place
                self._end += len(line)

    def _opened(self) -> BinaryIO:
        return foreign.opened(self._file, _MOST_BYTES)

    def place(self, name: str) -> _Place | None:
        """Return where a row stands; None if there is none."""
        return self._places.get(name)

    def __getitem__(self, name: str) -> Json:
        with self._lock:
            place = self._places[name]
            with self._opened() as stream:
                stream.seek(place.at)
                return settled(row_of(stream.read(place.length)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def row_of(line: bytes) -> Json:
    """Return the row of a line. Raises ValueError where it is none."""
    row = foreign.document(line)
    if not isinstance(row, dict) or not isinstance(row.get("row"), str):
        raise ValueError("it is no row")
    return row


def settled(row: Json) -> Json:
    """Return a row whose times are marked as no measurement where its GPU was throttled while they were taken.

    Each result then has `measurement` false, and the row's result has the reason as `no_measurement`. Verdicts on
    correctness stay.
    """
    result = row.get("result")
    if not isinstance(result, dict) or not isinstance(result.get("results"), list):
        return row
    why = series.throttled(result.get("telemetry"))
    if not why:
        return row
    judged = [entry | {"measurement": False} if isinstance(entry, dict) else entry for entry in result["results"]]
    return row | {"result": result | {"results": judged, "no_measurement": why}}
