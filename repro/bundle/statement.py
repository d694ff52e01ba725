"""`statement.json`: the inputs and the code behind a bundle, as an unsigned in-toto Statement with SLSA provenance.

Sources: in-toto attestation specification, statement v1, resource descriptor v1 and digest set; SLSA provenance v1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:repro:bundle:2"
SIGNATURE = "none: this statement is not signed and proves nothing about who wrote it"


def build(
    manifest: dict[str, Any],
    rows: Iterable[dict[str, Any]],
    fingerprints: dict[str, dict[str, Any]],
    files: dict[str, str],
) -> dict[str, Any]:
    """Returns the statement of a bundle. files: name -> sha256 of every file but manifest and statement."""
    origin, attempts = manifest.get("origin", {}), manifest.get("attempts", [])
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(files.items())],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"verb": manifest["verb"], "parameters": manifest["parameters"]},
                "internalParameters": {"engine": manifest.get("engine", {}), "plan_digest": manifest["plan_digest"]},
                "resolvedDependencies": [
                    *_inputs(rows),
                    *({"name": name, "digest": {"sha256": d}} for name, d in origin.get("requirements", {}).items()),
                    *_code(origin, attempts, fingerprints),
                    *_images(manifest, fingerprints),
                ],
            },
            "runDetails": {
                "builder": {"id": "urn:repro", "version": {"repro": str(manifest["tool"]).removeprefix("repro ")}},
                "metadata": {
                    "invocationId": f"{manifest['started']}/{manifest['plan_digest']}",
                    "startedOn": manifest["started"],
                    "finishedOn": manifest["finished"],
                },
            },
            "repro_signature": SIGNATURE,
            "repro_unknown": unknown(origin, fingerprints),
        },
    }


def _inputs(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lists problem files, solutions and fixtures: each file once, with the rows that used it."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        for given in row.get("inputs", []):
            name = given.get("kept") or given["name"]
            entry = found.setdefault(
                (name, given["sha256"]),
                {"name": name, "digest": {"sha256": given["sha256"]}, "annotations": {"rows": []}},
            )
            entry["annotations"]["rows"].append(row["row"])
    return [found[key] for key in sorted(found)]


def _code(origin: dict[str, Any], attempts: list[dict[str, Any]], fingerprints: dict[str, Any]) -> list[dict[str, Any]]:
    """Lists each version of the program that wrote rows, by the hash of its files and by its commit where known."""
    digests = dict.fromkeys(a["code_sha256"] for a in attempts if "code_sha256" in a)
    found: list[dict[str, Any]] = [{"name": "repro", "digest": {"dirHash": digest}} for digest in digests]
    commits: dict[str, str] = {}
    for values in _told(origin, fingerprints):
        commit = values.get("git_commit", {}).get("value")
        if commit:
            commits.setdefault(commit, str(values.get("git_dirty", {}).get("value")))
    return found + [
        {"name": "repro", "digest": {"gitCommit": commit}, "annotations": {"dirty": dirty}}
        for commit, dirty in commits.items()
    ]


def _images(manifest: dict[str, Any], fingerprints: dict[str, Any]) -> list[dict[str, Any]]:
    told = [manifest.get("engine", {}).get("image_id")]
    told += [f.get("values", {}).get("image_id", {}).get("value") for f in fingerprints.values()]
    images = dict.fromkeys(str(image).removeprefix("sha256:") for image in told if image)
    return [{"name": "container image", "digest": {"sha256": image}} for image in images]


def _told(origin: dict[str, Any], fingerprints: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the records that may name a commit: the bundle's origin and each machine's fingerprint."""
    return [origin, *(f.get("values", {}) for f in fingerprints.values())]


def unknown(origin: dict[str, Any], fingerprints: dict[str, Any]) -> dict[str, str]:
    """Returns dependencies that a reader would expect and that are missing -> why."""
    found = {}
    for name in ("git_commit", "image_id"):
        entries = [values[name] for values in _told(origin, fingerprints) if name in values]
        if not any(entry["value"] for entry in entries):
            found[name] = next((str(entry["status"]) for entry in entries), "not recorded")
    return found
