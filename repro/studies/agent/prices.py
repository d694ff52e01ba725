"""Prices of tokens: a dated table, and the model that Inspect counts money for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_TABLE = tomllib.loads(Path(__file__).with_name("prices.toml").read_text())
AS_OF: str = _TABLE["as_of"]
# Model -> USD for a million tokens by class: input, output, cache_read and cache_write.
MODELS: dict[str, dict[str, float]] = _TABLE["models"]
#: Bedrock's form of a model's name: region, provider, version.
_BEDROCK = re.compile(r"^(?:[a-z-]+\.)?anthropic\.(?P<model>.+?)(?:-v\d+(?::\d+)?)?$")


def of_model(model: str) -> dict[str, float] | None:
    """Return USD for a million tokens by class, or None for an unknown model.

    Bedrock's names are recognised, and a model of Inspect's form `provider/name` by its name.
    """
    name = model.rpartition("/")[2]
    wrapped = _BEDROCK.match(name)
    return MODELS.get(model) or MODELS.get(name) or (MODELS.get(wrapped["model"]) if wrapped else None)
