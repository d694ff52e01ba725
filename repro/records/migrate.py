"""Reads the records of a bundle's files, whichever release wrote them: older forms become the current one.

Differences of older rows, oldest first:

- Schema 1 (repro 0.1) kept samples as blocks, `{"device": [[ms, ms], …], "host": …}`, and times by the host's clock as
  `host_ms`. The blocks become one list each below `gated`; `host_ms` is left out, nothing reads it.
- Until November 2026 `timing` named implementations with visible launches `launches_outlast_gate`. They are
  `launches_not_hidden` now.

Keys that rows of older bundles lack have defaults in the models. Nothing here changes a file, or a hash over one.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import ValidationError

from repro.errors import BundleError
from repro.records import base
from repro.records.agent import AgentConfig, AgentRecord
from repro.records.base import Record
from repro.records.fingerprint import Fingerprint
from repro.records.manifest import Manifest
from repro.records.row import Row
from repro.records.statement import Statement

R = TypeVar("R", bound=Record)


def current(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a row in its current form. A row that is in it already is returned as it is."""
    result = data.get("result")
    return data | {"result": _result(result)} if isinstance(result, dict) and "results" in result else data


def _result(result: dict[str, Any]) -> dict[str, Any]:
    found = dict(result)
    if isinstance(samples := result.get("samples_ms"), dict):
        found["samples_ms"] = {name: _series(each) for name, each in samples.items()}
    if isinstance(timing := result.get("timing"), dict) and "launches_outlast_gate" in timing:
        renamed = {"launches_not_hidden": timing["launches_outlast_gate"]}
        found["timing"] = renamed | {k: v for k, v in timing.items() if k != "launches_outlast_gate"}
    if isinstance(result["results"], list):
        found["results"] = [_without_host(entry) for entry in result["results"]]
    if isinstance(observed := result.get("telemetry"), dict):
        found["telemetry"] = telemetry(observed)
    if isinstance(baselines := result.get("baselines"), dict):
        found["baselines"] = {name: _without_host(each) for name, each in baselines.items()}
    return found


def telemetry(observed: dict[str, Any]) -> dict[str, Any]:
    """Return the telemetry of a row of any kind in its current form."""
    windows = observed.get("windows")
    if not isinstance(windows, dict) or "cell" not in windows:
        return observed
    return observed | {"windows": {"job" if name == "cell" else name: window for name, window in windows.items()}}


def _series(samples: Any) -> Any:
    if not isinstance(samples, dict) or "gated" in samples or "device" not in samples:
        return samples
    return {"gated": {f"{name}_ms": [ms for block in samples.get(name, []) for ms in block]
                      for name in ("device", "host")}}  # fmt: skip


def _without_host(entry: Any) -> Any:
    return {k: v for k, v in entry.items() if k != "host_ms"} if isinstance(entry, dict) else entry


# File of a bundle, or part of one -> its record.
FILES: dict[str, type[Record]] = {
    "manifest": Manifest, "row": Row, "fingerprint": Fingerprint, "statement": Statement, "agent-config": AgentConfig,
    "agent-record": AgentRecord,
}  # fmt: skip


def _record(model: type[R], data: Any, what: str) -> R:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise BundleError(f"{what} is damaged", "; ".join(base.faults(error))) from error


def row(data: dict[str, Any]) -> Row:
    """Return a row of any release. Raises BundleError if it is damaged."""
    return _record(Row, current(data), f"row {data.get('row')}")


def agent_config(data: dict[str, Any]) -> AgentConfig:
    """Return how a study of any release configured its agents. Raises BundleError if it is damaged."""
    return _record(AgentConfig, data, "the study of the manifest")


def agent_record(content: bytes, name: str) -> AgentRecord:
    """Return the record of a sitting of any release. Raises BundleError, which names the file, if it is damaged."""
    try:
        return _record(AgentRecord, json.loads(content), name)
    except ValueError as error:
        raise BundleError(f"{name} is damaged", str(error)) from error


def complaints(name: str, data: Any) -> list[str]:
    """Return the faults of a file of a bundle; at most a few, and how many more there are. name: a key of FILES."""
    try:
        FILES[name].model_validate(current(data) if name == "row" else data)
    except ValidationError as error:
        return base.faults(error)
    except (TypeError, KeyError, AttributeError) as error:
        return [f"{name}: {type(error).__name__}: {error}"]
    return []
