"""The statements of a bundle, in-toto Statements: where it came from, by SLSA, and what was found right in it.

Sources: in-toto attestation specification, statement v1, resource descriptor v1, digest set and test result v0.1; SLSA
provenance v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from repro.system.groups import grouped
from repro.system.jsonio import Json

PROVENANCE, TEST_RESULT = "statement.json", "test-result.json"
_BUILD_TYPE = "urn:repro:bundle:2"
# The list of tests that a verdict, or the status of a row without one, belongs to; any other word is a warning.
_LISTS = dict.fromkeys(("correct", "done"), "passedTests") | dict.fromkeys(
    ("incorrect", "rejected", "error", "timeout"), "failedTests"
)


def build(manifest: Json, rows: Mapping[str, Json], files: Mapping[str, str]) -> dict[str, Json]:
    """Return file -> statement. files: name -> sha256 of its subjects."""
    requirements = manifest.get("origin", {}).get("requirements", {})
    code = dict.fromkeys(a["code_sha256"] for a in manifest.get("attempts", []) if "code_sha256" in a)
    users = grouped(
        ((text.get("kept") or text["name"], text["sha256"]), row)
        for row, value in rows.items()
        for text in value.get("inputs") or ()
    )
    tests = _tests(manifest["plan"], rows)
    used = [_resource(*text) | {"annotations": {"rows": names}} for text, names in sorted(users.items())]
    tools = [*resources(requirements.items()), *({"name": "repro", "digest": {"dirHash": tree}} for tree in code)]
    provenance = {
        "buildDefinition": {
            "buildType": _BUILD_TYPE,
            "externalParameters": {"verb": manifest["verb"], "parameters": manifest["parameters"]},
            "resolvedDependencies": [*used, *tools],
        },
        "runDetails": {
            "builder": {"id": "urn:repro", "version": {"repro": str(manifest["tool"]).removeprefix("repro ")}},
            "metadata": {"startedOn": manifest["started"], "finishedOn": manifest["finished"]},
        },
    }
    result = "FAILED" if tests["failedTests"] else "WARNED" if tests["warnedTests"] else "PASSED"
    held_to = [*(text for text in used if text["name"] not in files), *tools]
    predicates = {
        PROVENANCE: ("https://slsa.dev/provenance/v1", provenance),
        TEST_RESULT: (
            "https://in-toto.io/attestation/test-result/v0.1", {"result": result, "configuration": held_to} | tests,
        ),
    }  # fmt: skip
    return {
        name: {"_type": "https://in-toto.io/Statement/v1", "subject": resources(files.items()),
               "predicateType": kind, "predicate": predicate}
        for name, (kind, predicate) in predicates.items()
    }  # fmt: skip


def _tests(plan: list[str], rows: Mapping[str, Json]) -> dict[str, list[str]]:
    """Return the tests by their list: a verdict each, of a row without one its status."""
    tests: dict[str, list[str]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
    for row, value in rows.items():
        judged = (value.get("result") or {}).get("results") or ()
        words = {f"{row}: {entry['solution']}": entry["verdict"] for entry in judged} or {row: value.get("status")}
        for name, word in words.items():
            tests[_LISTS.get(word, "warnedTests")].append(name)
    tests["warnedTests"] += [row for row in plan if row not in rows]
    return tests


def subjects(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a bundle that its statements are of: all but the statements."""
    return {name: digest for name, digest in sorted(files.items()) if name not in (PROVENANCE, TEST_RESULT)}


def resources(digests: Iterable[tuple[str, str]]) -> list[Json]:
    """Return resource descriptors of names with their sha256."""
    return [_resource(*each) for each in digests]


def _resource(name: str, sha256: str) -> Json:
    return {"name": name, "digest": {"sha256": sha256}}
