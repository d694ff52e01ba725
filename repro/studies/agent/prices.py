"""Prices of tokens: a dated table, and the model that Inspect counts money for."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Any

from repro.errors import UsageError

TABLE = Path(__file__).with_name("prices.toml")
CLASSES = ("input", "output", "cache_read", "cache_write")
#: Bedrock's form of a model's name: region, provider, version.
BEDROCK = re.compile(r"^(?:[a-z-]+\.)?anthropic\.(?P<model>.+?)(?:-v\d+(?::\d+)?)?$")


def load(path: Path | None = None) -> dict[str, Any]:
    """Return a price table {"as_of", "models": {model: {class: USD for a million tokens}}}. Raises UsageError.

    path: another table of this form; by default the shipped one.
    """
    path = path or TABLE
    remedy = f"Every model needs {', '.join(CLASSES)} in USD for a million tokens, and the table a date `as_of`."
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.name} cannot be read", str(error), remedy) from None
    models = table.get("models")
    if not isinstance(models, dict) or not table.get("as_of"):
        raise UsageError(f"{path.name} is not a price table", "it lacks `as_of` or `models`", remedy)
    for model, rates in models.items():
        values = [rates.get(kind) for kind in CLASSES] if isinstance(rates, dict) else [None]
        if not all(isinstance(value, int | float) and math.isfinite(value) and value >= 0 for value in values):
            raise UsageError(f"{path.name}: the prices of {model} are incomplete", str(rates), remedy)
    return {"as_of": str(table["as_of"]), "models": models}


def of_model(table: dict[str, Any], model: str) -> dict[str, float] | None:
    """Return USD for a million tokens by class, or None for an unknown model.

    Bedrock's names are recognised, and a model of Inspect's form `provider/name` by its name.
    """
    models: dict[str, dict[str, float]] = table["models"]
    name = model.rpartition("/")[2]
    wrapped = BEDROCK.match(name)
    return models.get(model) or models.get(name) or (models.get(wrapped["model"]) if wrapped else None)
