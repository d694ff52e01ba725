"""`repro verify`: every check of a bundle.

Bundles are not signed. The checks find any change, unless all hashes were made anew after it, the bundle id included.
To find that too, compare the bundle id with one that was published elsewhere (`--id`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.bundle import evidence
from repro.bundle.checks import ABOUT_FILES, ABOUT_ROWS, Skip, Unfinished
from repro.bundle.evidence import Evidence
from repro.bundle.records import ABOUT_RECORDS
from repro.errors import BundleError, UsageError

SCHEMA_VERSION = 1
CHECKS = ABOUT_FILES | ABOUT_ROWS | ABOUT_RECORDS
# A bundle is `failed` where a check fails, else `running` while a process holds its lock, else `interrupted` where its
# run was stopped or killed, else `ok`.
STATES = ("ok", "interrupted", "running", "failed")
# Checks that a copy needs: a run that is not whole may be copied, a bundle that was edited may not.
NEEDED = (*ABOUT_FILES, "plan", "fingerprints", "solutions", "claims")


@dataclass(frozen=True)
class Finding:
    """One check's result and every reason. state: ok, FAILED, skipped, interrupted or running."""

    check: str
    state: str
    reasons: list[str]


def verify(path: Path, expected_id: str = "") -> dict[str, Any]:
    """Runs all checks. Returns {"bundle", "bundle_id", "schema_version", "state", "passed", "checks"}.

    state: one of STATES; `passed` is whether it is not `failed`. expected_id: a bundle id from elsewhere, or its
    beginning. Raises UsageError where the path holds no bundle.
    """
    found = evidence.read(path)
    findings = [_run(name, found) for name in CHECKS]
    own = found.manifest.get("bundle_id")
    if expected_id:
        wrong = [] if str(own or "").startswith(expected_id) else [f"expected {expected_id}, found {own or 'none'}"]
        findings.append(Finding("expected bundle id", "FAILED" if wrong else "ok", wrong))
    states = {finding.state for finding in findings}
    state = "failed" if "FAILED" in states else next((s for s in ("running", "interrupted") if s in states), "ok")
    return {
        "bundle": str(path),
        "bundle_id": own,
        "schema_version": found.version,
        "state": state,
        "passed": state != "failed",
        "checks": [asdict(finding) for finding in findings],
    }


def unchanged(path: Path, use: str) -> Evidence:
    """Reads a closed bundle that is to be copied; a copy of a changed one would hide the change.

    use: `shared` or `packed`. Raises BundleError where a check of NEEDED fails, UsageError for a bundle that was never
    closed.
    """
    wrong = [c for c in verify(path)["checks"] if c["state"] == "FAILED" and c["check"] in NEEDED]
    if wrong:
        why = f"{wrong[0]['check']}: {wrong[0]['reasons'][0]}"
        raise BundleError(f"{path} does not verify and is not {use}", why, f"See `repro verify {path}`.")
    found = evidence.read(path)
    if found.open:
        raise UsageError(f"{path} is not {use}", "its run has not ended", "Go on with --resume first.")
    return found


def _run(name: str, found: Evidence) -> Finding:
    """Runs one check. Content that the check cannot parse is a failure of the bundle, not of the tool."""
    try:
        wrong = CHECKS[name](found)
    except Skip as skip:
        return Finding(name, "skipped", [str(skip)])
    except Unfinished as cut:
        return Finding(name, "running" if found.files_in.held() else "interrupted", cut.reasons)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as error:
        return Finding(name, "FAILED", [f"it holds what this check cannot read: {type(error).__name__}: {error}"])
    return Finding(name, "FAILED" if wrong else "ok", wrong)
