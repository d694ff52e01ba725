"""`statement.json`: the inputs and the code behind a bundle, as an unsigned in-toto Statement with SLSA provenance.

Sources: in-toto attestation specification, statement v1, resource descriptor v1 and digest set; SLSA provenance v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from repro.records import statement as record
from repro.records.row import Input
from repro.records.statement import Resource, Statement, Subject
from repro.system.jsonio import Json

_BUILD_TYPE = "urn:repro:bundle:2"
_SIGNATURE = "none: this statement is not signed and proves nothing about who wrote it"


def build(manifest: Json, inputs: Mapping[str, Iterable[Input]], files: Mapping[str, str]) -> Statement:
    """Returns the statement of a bundle. inputs: row -> its inputs. files: name -> sha256 of every file but manifest
    and statement."""
    requirements = manifest.get("origin", {}).get("requirements", {})
    code = dict.fromkeys(a["code_sha256"] for a in manifest.get("attempts", []) if "code_sha256" in a)
    definition = record.BuildDefinition(
        build_type=_BUILD_TYPE,
        external={"verb": manifest["verb"], "parameters": manifest["parameters"]},
        internal={"engine": manifest.get("engine", {}), "plan_digest": manifest["plan_digest"]},
        resolved=[
            *_inputs(inputs),
            *(Resource(name=name, digest={"sha256": digest}) for name, digest in requirements.items()),
            *(Resource(name="repro", digest={"dirHash": digest}) for digest in code),
        ],
    )
    details = record.RunDetails(
        builder=record.Builder(id="urn:repro", version={"repro": str(manifest["tool"]).removeprefix("repro ")}),
        metadata=record.Metadata(
            invocation=f"{manifest['started']}/{manifest['plan_digest']}",
            started=manifest["started"],
            finished=manifest["finished"],
        ),
    )
    return Statement(
        type="https://in-toto.io/Statement/v1",
        subject=[Subject(name=name, digest={"sha256": digest}) for name, digest in sorted(files.items())],
        predicate_type="https://slsa.dev/provenance/v1",
        predicate=record.Predicate(definition=definition, details=details, signature=_SIGNATURE),
    )


def _inputs(inputs: Mapping[str, Iterable[Input]]) -> Iterator[Resource]:
    """Yields problem files, solutions and fixtures: each file once, with the rows that used it."""
    rows: dict[tuple[str, str], list[str]] = {}
    for row, texts in inputs.items():
        for text in texts:
            rows.setdefault((text.kept or text.name, text.sha256), []).append(row)
    for (name, digest), used in sorted(rows.items()):
        yield Resource(name=name, digest={"sha256": digest}, annotations={"rows": used})
