"""Published figures as claims: artifacts/claims.toml, read and validated."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from repro import config
from repro.errors import UsageError
from repro.fingerprint import classes

SCHEMA_VERSION = 1
FILE = config.ARTIFACTS_DIR / "claims.toml"
KINDS = ("ratio", "absolute")
MEASURES = ("speedup", "time", "mean", "gain", "running-best", "profile")
# Measures that do not name a variant: theirs is a round, or the kernel that was profiled.
BY_PART = ("running-best", "profile")
# Published descriptions of machines have rounded numbers.
ROUNDED = 0.01


@dataclass(frozen=True)
class Claim:
    """One published figure. claims.toml explains the fields and gives their sources.

    problem: as published, or `all` if the figure covers all problems. hard: fingerprint field -> what is known of the
    machine. low, high: the band for a measured 95 % interval, in `unit`. part: `round 3` or `input`, where a problem
    has several figures. base: running-best: the published time of the input kernel, in `unit`.
    """

    id: str
    study: str
    problem: str
    part: str
    what: str
    value: float
    unit: str
    kind: str
    tolerance: dict[str, float]
    at_least: float | None
    reason: str
    low: float
    high: float
    measure: str
    variant: str
    over: str
    base: float | None
    ratio_tolerance: float
    metric: str
    scale: float
    published_kernels: bool
    command: str
    minutes: float
    needs: tuple[str, ...]
    source: str
    machine: str
    stack: str
    hard: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self) | {"needs": list(self.needs)}

    @property
    def number(self) -> int | None:
        """Return the leading integer of an artifact's name, or None."""
        match = re.match(r"0*(\d+)_", self.problem)
        return int(match.group(1)) if match else None

    @property
    def key(self) -> str:
        """Return the key of the shipped problem of the figure: `L1_36`, of the artifact study `L1_36@bf16`."""
        return self.problem if self.number is None else f"L1_{self.number:02d}@bf16"

    def elsewhere(self, values: dict[str, dict[str, Any]]) -> list[str]:
        """Return how a machine differs from the published one, in words; empty if no difference is known.

        values: of a fingerprint. A field that is known of the published machine but not recorded here counts as a
        difference.
        """
        found = []
        for name, published in self.hard.items():
            here = values.get(name, {}).get("value")
            if not _matches(published, here):
                found.append(f"{name} {'not recorded' if here is None else here} (published: {published})")
        return found


def _matches(published: Any, here: Any) -> bool:
    if here is None:
        return False
    if isinstance(published, str):
        return re.search(rf"(?<!\w){re.escape(published)}(?!\w)", str(here)) is not None
    return isinstance(here, int | float) and math.isclose(published, here, rel_tol=ROUNDED)


OTHERWISE = {"at_least": None, "variant": "", "over": "", "published_kernels": False, "ratio_tolerance": 0.0,
             "metric": "", "scale": 1.0}  # fmt: skip
STUDY_FIELDS = {"source": str, "machine": str, "stack": str, "hard": dict}
REQUIRED = {"id": str, "study": str, "what": str, "unit": str, "kind": str, "tolerance": dict, "reason": str,
            "measure": str, "command": str, "minutes": (int, float), "needs": list, "values": dict}  # fmt: skip
OPTIONAL = {"at_least": (int, float), "variant": str, "over": str, "published_kernels": bool, "each": list,
            "base": str, "ratio_tolerance": (int, float), "metric": str, "scale": (int, float)}  # fmt: skip


def load(path: Path = FILE) -> list[Claim]:
    """Return every claim of a file, in order. Raises UsageError with the family and the field that is wrong."""
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read claims from {path}", str(error)) from error
    if data.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(f"{path.name}: schema_version {data.get('schema_version')}", f"expected {SCHEMA_VERSION}")
    studies, families = data.get("study", {}), data.get("family", [])
    for name, study in studies.items():
        _check(path, f"study {name}", study, STUDY_FIELDS, {})
        unknown = [field for field in study["hard"] if classes.CLASS.get(field) != "H"]
        if unknown:
            raise UsageError(f"{path.name}: study {name}: hard", f"{', '.join(unknown)} is not a hard field")
    claims: list[Claim] = []
    for position, family in enumerate(families):
        where = f"family {family.get('id', f'number {position + 1}')}"
        _check(path, where, family, REQUIRED, OPTIONAL)
        claims += _family(path, where, family, studies, families)
    ids = [claim.id for claim in claims]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise UsageError(f"{path.name}: two claims have the id {twice[0]}")
    if not claims:
        raise UsageError(f"{path.name} holds no claim")
    return claims


def _check(path: Path, where: str, found: Any, required: dict[str, Any], optional: dict[str, Any]) -> None:
    """Check that every required field is there and of its type, and that no field is unknown. Raises UsageError."""
    if not isinstance(found, dict):
        raise UsageError(f"{path.name}: {where} is not a table")
    for name, kind in (required | optional).items():
        if name not in found:
            if name in required:
                raise UsageError(f"{path.name}: {where}", f"{name} is missing")
        elif not isinstance(found[name], kind) or (kind is not bool and isinstance(found[name], bool)):
            raise UsageError(f"{path.name}: {where}", f"{name} is {found[name]!r}")
    for name in found.keys() - required.keys() - optional.keys():
        raise UsageError(f"{path.name}: {where}", f"{name} is not one of its fields")


def _family(
    path: Path, where: str, family: dict[str, Any], studies: dict[str, Any], families: list[dict[str, Any]]
) -> list[Claim]:
    """Return one claim for each figure. Raises UsageError."""

    def refuse(why: str) -> UsageError:
        return UsageError(f"{path.name}: {where}", why)

    tolerance, each = family["tolerance"], family.get("each", [])
    if family["study"] not in studies:
        raise refuse(f"there is no study {family['study']}")
    if family["kind"] not in KINDS or family["measure"] not in MEASURES:
        raise refuse(f"kind is one of {', '.join(KINDS)} and measure of {', '.join(MEASURES)}")
    if len(tolerance) != 1 or not tolerance.keys() <= {"relative", "absolute"} or not _positive(*tolerance.values()):
        raise refuse("tolerance is { relative = share } or { absolute = in the unit }, over 0")
    if not family["reason"].strip() or not _positive(family["minutes"]):
        raise refuse("a tolerance needs a reason, and a command needs minutes")
    if not family["command"] and not family["needs"]:
        raise refuse("no command tests it, but needs does not say what is missing")
    by_part = family["measure"] in BY_PART
    if by_part == bool(family.get("variant")) or (by_part and not each):
        raise refuse("variant names the solution; running-best and profile have each instead")
    if (family["measure"] == "profile") != bool(family.get("metric")):
        raise refuse("metric names what the profiler measured; no other measure has one")
    with_base = "base" in family, _positive(family.get("ratio_tolerance"))
    if with_base != (family["measure"] == "running-best",) * 2:
        raise refuse("running-best needs base and ratio_tolerance; no other measure has them")
    figures: list[tuple[str, str, Any]] = []
    for problem, value in family["values"].items():
        parts = value if isinstance(value, list) else [value]
        if isinstance(value, list) and len(parts) != len(each):
            raise refuse(f"{problem} has {len(parts)} figures, each names {len(each)}")
        figures += [(problem, each[at] if isinstance(value, list) else "", v) for at, v in enumerate(parts)]
    study = studies[family["study"]]
    shared = {field.name: family[field.name] for field in fields(Claim) if field.name in family}
    shared |= {name: study[name] for name in STUDY_FIELDS}
    shared = OTHERWISE | shared
    bases = _bases(families, family, refuse)
    claims = []
    for problem, part, value in figures:
        if not _positive(value, zero=True):
            raise refuse(f"{problem} {part} is {value!r}: a figure is a number of 0 or more")
        half = tolerance.get("absolute", tolerance.get("relative", 0.0) * value)
        low = max(value - half, family.get("at_least", -math.inf))
        if low > value:
            raise refuse(f"{problem} {part} is {value}, under its own at_least")
        number = re.match(r"0*(\d+)_", problem)
        names = {"problem": problem, "part": part, "number": number.group(1) if number else ""}
        claims.append(Claim(**shared | {
            "id": "/".join(filter(None, (family["id"], problem, part.replace(" ", "-")))),
            "problem": problem, "part": part, "value": float(value), "low": low, "high": value + half,
            "base": bases.get(problem),
            "what": family["what"].format(**names), "command": family["command"].format(**names),
            "needs": tuple(family["needs"]),
        }))  # fmt: skip
    return claims


def _bases(
    families: list[dict[str, Any]], family: dict[str, Any], refuse: Callable[[str], UsageError]
) -> dict[str, float]:
    """Return problem -> published time of the input kernel, from the family that `base` names; empty without one."""
    if "base" not in family:
        return {}
    found: dict[str, float] = next((f.get("values", {}) for f in families if f.get("id") == family["base"]), {})
    missing = sorted(family["values"].keys() - found.keys())
    if missing:
        raise refuse(f"base {family['base']} has no figure of {missing[0]}")
    return {problem: float(value) for problem, value in found.items()}


def _positive(*values: Any, zero: bool = False) -> bool:
    return all(
        isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) and (v > 0 or (zero and v == 0))
        for v in values
    )
