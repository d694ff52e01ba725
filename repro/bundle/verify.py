"""`repro verify`: every check of a bundle, one line each.

What is found without a signature: any change that was not followed by new hashes of everything, the bundle id last.
What is not: a bundle whose hashes were all made anew. Against that, compare the bundle id with one that was published
elsewhere (`--id`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.bundle import evidence
from repro.bundle.checks import ABOUT_FILES, ABOUT_ROWS, Skip
from repro.bundle.evidence import Evidence
from repro.bundle.records import ABOUT_RECORDS

SCHEMA_VERSION = 1
CHECKS = ABOUT_FILES | ABOUT_ROWS | ABOUT_RECORDS
# Complaints of one check that a line shows; the JSON has them all.
SHOWN = 3


@dataclass(frozen=True)
class Finding:
    """One check: ok, FAILED or skipped, and every reason."""

    check: str
    state: str
    reasons: list[str]

    def line(self) -> str:
        told = "; ".join(self.reasons[:SHOWN])
        more = f"; and {len(self.reasons) - SHOWN} more" if len(self.reasons) > SHOWN else ""
        return f"{self.state:<8}{self.check}" + (f": {told}{more}" if told else "")


def verify(path: Path, expected_id: str = "") -> dict[str, Any]:
    """All checks of a bundle: {"bundle", "bundle_id", "schema_version", "passed", "checks"}.

    expected_id: a bundle id from elsewhere, or its beginning. Raises UsageError where the folder is no bundle.
    """
    found = evidence.read(path)
    findings = [_run(name, found) for name in CHECKS]
    own = found.manifest.get("bundle_id")
    if expected_id:
        wrong = [] if str(own or "").startswith(expected_id) else [f"expected {expected_id}, found {own or 'none'}"]
        findings.append(Finding("expected bundle id", "FAILED" if wrong else "ok", wrong))
    return {
        "bundle": str(path),
        "bundle_id": own,
        "schema_version": found.version,
        "passed": all(finding.state != "FAILED" for finding in findings),
        "checks": [asdict(finding) for finding in findings],
    }


def _run(name: str, found: Evidence) -> Finding:
    """One check; what it cannot make sense of is a failure of the bundle, not of the tool."""
    try:
        wrong = CHECKS[name](found)
    except Skip as skip:
        return Finding(name, "skipped", [str(skip)])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as error:
        return Finding(name, "FAILED", [f"the bundle is not as it must be for this: {type(error).__name__}: {error}"])
    return Finding(name, "FAILED" if wrong else "ok", wrong)


def lines(report: dict[str, Any]) -> list[str]:
    """What is printed of one bundle."""
    states = [check["state"] for check in report["checks"]]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("ok", "FAILED", "skipped"))
    known = report["bundle_id"] or f"none, schema {report['schema_version']}"
    head = f"{report['bundle']} (bundle id {known})"
    return [head, *(f"  {Finding(**check).line()}" for check in report["checks"]), f"  {counts}"]
