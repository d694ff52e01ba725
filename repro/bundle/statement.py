"""`statement.json`: the inputs and the code behind a bundle, as an unsigned in-toto Statement with SLSA provenance.

Sources: in-toto attestation specification, statement v1, resource descriptor v1 and digest set; SLSA provenance v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from repro.records.row import Input
from repro.system.jsonio import Json

_BUILD_TYPE = "urn:repro:bundle:2"
_SIGNATURE = "none: this statement is not signed and proves nothing about who wrote it"


def build(manifest: Json, inputs: Mapping[str, Iterable[Input]], files: Mapping[str, str]) -> Json:
    """Returns the statement of a bundle. inputs: row -> its inputs. files: name -> sha256 of every file but manifest
    and statement."""
    requirements = manifest.get("origin", {}).get("requirements", {})
    code = dict.fromkeys(a["code_sha256"] for a in manifest.get("attempts", []) if "code_sha256" in a)
    texts = [*_inputs(inputs), *(_resource(name, digest) for name, digest in requirements.items())]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [_resource(name, digest) for name, digest in sorted(files.items())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {"verb": manifest["verb"], "parameters": manifest["parameters"]},
                "internalParameters": {
                    "engine": manifest.get("engine", {}), "plan_digest": manifest["plan_digest"]
                },
                "resolvedDependencies": [*texts, *({"name": "repro", "digest": {"dirHash": tree}} for tree in code)],
            },
            "runDetails": {
                "builder": {
                    "id": "urn:repro", "version": {"repro": str(manifest["tool"]).removeprefix("repro ")}
                },
                "metadata": {
                    "invocationId": f"{manifest['started']}/{manifest['plan_digest']}",
                    "startedOn": manifest["started"],
                    "finishedOn": manifest["finished"],
                },
            },
            "repro_signature": _SIGNATURE,
        },
    }  # fmt: skip


def _resource(name: str, sha256: str) -> Json:
    return {"name": name, "digest": {"sha256": sha256}}


def _inputs(inputs: Mapping[str, Iterable[Input]]) -> list[Json]:
    """Returns problem files, solutions and fixtures: each file once, with the rows that used it."""
    rows: dict[tuple[str, str], list[str]] = {}
    for row, texts in inputs.items():
        for text in texts:
            rows.setdefault((text.kept or text.name, text.sha256), []).append(row)
    return [_resource(*text) | {"annotations": {"rows": used}} for text, used in sorted(rows.items())]
