"""The sampler's output as columns and as a summary."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from repro.fingerprint import gpu
from repro.system.jsonio import Json


@dataclass
class Series:
    """`columns`: name -> values, with `t_s` (`time.monotonic`). missing: column -> why it is missing."""

    columns: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def times(self) -> list[float]:
        return self.columns.get("t_s", [])

    @property
    def n(self) -> int:
        return len(self.times)

    def to_json(self, begin_s: float) -> Json:
        """Return the stored form: integers, with times in ms since `begin_s`."""
        times = [round((t - begin_s) * 1000) for t in self.times]
        rest = {name: [int(v) for v in values] for name, values in self.columns.items() if name != "t_s"}
        return {"schema_version": 1, "columns": {"t_ms": times, **rest}, "missing": self.missing}

    def between(self, begin_s: float, end_s: float) -> Series:
        """Return the samples of a window."""
        chosen = [n for n, t in enumerate(self.times) if begin_s <= t <= end_s]
        return Series({name: [values[n] for n in chosen] for name, values in self.columns.items()}, self.missing)


def parse(text: str) -> Series:
    """Parse the sampler's output. Incomplete and malformed lines are left out."""
    head, _, rest = text.partition("\n")
    try:
        header = json.loads(head)
        names = ["t_s", *header["columns"][1:]] if header["columns"] else []
        found = Series({name: [] for name in names}, dict(header["missing"]))
    except (ValueError, KeyError, TypeError):
        return Series(missing={"sampler": "it wrote no header: it could not start, or was ended at once"})
    for line in rest.split("\n")[:-1]:
        parts = line.split(",")
        if names and len(parts) == len(names) and all(part.lstrip("-").isdigit() for part in parts):
            for name, part in zip(names, parts, strict=True):
                found.columns[name].append(int(part) / 1e6 if name == "t_s" else int(part))
    return found


def summary(series: Series) -> Json:
    """Return samples, seconds, {"min", "median", "max"} of each column, and the share of samples by reason."""
    times = series.times
    found: Json = {"samples": series.n, "seconds": round(times[-1] - times[0], 3) if times else 0.0}
    scales = {"sm_mhz": 1.0, "memory_mhz": 1.0, "power_mw": 1e-3, "temperature_c": 1.0}
    for name, scale in scales.items():
        if known := sorted(value * scale for value in series.columns.get(name, []) if value >= 0):
            spread = {"min": known[0], "median": statistics.median(known), "max": known[-1]}
            found[name.replace("_mw", "_w")] = spread
    masks = [int(mask) for mask in series.columns.get("reasons", []) if mask >= 0]
    if masks:
        seen = Counter(name for mask in masks for name in gpu.reasons(mask))
        found["reasons"] = {name: round(seen[name] / len(masks), 4) for name in sorted(seen)}
    return found


def throttled(telemetry: Any) -> str:
    """Return `throttled: ...` if heat or a power brake slowed the GPU in any sample of a row's timed part, else "".

    A share that is rounded to 0 counts too. telemetry: the result of `Telemetry.end`, or None.
    """
    shares = telemetry
    for name in ("windows", "timing", "reasons"):
        shares = shares.get(name) if isinstance(shares, dict) else None
    shares = shares if isinstance(shares, dict) else {}
    seen = {name: shares[name] for name in gpu.THROTTLED if isinstance(shares.get(name), float | int)}
    if not seen:
        return ""
    told = ", ".join(f"{name} in {share:.1%} of samples" for name, share in seen.items())
    return f"throttled: while it was timed the GPU reported {told}"
