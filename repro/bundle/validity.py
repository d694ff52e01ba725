"""Rules that decide from a row's evidence whether its times are measurements. All readers of rows apply them.

`rows.jsonl` holds observations, not rules. So a new rule also holds for bundles that were measured before it.
"""

from __future__ import annotations

from typing import Any

from repro.fingerprint import series


def settled(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row whose times are marked as no measurement where its GPU was throttled while they were taken.

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
