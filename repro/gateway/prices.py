"""Prices of tokens: a dated table, and the sum over the classes of tokens."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Any

from repro.errors import UsageError

TABLE = Path(__file__).with_name("prices.toml")
CLASSES = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h")
# Bedrock's form of a model's name: region, provider, version.
BEDROCK = re.compile(r"^(?:[a-z-]+\.)?anthropic\.(?P<model>.+?)(?:-v\d+(?::\d+)?)?$")


def load(path: Path | None = None) -> dict[str, Any]:
    """Return a price table {"as_of", "models": {model: {class: USD for a million tokens}}}. Raises UsageError.

    path: another table of this form; by default the shipped one.
    """
    path = path or TABLE
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path.name} cannot be read", str(error), "A price table is a file like prices.toml."
        ) from None
    return checked(table, path.name)


def checked(table: Any, name: str) -> dict[str, Any]:
    """Return the table if it is valid. Raises UsageError."""
    remedy = f"Every model needs {', '.join(CLASSES)} in USD for a million tokens, and the table a date `as_of`."
    models = table.get("models") if isinstance(table, dict) else None
    if not isinstance(models, dict) or not table.get("as_of"):
        raise UsageError(f"{name} is not a price table", "it lacks `as_of` or `models`", remedy)
    for model, rates in models.items():
        values = [rates.get(kind) for kind in CLASSES] if isinstance(rates, dict) else [None]
        if not all(isinstance(v, int | float) and math.isfinite(v) and v >= 0 for v in values):
            raise UsageError(f"{name}: the prices of {model} are incomplete", str(rates), remedy)
    return {"as_of": str(table["as_of"]), "models": models}


def rates(table: dict[str, Any], model: str) -> dict[str, float] | None:
    """Return USD for a million tokens by class, or None for an unknown model. Bedrock's names are recognised."""
    models: dict[str, dict[str, float]] = table["models"]
    wrapped = BEDROCK.match(model)
    return models.get(model) or (models.get(wrapped["model"]) if wrapped else None)


def usd(rate: dict[str, float], tokens: dict[str, int]) -> float:
    """Return the price of tokens by class, USD."""
    return math.fsum(rate[kind] * tokens.get(kind, 0) for kind in CLASSES) / 1e6
