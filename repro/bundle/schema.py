"""The JSON schemas of a bundle's files, and the parts that bundles of older schema versions lack."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from importlib.resources import files
from typing import Any

NAMES = ("manifest", "row", "fingerprint", "statement")
# Parts that bundles of an earlier schema never had: their absence is no damage.
LACKS = {1: ("statement", "bundle id", "inputs of rows", "origin")}
SHOWN = 5


def missing() -> str:
    """Returns why schemas cannot be checked here, or the empty string."""
    return "" if importlib.util.find_spec("jsonschema") else "the package jsonschema is not installed"


def lacks(version: int, what: str) -> str:
    """Returns why a bundle of this schema has no `what`, or the empty string where it must have one."""
    return f"no {what}: written by schema {version}" if what in LACKS.get(version, ()) else ""


@cache
def _validator(name: str) -> Any:
    from jsonschema import Draft202012Validator

    schema = json.loads(files(__package__).joinpath("schemas", f"{name}.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def complaints(name: str, value: Any) -> list[str]:
    """Returns at most five violations of a schema. Raises ImportError without jsonschema."""
    errors = sorted(_validator(name).iter_errors(value), key=lambda error: [str(part) for part in error.absolute_path])
    told = [f"{'/'.join(map(str, error.absolute_path)) or name}: {error.message[:160]}" for error in errors]
    return told[:SHOWN] + ([f"and {len(told) - SHOWN} more"] if len(told) > SHOWN else [])
