"""What a row's own evidence makes of its times, decided in one place: every reader of a bundle's rows gets this.

`rows.jsonl` keeps what was seen, and no rule; a bundle that was measured before a rule is held to it all the same.
"""

from __future__ import annotations

from typing import Any

from repro.fingerprint import series


def settled(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose times are no measurement where its GPU was throttled while they were taken: every result of it says
    so (`measurement`), and the row's result says why (`no_measurement`). Verdicts on correctness stay."""
    result = row.get("result")
    if not isinstance(result, dict) or not isinstance(result.get("results"), list):
        return row
    why = series.throttled(result.get("telemetry"))
    if not why:
        return row
    judged = [entry | {"measurement": False} if isinstance(entry, dict) else entry for entry in result["results"]]
    return row | {"result": result | {"results": judged, "no_measurement": why}}
