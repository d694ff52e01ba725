"""Published figures as claims: artifacts/claims.toml, read and validated."""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from repro import config
from repro.errors import UsageError
from repro.fingerprint import classes
from repro.records.base import Record, faults
from repro.records.claim import Claim, Family, Study

R = TypeVar("R", bound=Record)

SCHEMA_VERSION = 1
FILE = config.ARTIFACTS_DIR / "claims.toml"
# Measures that do not name a variant: theirs is a round, or the kernel that was profiled.
BY_PART = ("running-best", "profile")


def load(path: Path = FILE) -> list[Claim]:
    """Return every claim of a file, in order. Raises UsageError with the family and the field that is wrong."""
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read claims from {path}", str(error)) from error
    if data.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(f"{path.name}: schema_version {data.get('schema_version')}", f"expected {SCHEMA_VERSION}")
    studies = {name: _study(path, name, study) for name, study in data.get("study", {}).items()}
    families = [
        _read(Family, path, f"family {family.get('id', f'number {position}')}", family)
        for position, family in enumerate(data.get("family", []), 1)
    ]
    claims = [claim for family in families for claim in _family(path, family, studies, families)]
    counts = Counter(claim.id for claim in claims)
    for name in sorted(name for name, n in counts.items() if n > 1):
        raise UsageError(f"{path.name}: two claims have the id {name}")
    if not claims:
        raise UsageError(f"{path.name} holds no claim")
    return claims


def _study(path: Path, name: str, found: dict[str, Any]) -> Study:
    study = _read(Study, path, f"study {name}", found)
    unknown = [field for field in study.hard if classes.CLASS.get(field) != "H"]
    if unknown:
        raise UsageError(f"{path.name}: study {name}: hard", f"{', '.join(unknown)} is not a hard field")
    return study


def _read(model: type[R], path: Path, where: str, found: dict[str, Any]) -> R:
    """Return a table of the file as a record. Raises UsageError for a field that is missing, wrong or unknown."""
    try:
        return model.model_validate(found, extra="forbid")
    except ValidationError as error:
        raise UsageError(f"{path.name}: {where}", "; ".join(faults(error))) from error


def _fault(family: Family, studies: dict[str, Study]) -> str:
    """Return which fields of a family do not fit together, or ""."""
    tolerance, by_part = family.tolerance, family.measure in BY_PART
    with_base = bool(family.base), _positive(family.ratio_tolerance)
    rules = {
        f"there is no study {family.study}": family.study in studies,
        "tolerance is { relative = share } or { absolute = in the unit }, over 0":
            list(tolerance) in (["relative"], ["absolute"]) and _positive(*tolerance.values()),
        "a tolerance needs a reason, and a command needs minutes":
            bool(family.reason.strip()) and _positive(family.minutes),
        "no command tests it, but needs does not say what is missing": bool(family.command or family.needs),
        "variant names the solution; running-best and profile have each instead":
            by_part != bool(family.variant) and (bool(family.each) or not by_part),
        "metric names what the profiler measured; no other measure has one":
            (family.measure == "profile") == bool(family.metric),
        "running-best needs base and ratio_tolerance; no other measure has them":
            with_base == (family.measure == "running-best",) * 2,
    }  # fmt: skip
    return next((why for why, holds in rules.items() if not holds), "")


def _family(path: Path, family: Family, studies: dict[str, Study], families: list[Family]) -> list[Claim]:
    """Return one claim for each figure. Raises UsageError."""

    def refuse(why: str) -> UsageError:
        return UsageError(f"{path.name}: family {family.id}", why)

    if why := _fault(family, studies):
        raise refuse(why)
    study = studies[family.study]
    own = Family.model_fields.keys() & Claim.model_fields.keys()
    shared = {name: getattr(family, name) for name in own} | study.to_json()
    bases = _bases(families, family, refuse)
    claims = []
    for problem, part, value in _figures(family, refuse):
        low, high = _edges(family, problem, part, value, refuse)
        number = re.match(r"0*(\d+)_", problem)
        names = {"problem": problem, "part": part, "number": number.group(1) if number else ""}
        claims.append(Claim(**shared | {
            "id": "/".join(filter(None, (family.id, problem, part.replace(" ", "-")))),
            "problem": problem, "part": part, "value": float(value), "low": low, "high": high,
            "base": bases.get(problem),
            "what": family.what.format(**names), "command": family.command.format(**names),
        }))  # fmt: skip
    return claims


def _edges(
    family: Family, problem: str, part: str, value: Any, refuse: Callable[[str], UsageError]
) -> tuple[float, float]:  # fmt: skip
    """Return the edges of a figure's band. Raises UsageError."""
    if not _positive(value, zero=True):
        raise refuse(f"{problem} {part} is {value!r}: a figure is a number of 0 or more")
    half = family.tolerance.get("absolute", family.tolerance.get("relative", 0.0) * value)
    low = max(value - half, -math.inf if family.at_least is None else family.at_least)
    if low > value:
        raise refuse(f"{problem} {part} is {value}, under its own at_least")
    return low, value + half


def _figures(family: Family, refuse: Callable[[str], UsageError]) -> list[tuple[str, str, Any]]:
    """Return problem, part and value of every figure, as the file has it. Raises UsageError."""
    figures: list[tuple[str, str, Any]] = []
    for problem, value in family.values.items():
        parts = value if isinstance(value, list) else [value]
        if isinstance(value, list) and len(parts) != len(family.each):
            raise refuse(f"{problem} has {len(parts)} figures, each names {len(family.each)}")
        figures += [(problem, family.each[at] if isinstance(value, list) else "", v) for at, v in enumerate(parts)]
    return figures


def _bases(families: list[Family], family: Family, refuse: Callable[[str], UsageError]) -> dict[str, float]:
    """Return problem -> published time of the input kernel, from the family that `base` names; empty without one."""
    if not family.base:
        return {}
    found: dict[str, float] = next((each.values for each in families if each.id == family.base), {})
    missing = sorted(family.values.keys() - found.keys())
    if missing:
        raise refuse(f"base {family.base} has no figure of {missing[0]}")
    return {problem: float(value) for problem, value in found.items()}


def _positive(*values: Any, zero: bool = False) -> bool:
    return all(
        isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) and (v > 0 or (zero and v == 0))
        for v in values
    )
