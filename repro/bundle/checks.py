"""The checks of a bundle's files, plan and rows. Each returns every fault that it finds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from repro import fingerprint
from repro.bundle import seal
from repro.bundle.evidence import Evidence
from repro.bundle.seal import MANIFEST, STATEMENT
from repro.bundle.storage import Archive
from repro.bundle.write import CLAIMS, FINGERPRINTS, INPUTS, ROWS, SCHEMA_VERSION, plan_digest
from repro.fingerprint import state
from repro.fingerprint.telemetry import WINDOWS
from repro.records import migrate
from repro.records.base import faults
from repro.records.statement import Statement
from repro.system import jsonio

SOLUTIONS = "solutions"
# Parts that bundles of an earlier schema never had: their absence is no damage.
LACKS = {1: ("statement", "bundle id", "inputs of rows", "origin")}


class Skip(Exception):
    """Raised by a check that does not apply to a bundle, with the reason."""


class Unfinished(Exception):
    """Raised where rows are missing because the run was interrupted or killed, or has not ended. `reasons`: which."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__()
        self.reasons = reasons


def readable(found: Evidence) -> list[str]:
    """Every JSON file is strict JSON, and an archive can be read."""
    return [f"{name}: {why}" for name, why in found.damage.items()]


def known_schema(found: Evidence) -> list[str]:
    """This release reads the manifest's schema version."""
    if found.version in range(1, SCHEMA_VERSION + 1):
        return []
    return [f"schema_version is {found.manifest.get('schema_version')!r}, known are 1 to {SCHEMA_VERSION}"]


def _by_schema(name: str, values: dict[str, Any]) -> list[str]:
    return [f"{label}: {told}" for label, value in values.items() for told in migrate.complaints(name, value)]


def manifest_schema(found: Evidence) -> list[str]:
    return _by_schema("manifest", {MANIFEST: found.manifest})


def study_schema(found: Evidence) -> list[str]:
    """What the manifest says of a study's agents, and the record of every sitting."""
    parameters = found.manifest.get("parameters")
    study = parameters.get("study") if isinstance(parameters, dict) else None
    if study is None:
        raise Skip("no study with agents")
    wrong = _by_schema("agent-config", {f"{MANIFEST} parameters/study": study})
    for name in sorted(found.files):
        if re.fullmatch(r"agents/.+/job\.json", name) and "/attempt-" not in name:
            try:
                wrong += _by_schema("agent-record", {name: json.loads(found.bytes_of(name) or b"")})
            except ValueError as error:
                wrong.append(f"{name}: {error}")
    return wrong


def row_schema(found: Evidence) -> list[str]:
    return _by_schema("row", {f"{ROWS} line {n}": row for n, row in enumerate(found.lines, 1)})


def fingerprint_schema(found: Evidence) -> list[str]:
    return _by_schema("fingerprint", {f"{FINGERPRINTS}/{n}.json": value for n, value in found.fingerprints.items()})


def statement_schema(found: Evidence) -> list[str]:
    _written(found, "statement")
    return _by_schema("statement", {STATEMENT: found.statement or {}})


def _lacks(version: int, what: str) -> str:
    """Returns why a bundle of this schema has no `what`, or the empty string where it must have one."""
    return f"no {what}: written by schema {version}" if what in LACKS.get(version, ()) else ""


def _written(found: Evidence, what: str) -> None:
    """Raises Skip where a bundle of this schema has no `what`, unless the manifest has fields of a later schema."""
    why = _lacks(found.version, what)
    if why and not {"bundle_id", "origin", "attempts"} & found.manifest.keys():
        raise Skip(why)
    _closed(found, what)


def _closed(found: Evidence, what: str) -> None:
    if found.open:
        raise Skip(f"no {what}: the run has not ended, or its process was killed")


def manifest_text(found: Evidence) -> list[str]:
    """The manifest has exactly the bytes that repro writes for its values."""
    return [] if jsonio.render(found.manifest) == found.manifest_bytes else [f"{MANIFEST} is not as repro writes it"]


def bundle_id(found: Evidence) -> list[str]:
    """The bundle id is the manifest's hash. With the check of its text, any changed byte is found."""
    _written(found, "bundle id")
    told, actual = found.manifest.get("bundle_id"), seal.bundle_id(found.manifest)
    return [] if told == actual else [f"{MANIFEST} says {told or 'none'} and its content has {actual}"]


def hashes(found: Evidence) -> list[str]:
    """Every file of the manifest exists and has its hash."""
    _closed(found, "hashes")
    wrong = []
    for name, known in sorted(found.files.items()):
        content = found.bytes_of(name)
        if content is None:
            wrong.append(f"{name} is missing")
        elif seal.sha256(content) != known:
            wrong.append(f"{name} was changed")
    return wrong


def foreign_files(found: Evidence) -> list[str]:
    """The bundle holds no file or link that the manifest does not name."""
    _closed(found, "list of files")
    known = {MANIFEST, *found.files}
    return [f"{name} is not in the manifest" for name in found.files_in.entries() if name not in known]


def copies(found: Evidence) -> list[str]:
    """Every file beside an archive is a copy of the file of that name in it."""
    if not isinstance(found.files_in, Archive):
        raise Skip("the bundle is not packed")
    wrong = []
    for name, content in sorted(found.files_in.beside.items()):
        inside = found.bytes_of(name)
        if inside is None:
            wrong.append(f"{name} lies beside the archive and is not in it")
        elif inside != content:
            wrong.append(f"{name} beside the archive differs from the one in it")
    return wrong


def plan(found: Evidence) -> list[str]:
    """The plan has the digest that the manifest names, and every row was planned."""
    wrong = []
    parameters = found.manifest.get("parameters")
    if plan_digest(found.plan, parameters if isinstance(parameters, dict) else {}) != found.manifest.get("plan_digest"):
        wrong.append("plan or parameters are not those of plan_digest")
    return wrong + [f"row {name} was not planned" for name in found.rows if name not in found.plan]


def done(found: Evidence) -> list[str]:
    """Every planned row was measured, and the status agrees. Raises Unfinished where the run was cut short."""
    status, wrong = found.manifest.get("status"), []
    for name in found.plan:
        row = found.rows.get(name)
        if row is None:
            wrong.append(f"{name}: {found.manifest.get('error') or 'the run ended before it'}")
        elif row.get("status") != "done":
            wrong.append(f"{name}: {row.get('status')}: {row.get('error')}")
    if wrong:
        wrong.insert(0, f"{len(wrong)} of {len(found.plan)} planned rows were not measured, status {status}")
    if status == "interrupted" or found.open:
        raise Unfinished(wrong or [f"the status is {status}, and every row was measured"])
    if (status == "complete") == bool(wrong):
        wrong.append(f"the status is {status}" + (" and rows are missing" if wrong else ", yet every row is there"))
    return wrong


def fingerprints(found: Evidence) -> list[str]:
    """Every measured row names a stored fingerprint, and each fingerprint has the id of its values."""
    wrong = []
    for name, value in found.fingerprints.items():
        values = value.get("values")
        ids = (value.get("sku_id"), value.get("fingerprint_id"))
        try:
            actual = tuple(fingerprint.digest(values or {}, classes) for classes in ("H", "HCV"))
        except (KeyError, TypeError, AttributeError) as error:
            wrong.append(f"{name}: its values cannot be read: {error!r}")
            continue
        if ids != actual or name != actual[1]:
            wrong.append(f"{name}: its values have the ids {', '.join(actual)}")
    for name, row in found.records.items():
        used = row.fingerprint_id
        if used is None and row.status == "done":
            wrong.append(f"row {name} was measured on an unknown machine")
        if used is not None and used not in found.fingerprints:
            wrong.append(f"row {name} names fingerprint {used}, which is missing")
    return wrong


def solutions(found: Evidence) -> list[str]:
    """The kept sources are those that the rows were measured from, and each belongs to a row or to its earlier line."""
    wrong: list[str] = []
    used = set()
    for given in (given for row in found.superseded() for given in row.inputs or [] if given.kept):
        text = found.bytes_of(str(given.kept))
        # of schema 1 the next text of a solution took its place
        if str(given.kept).startswith(f"{SOLUTIONS}/") or (text is not None and seal.sha256(text) == given.sha256):
            used.add(given.kept)
    for name, row in found.records.items():
        judged = []
        for given in row.inputs or []:
            if given.kept:
                used.add(given.kept)
                content = found.bytes_of(given.kept)
                if content is None or seal.sha256(content) != given.sha256:
                    wrong.append(f"row {name}: {given.kept} is not the text that was measured")
            elif not given.withheld:
                continue  # a fixture or a shipped problem, which are not part of the content
            judged.append((given.name, given.sha256))
        if row.inputs and seal.content(judged) != row.content:
            wrong.append(f"row {name}: its inputs are not those of its content hash")
    if any(row.inputs is not None for row in found.records.values()):
        kept = [n for n in found.files if n.startswith((f"{INPUTS}/", f"{SOLUTIONS}/"))]
        whole = set(found.records) == set(found.plan)
        return wrong + [f"{n} was kept and belongs to no row" for n in kept if whole and n not in used]
    return _solutions_of_1(found)


def _solutions_of_1(found: Evidence) -> list[str]:
    """Schema 1: a row of the agent study has the hash of its one solution, and the row gives its place."""
    kept = {n: found.bytes_of(n) or b"" for n in found.files if n.startswith(f"{SOLUTIONS}/")}
    if not kept:
        raise Skip(_lacks(found.version, "inputs of rows") or "no row has a solution")
    wrong = []
    for name, row in found.records.items():
        folder = f"{SOLUTIONS}/{row.arm}/{row.repeat}/{row.problem}_"
        of_row = [content for place, content in kept.items() if place.startswith(folder)]
        contents = [seal.content([("solution_0.py", seal.sha256(c))]) for c in of_row]
        if row.content not in contents:
            wrong.append(f"row {name}: no kept solution is the text that was measured")
    return wrong


def statement(found: Evidence) -> list[str]:
    """The statement's implementations are the bundle's files, and its dependencies hold every input of a row."""
    _written(found, "statement")
    try:
        told = Statement.model_validate(found.statement)
    except ValidationError as error:
        return [f"{STATEMENT} cannot be read: {'; '.join(faults(error))}"]
    implementations = {entry.name: entry.digest.get("sha256") for entry in told.subject}
    digests = {entry.digest.get("sha256") for entry in told.predicate.definition.resolved}
    files = {name: known for name, known in found.files.items() if name != STATEMENT}
    wrong = [f"{n} is not the subject that it was" for n in sorted(files) if implementations.get(n) != files[n]]
    wrong += [f"its subject {n} is no file of the bundle" for n in sorted(implementations.keys() - files.keys())]
    for name, row in found.records.items():
        lacking = [given.name for given in row.inputs or [] if given.sha256 not in digests]
        wrong += [f"row {name}: {each} is not among the dependencies" for each in lacking]
    return wrong


def claims(found: Evidence) -> list[str]:
    """The claims file is the declared one, and it was declared before the first row ended."""
    told = found.manifest.get("claims")
    if told is None:
        raise Skip("no claims file was recorded")
    content = found.bytes_of(str(told.get("file", CLAIMS)))
    wrong = []
    if content is None or seal.sha256(content) != told.get("sha256"):
        wrong.append(f"{told.get('file')} is not the file that was declared")
    early = sorted(row["row"] for row in found.lines if str(row.get("ended", "9")) < str(told.get("declared")))
    return wrong + [f"row {name} ended before the claims were declared" for name in early]


def telemetry(found: Evidence) -> list[str]:
    """Every telemetry series that a row names exists and has the stated number of samples.

    The clock event reasons of each window are the series' own, so they cannot be removed from the row alone.
    """
    wrong: list[str] = []
    named = 0
    for name, row in found.records.items():
        told = (row.result.telemetry if row.result else None) or {}
        if told.get("file"):
            named += 1
            wrong += [f"row {name}: {what}" for what in _sampled(found.bytes_of(str(told["file"])), told)]
    if not named:
        raise Skip("no row names a series")
    return wrong


def _sampled(content: bytes | None, told: dict[str, Any]) -> list[str]:
    if content is None:
        return [f"{told['file']} is missing"]
    columns = json.loads(content)["columns"]
    times = columns["t_ms"]
    lengths = {len(values) for values in columns.values()}
    if lengths != {told["sampler"]["samples"]}:
        kept = ", ".join(map(str, sorted(lengths)))
        return [f"the row states {told['sampler']['samples']} samples, the series has {kept}"]
    marks = {mark["name"]: mark["t_ms"] for mark in told["marks"]}
    wrong = []
    for name, (first, last) in WINDOWS.items():
        if name not in told["windows"] or "reasons" not in columns:
            continue
        # times are rounded to a millisecond: a sample at an edge may be in or out
        inner, outer = (
            {reason for t, mask in zip(times, columns["reasons"], strict=True)
             if marks[first] + edge <= t <= marks[last] - edge and mask >= 0 for reason in state.names(mask)}
            for edge in (1, -1)
        )  # fmt: skip
        reasons = set(told["windows"][name].get("reasons", {}))
        if not inner <= reasons <= outer:
            wrong.append(f"the series has {', '.join(sorted(inner)) or 'no reason'} while {name}, the row says "
                         f"{', '.join(sorted(reasons)) or 'none'}")  # fmt: skip
    return wrong


Check = Callable[[Evidence], list[str]]
ABOUT_FILES: dict[str, Check] = {
    "files are readable": readable,
    "schema version": known_schema,
    "schema of the manifest": manifest_schema,
    "schema of the study": study_schema,
    "schema of rows": row_schema,
    "schema of fingerprints": fingerprint_schema,
    "schema of the statement": statement_schema,
    "text of the manifest": manifest_text,
    "bundle id": bundle_id,
    "hashes": hashes,
    "no foreign files": foreign_files,
    "copies beside the archive": copies,
    "statement": statement,
}
ABOUT_ROWS: dict[str, Check] = {
    "plan": plan,
    "planned against done": done,
    "fingerprints": fingerprints,
    "solutions": solutions,
    "claims": claims,
    "telemetry": telemetry,
}
