"""The rows of a bundle that is a folder, read from its file when they are asked for.

A row of a timed solution takes 100 kB in memory, so a run of 100,000 rows would need 10 GB. Kept are the place of each
row, its status and the hash of its texts.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.bundle.validity import settled

# Rows that were read last and are kept whole.
KEPT = 64


@dataclass(frozen=True)
class Place:
    """Where a row stands: byte and length in the file; and what decides whether it is measured again."""

    at: int
    length: int
    status: Any
    content: Any


class Lines(Mapping[str, dict[str, Any]]):
    """Row id -> the last row of that id, as `settled` leaves it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._places: dict[str, Place] = {}
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._end = 0
        self._lock = threading.Lock()
        self.read()

    def read(self) -> None:
        """Take the lines that were appended since.

        Raises OSError; ValueError, TypeError or KeyError for a line that is no row. An incomplete last line is left.
        """
        if not self._file.exists():
            return
        with self._lock, self._file.open("rb") as stream:
            stream.seek(self._end)
            for line in stream:
                whole = line.endswith(b"\n")
                if line.strip():
                    try:
                        self._put(json.loads(line.decode()), self._end, len(line))
                    except ValueError:
                        if whole:
                            raise
                        return
                self._end += len(line)

    def _put(self, row: dict[str, Any], at: int, length: int) -> None:
        self._kept.pop(row["row"], None)
        self._places[row["row"]] = Place(at, length, row.get("status"), row.get("content"))

    def place(self, name: str) -> Place | None:
        """Return where a row stands; None if there is none."""
        return self._places.get(name)

    def __getitem__(self, name: str) -> dict[str, Any]:
        with self._lock:
            place = self._places[name]
            found = self._kept.pop(name, None)
            if found is None:
                with self._file.open("rb") as stream:
                    stream.seek(place.at)
                    found = settled(json.loads(stream.read(place.length)))
            self._kept[name] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
