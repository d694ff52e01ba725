"""The rows of a bundle.

`settled` decides from a row's evidence whether its times are measurements. A file of rows holds observations, not
rules, so that a new rule also holds for bundles that were measured before it.
"""

from __future__ import annotations

from typing import BinaryIO

from repro.fingerprint import series
from repro.system import foreign
from repro.system.jsonio import Json

# A row of a timed solution has 30 kB.
_MOST_LINE = 8 << 20


def read(stream: BinaryIO) -> dict[str, Json]:
    """Return the last row of each id, as `settled` leaves it. Raises ValueError for a line that is no row.

    An incomplete last line is left out: a killed process may leave one.
    """
    rows = {}
    while line := stream.readline(_MOST_LINE):
        if line.strip():
            try:
                row = settled(row_of(line))
            except ValueError:
                if line.endswith(b"\n") or len(line) == _MOST_LINE:
                    raise
                break
            rows[row["row"]] = row
    return rows


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
