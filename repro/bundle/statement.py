"""`statement.json`: the inputs and the code behind a bundle, as an unsigned in-toto Statement with SLSA provenance.

Sources: in-toto attestation specification, statement v1, resource descriptor v1 and digest set; SLSA provenance v1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from repro.records import statement as record
from repro.records.row import Input
from repro.records.statement import Resource, Statement, Subject
from repro.system.jsonio import Json

_BUILD_TYPE = "urn:repro:bundle:2"
_SIGNATURE = "none: this statement is not signed and proves nothing about who wrote it"
# Field of a fingerprint or of a bundle's origin -> what was found.
_Values = dict[str, Json]


def build(
    manifest: Json,
    inputs: Mapping[str, Iterable[Input]],
    fingerprints: Mapping[str, Json],
    files: Mapping[str, str],
) -> Statement:
    """Returns the statement of a bundle. inputs: row -> its inputs. files: name -> sha256 of every file but manifest
    and statement."""
    origin, engine = manifest.get("origin", {}), manifest.get("engine", {})
    machines: list[_Values] = [machine.get("values", {}) for machine in fingerprints.values()]
    images = [engine.get("image_id"), *_found("image_id", machines)]
    code = dict.fromkeys(each["code_sha256"] for each in manifest.get("attempts", []) if "code_sha256" in each)
    definition = record.BuildDefinition(
        build_type=_BUILD_TYPE,
        external={"verb": manifest["verb"], "parameters": manifest["parameters"]},
        internal={"engine": engine, "plan_digest": manifest["plan_digest"]},
        resolved=[
            *_inputs(inputs),
            *(Resource(name=name, digest={"sha256": each}) for name, each in origin.get("requirements", {}).items()),
            *(Resource(name="repro", digest={"dirHash": each}) for each in code),
            *_commits([origin, *machines]),
            *(Resource(name="container image", digest={"sha256": each}) for each in _hashes(images)),
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
        predicate=record.Predicate(
            definition=definition, details=details, signature=_SIGNATURE, unknown=_unknown([origin, *machines])
        ),
    )


def _inputs(inputs: Mapping[str, Iterable[Input]]) -> Iterator[Resource]:
    """Yields problem files, solutions and fixtures: each file once, with the rows that used it."""
    found: dict[tuple[str, str], list[str]] = {}
    for row, texts in inputs.items():
        for given in texts:
            found.setdefault((given.kept or given.name, given.sha256), []).append(row)
    for (name, digest), rows in sorted(found.items()):
        yield Resource(name=name, digest={"sha256": digest}, annotations={"rows": rows})


def _commits(places: list[_Values]) -> Iterator[Resource]:
    """Yields the commits that the bundle's origin and each machine's fingerprint name."""
    dirty: dict[Any, str] = {}
    for values in places:
        dirty.setdefault(values.get("git_commit", {}).get("value"), str(values.get("git_dirty", {}).get("value")))
    for commit in _hashes(dirty):
        yield Resource(name="repro", digest={"gitCommit": commit}, annotations={"dirty": dirty[commit]})


def _found(name: str, places: list[_Values]) -> list[Any]:
    """Returns the values of a field."""
    return [values[name].get("value") for values in places if name in values]


def _hashes(found: Iterable[Any]) -> list[str]:
    """Returns what is a hash, each once. A build argument may be any text, and a bundle must close all the same."""
    texts = (str(each).removeprefix("sha256:") for each in found)
    return list(dict.fromkeys(text for text in texts if re.fullmatch(r"[0-9a-f]{40,64}", text)))


def _unknown(places: list[_Values]) -> dict[str, str]:
    """Returns dependencies that a reader would expect and that are missing -> why."""
    found = {}
    for name in ("git_commit", "image_id"):
        if not any(_found(name, places)):
            found[name] = next((str(values[name]["status"]) for values in places if name in values), "not recorded")
    return found
