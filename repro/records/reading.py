"""Reads the records of a bundle's files: where its bytes come in, each is validated once.

Keys that rows of older bundles lack have defaults in the models. Two names changed in November 2026, and the models
read the old ones too: `launches_outlast_gate` of `timing`, and the window `cell` of `telemetry`.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from repro.errors import BundleError
from repro.records import base
from repro.records.agent import AgentConfig, AgentRecord
from repro.records.base import Record
from repro.records.row import Row
from repro.system import foreign
from repro.system.jsonio import Json

R = TypeVar("R", bound=Record)


def _record(model: type[R], data: Any, what: str) -> R:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise BundleError(f"{what} is damaged", "; ".join(base.faults(error))) from error


def row(data: Json) -> Row:
    """Return a row. Raises BundleError if it is damaged."""
    return _record(Row, data, f"row {data.get('row')}")


def agent_config(data: Json) -> AgentConfig:
    """Return how a study configured its agents. Raises BundleError if it is damaged."""
    return _record(AgentConfig, data, "the study of the manifest")


def agent_record(content: bytes, name: str) -> AgentRecord:
    """Return the record of a sitting. Raises BundleError, which names the file, if it is damaged."""
    try:
        return _record(AgentRecord, foreign.document(content), name)
    except ValueError as error:
        raise BundleError(f"{name} is damaged", str(error)) from error


def complaints(model: type[Record], data: Any) -> list[str]:
    """Return the faults of a record's data; at most a few, and how many more there are."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        return base.faults(error)
    return []
