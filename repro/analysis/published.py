"""Published figures as claims: artifacts/claims.toml. A test holds the file to what relates several of its fields."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from repro import config
from repro.records.claim import Claim, Family, Study
from repro.system.jsonio import Json

FILE = config.ARTIFACTS_DIR / "claims.toml"


def load(path: Path = FILE) -> list[Claim]:
    """Return every claim of a file, in order. Raises ValidationError for a field that is missing, wrong or unknown."""
    data = tomllib.loads(path.read_text())
    studies = {name: Study.model_validate(study, extra="forbid") for name, study in data["study"].items()}
    families = [Family.model_validate(family, extra="forbid") for family in data["family"]]
    values = {family.id: family.values for family in families}
    return [claim for each in families for claim in _claims(each, studies[each.study], values.get(each.base, {}))]


def _claims(family: Family, study: Study, bases: Json) -> Iterator[Claim]:
    """Yield one claim for each figure. bases: problem -> published time of the input kernel, if the family has one."""
    own = Family.model_fields.keys() & Claim.model_fields.keys()
    shared = {name: getattr(family, name) for name in own} | study.to_json()
    for problem, figures in family.values.items():
        several = isinstance(figures, list)
        for part, value in zip(family.each, figures, strict=True) if several else [("", figures)]:
            half = family.tolerance.get("absolute", family.tolerance.get("relative", 0.0) * value)
            number = re.match(r"0*(\d+)_", problem)
            names = {"problem": problem, "part": part, "number": number.group(1) if number else ""}
            yield Claim(**shared | {
                "id": "/".join(filter(None, (family.id, problem, part.replace(" ", "-")))),
                "problem": problem, "part": part, "value": float(value), "high": value + half,
                "low": max(value - half, -math.inf if family.at_least is None else family.at_least),
                "base": float(bases[problem]) if bases else None,
                "what": family.what.format(**names), "command": family.command.format(**names),
            })  # fmt: skip
