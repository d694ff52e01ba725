"""The checks of a bundle's files, plan and rows. Each yields every fault that it finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from repro import fingerprint
from repro.bundle import seal, statement
from repro.bundle.evidence import Evidence
from repro.bundle.seal import MANIFEST, SIGNED
from repro.bundle.storage import Archive
from repro.bundle.write import CLAIMS, FINGERPRINTS, INPUTS, ROWS, SCHEMA_VERSION, SOLUTIONS, plan_digest
from repro.fingerprint import gpu
from repro.fingerprint.telemetry import WINDOWS
from repro.records import reading
from repro.records.agent import AgentConfig, AgentRecord
from repro.records.base import Record
from repro.records.fingerprint import Fingerprint
from repro.records.manifest import Manifest
from repro.records.row import Row
from repro.system import foreign, jsonio
from repro.system.digest import sha256
from repro.system.jsonio import Json


class Skip(Exception):
    """Raised by a check that does not apply to a bundle, with the reason."""


class Unfinished(Exception):
    """Raised where rows are missing because the run was interrupted or killed, or has not ended. Its arguments
    say which."""


def _readable(bundle: Evidence) -> Iterator[str]:
    """Every JSON file is strict JSON, and an archive can be read."""
    yield from (f"{name}: {why}" for name, why in bundle.damage.items())


def _known_schema(bundle: Evidence) -> Iterator[str]:
    """This release reads the manifest's schema version."""
    if bundle.version != SCHEMA_VERSION:
        yield f"schema_version is {bundle.manifest.get('schema_version')!r}, known is {SCHEMA_VERSION}"


def _by_schema(model: type[Record], values: Json) -> Iterator[str]:
    yield from (f"{label}: {fault}" for label, value in values.items() for fault in reading.complaints(model, value))


def _study_schema(bundle: Evidence) -> Iterator[str]:
    """What the manifest says of a study's agents, and the record of every sitting."""
    study = bundle.parameters.get("study")
    if study is None:
        raise Skip("no study with agents")
    yield from _by_schema(AgentConfig, {f"{MANIFEST} parameters/study": study})
    for name in sorted(bundle.files):
        if re.fullmatch(r"agents/.+/job\.json", name) and "/attempt-" not in name:
            try:
                yield from _by_schema(AgentRecord, {name: foreign.document(bundle.bytes_of(name) or b"")})
            except ValueError as error:
                yield f"{name}: {error}"


def _closed(bundle: Evidence, what: str) -> None:
    if bundle.open:
        raise Skip(f"no {what}: the run has not ended, or its process was killed")


def _manifest_text(bundle: Evidence) -> Iterator[str]:
    """The manifest has exactly the bytes that repro writes for its values."""
    if jsonio.render(bundle.manifest) != bundle.manifest_bytes:
        yield f"{MANIFEST} is not as repro writes it"


def _bundle_id(bundle: Evidence) -> Iterator[str]:
    """The bundle id is the manifest's hash. With the check of its text, any changed byte is found."""
    _closed(bundle, "bundle id")
    told, actual = bundle.manifest.get("bundle_id"), seal.bundle_id(bundle.manifest)
    if told != actual:
        yield f"{MANIFEST} says {told or 'none'} and its content has {actual}"


def _hashes(bundle: Evidence) -> Iterator[str]:
    """Every file of the manifest exists and has its hash."""
    _closed(bundle, "hashes")
    for name, known in sorted(bundle.files.items()):
        content = bundle.bytes_of(name)
        if content is None:
            yield f"{name} is missing"
        elif sha256(content) != known:
            yield f"{name} was changed"


def _foreign_files(bundle: Evidence) -> Iterator[str]:
    """The bundle holds no file or link that the manifest does not name."""
    _closed(bundle, "list of files")
    known = {MANIFEST, SIGNED, *bundle.files}
    yield from (f"{name} is not in the manifest" for name in bundle.files_in.entries() if name not in known)


def _copies(bundle: Evidence) -> Iterator[str]:
    """Every file beside an archive is a copy of the file of that name in it."""
    if not isinstance(bundle.files_in, Archive):
        raise Skip("the bundle is not packed")
    for name, content in sorted(bundle.files_in.beside.items()):
        inside = bundle.bytes_of(name)
        if inside is None:
            yield f"{name} lies beside the archive and is not in it"
        elif inside != content:
            yield f"{name} beside the archive differs from the one in it"


def _plan(bundle: Evidence) -> Iterator[str]:
    """The plan has the digest that the manifest names, and every row was planned."""
    if plan_digest(bundle.plan, bundle.parameters) != bundle.manifest.get("plan_digest"):
        yield "plan or parameters are not those of plan_digest"
    yield from (f"row {name} was not planned" for name in bundle.rows if name not in bundle.plan)


def _done(bundle: Evidence) -> list[str]:
    """Every planned row was measured, and the status agrees. Raises Unfinished where the run was cut short."""
    status, wrong = bundle.manifest.get("status"), []
    for name in bundle.plan:
        row = bundle.rows.get(name)
        if row is None:
            wrong.append(f"{name}: {bundle.manifest.get('error') or 'the run ended before it'}")
        elif row.get("status") != "done":
            wrong.append(f"{name}: {row.get('status')}: {row.get('error')}")
    if wrong:
        wrong.insert(0, f"{len(wrong)} of {len(bundle.plan)} planned rows were not measured, status {status}")
    if status == "interrupted" or bundle.open:
        raise Unfinished(*(wrong or [f"the status is {status}, and every row was measured"]))
    if (status == "complete") == bool(wrong):
        wrong.append(f"the status is {status}" + (" and rows are missing" if wrong else ", yet every row is there"))
    return wrong


def _fingerprints(bundle: Evidence) -> Iterator[str]:
    """Every measured row names a stored fingerprint, and each fingerprint has the id of its values."""
    for name, value in bundle.fingerprints.items():
        values = value.get("values")
        ids = (value.get("sku_id"), value.get("fingerprint_id"))
        try:
            actual = tuple(fingerprint.digest(values or {}, classes) for classes in ("H", "HCV"))
        except (KeyError, TypeError, AttributeError) as error:
            yield f"{name}: its values cannot be read: {error!r}"
            continue
        if ids != actual or name != actual[1]:
            yield f"{name}: its values have the ids {', '.join(actual)}"
    for name, row in bundle.records.items():
        used = row.fingerprint_id
        if used is None and row.status == "done":
            yield f"row {name} was measured on an unknown machine"
        if used is not None and used not in bundle.fingerprints:
            yield f"row {name} names fingerprint {used}, which is missing"


def _solutions(bundle: Evidence) -> Iterator[str]:
    """The kept sources are those that the rows were measured from, and each belongs to a row or to its earlier line."""
    if all(row.inputs is None for row in bundle.records.values()):
        raise Skip("no row has inputs")
    used = {given["kept"] for line in bundle.lines for given in line.get("inputs") or [] if given.get("kept")}
    for name, row in bundle.records.items():
        yield from (f"row {name}: {what}" for what in _inputs(bundle, row))
    if set(bundle.records) == set(bundle.plan):
        kept = (n for n in bundle.files if n.startswith((f"{INPUTS}/", f"{SOLUTIONS}/")))
        yield from (f"{n} was kept and belongs to no row" for n in kept if n not in used)


def _inputs(bundle: Evidence, row: Row) -> Iterator[str]:
    """Yield what is wrong with the texts of one row: those that are kept, and the hash over all that were judged."""
    judged = []
    for given in row.inputs or []:
        if given.kept:
            content = bundle.bytes_of(given.kept)
            if content is None or sha256(content) != given.sha256:
                yield f"{given.kept} is not the text that was measured"
        if given.kept or given.withheld:  # else a fixture or a shipped problem, which are not part of the content
            judged.append((given.name, given.sha256))
    if row.inputs and seal.content(judged) != row.content:
        yield "its inputs are not those of its content hash"


def _statement(bundle: Evidence) -> Iterator[str]:
    """The statements are of the bundle's files and verdicts, and the dependencies hold every input of a row."""
    _closed(bundle, "statement")
    stored, due = bundle.statements, statement.build(bundle.manifest, bundle.rows, statement.subjects(bundle.files))
    if statement.TEST_RESULT not in bundle.files:  # an earlier release wrote none
        del due[statement.TEST_RESULT]
    for name, parts in due.items():
        for part in parts:
            if (name, part) != (statement.PROVENANCE, "predicate") and stored[name][part] != parts[part]:
                yield f"{name}: its {part} is not the bundle's"
    kept, needed = (each[statement.PROVENANCE]["predicate"]["buildDefinition"]["resolvedDependencies"]
                    for each in (stored, due))  # fmt: skip
    yield from (f"{text['name']} is not among the dependencies" for text in needed if text not in kept)


def _claims(bundle: Evidence) -> Iterator[str]:
    """The claims file is the declared one, and it was declared before the first row ended."""
    told = bundle.manifest.get("claims")
    if told is None:
        raise Skip("no claims file was recorded")
    content = bundle.bytes_of(str(told.get("file", CLAIMS)))
    if content is None or sha256(content) != told.get("sha256"):
        yield f"{told.get('file')} is not the file that was declared"
    early = sorted(row["row"] for row in bundle.lines if str(row.get("ended", "9")) < str(told.get("declared")))
    yield from (f"row {name} ended before the claims were declared" for name in early)


def _telemetry(bundle: Evidence) -> Iterator[str]:
    """Every telemetry series that a row names exists and has the stated number of samples.

    The clock event reasons of each window are the series' own, so they cannot be removed from the row alone.
    """
    observed = {
        name: row.result.telemetry for name, row in bundle.records.items() if row.result and row.result.telemetry
    }
    named = {name: told for name, told in observed.items() if told.get("file")}
    if not named:
        raise Skip("no row names a series")
    for name, told in named.items():
        yield from (f"row {name}: {what}" for what in _sampled(bundle.bytes_of(str(told["file"])), told))


def _sampled(content: bytes | None, observed: Json) -> Iterator[str]:
    """Yield what is wrong with the series of one row."""
    if content is None:
        yield f"{observed['file']} is missing"
        return
    columns: dict[str, list[int]] = foreign.document(content)["columns"]
    samples = observed["sampler"]["samples"]
    lengths = set(map(len, columns.values()))
    if lengths != {samples}:
        kept = ", ".join(map(str, sorted(lengths)))
        yield f"the row states {samples} samples, the series has {kept}"
        return
    marks = {mark["name"]: mark["t_ms"] for mark in observed["marks"]}
    for name, (first, last) in WINDOWS.items():
        if name in observed["windows"] and "reasons" in columns:
            # times are rounded to a millisecond: a sample at an edge may be in or out
            inner, outer = (_reasons(columns, marks[first] + edge, marks[last] - edge) for edge in (1, -1))
            reasons = set(observed["windows"][name].get("reasons", {}))
            if not inner <= reasons <= outer:
                yield (f"the series has {', '.join(sorted(inner)) or 'no reason'} while {name}, the row says "
                       f"{', '.join(sorted(reasons)) or 'none'}")  # fmt: skip


def _reasons(columns: dict[str, list[int]], begin_ms: float, end_ms: float) -> set[str]:
    """Return the clock event reasons of the samples between two times."""
    samples = zip(columns["t_ms"], columns["reasons"], strict=True)
    masks = {mask for t, mask in samples if begin_ms <= t <= end_ms and mask >= 0}
    return {reason for mask in masks for reason in gpu.reasons(mask)}


Check = Callable[[Evidence], Iterable[str]]
ABOUT_FILES: dict[str, Check] = {
    "files are readable": _readable,
    "schema version": _known_schema,
    "schema of the manifest": lambda bundle: _by_schema(Manifest, {MANIFEST: bundle.manifest}),
    "schema of the study": _study_schema,
    "schema of rows": lambda bundle: _by_schema(Row, {f"{ROWS} line {n}": r for n, r in enumerate(bundle.lines, 1)}),
    "schema of fingerprints": lambda bundle: _by_schema(
        Fingerprint, {f"{FINGERPRINTS}/{name}.json": value for name, value in bundle.fingerprints.items()}
    ),
    "text of the manifest": _manifest_text,
    "bundle id": _bundle_id,
    "hashes": _hashes,
    "no foreign files": _foreign_files,
    "copies beside the archive": _copies,
    "statement": _statement,
}
ABOUT_ROWS: dict[str, Check] = {
    "plan": _plan,
    "planned against done": _done,
    "fingerprints": _fingerprints,
    "solutions": _solutions,
    "claims": _claims,
    "telemetry": _telemetry,
}
