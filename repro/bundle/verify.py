"""`repro verify`: every check of a bundle.

The checks find any change, unless all hashes were made anew after it, the bundle id included. To find that too, compare
the bundle id with one that was published elsewhere, or check the signature of a copy that has one (`--key`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.bundle import evidence, signature
from repro.bundle.checks import ABOUT_FILES, ABOUT_ROWS, Check, Skip, Unfinished
from repro.bundle.evidence import Evidence
from repro.bundle.records import ABOUT_RECORDS
from repro.errors import BundleError, UsageError
from repro.records.base import Record

SCHEMA_VERSION = 1
CHECKS = ABOUT_FILES | ABOUT_ROWS | ABOUT_RECORDS
# A bundle is `failed` where a check fails, else `running` while a process holds its lock, else `interrupted` where its
# run was stopped or killed, else `ok`.
STATES = ("ok", "interrupted", "running", "failed")
# Checks that a copy needs: a run that is not whole may be copied, a bundle that was edited may not.
NEEDED = (*ABOUT_FILES, "plan", "fingerprints", "solutions", "claims")


class Finding(Record):
    """One check's result."""

    check: str
    """Its name."""
    state: str
    """ok, FAILED, skipped, interrupted or running."""
    reasons: list[str]
    """Every reason."""


class Verified(Record):
    """A bundle: an entry of `verify --json`."""

    bundle: str
    """Its path."""
    bundle_id: Any
    """As its manifest says."""
    schema_version: int
    """Of its manifest."""
    state: str
    """One of STATES."""
    passed: bool
    """Whether it is not `failed`."""
    checks: list[Finding]
    """Every check."""

    @property
    def failed(self) -> dict[str, Finding]:
        """Return the checks that failed, by name."""
        return {each.check: each for each in self.checks if each.state == "FAILED"}


def verify(path: Path, public: Any = None) -> Verified:
    """Runs all checks. public: the key that signed the bundle. Raises UsageError where the path holds no bundle."""
    found = evidence.read(path)
    signed = {} if public is None else {"signature": lambda bundle: signature.faults(bundle, public)}
    findings = [_run(name, check, found) for name, check in (CHECKS | signed).items()]
    states = {finding.state for finding in findings}
    state = "failed" if "FAILED" in states else next((s for s in ("running", "interrupted") if s in states), "ok")
    return Verified(
        bundle=str(path), bundle_id=found.manifest.get("bundle_id"), schema_version=found.version, state=state,
        passed=state != "failed", checks=findings,
    )  # fmt: skip


def unchanged(path: Path, use: str) -> Evidence:
    """Reads a closed bundle that is to be copied; a copy of a changed one would hide the change.

    use: `shared` or `packed`. Raises BundleError where a check of NEEDED fails, UsageError for a bundle that was never
    closed.
    """
    wrong = [finding for name, finding in verify(path).failed.items() if name in NEEDED]
    if wrong:
        why = f"{wrong[0].check}: {wrong[0].reasons[0]}"
        raise BundleError(f"{path} does not verify and is not {use}", why, f"See `repro verify {path}`.")
    found = evidence.read(path)
    if found.open:
        raise UsageError(f"{path} is not {use}", "its run has not ended", "Go on with --resume first.")
    return found


def _run(name: str, check: Check, found: Evidence) -> Finding:
    """Runs one check. Content that the check cannot parse is a failure of the bundle, not of the tool."""
    try:
        wrong = list(check(found))
    except Skip as skip:
        return Finding(check=name, state="skipped", reasons=[str(skip)])
    except Unfinished as cut:
        return Finding(check=name, state="running" if found.files_in.held() else "interrupted", reasons=list(cut.args))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as error:
        wrong = [f"it holds what this check cannot read: {type(error).__name__}: {error}"]
    return Finding(check=name, state="FAILED" if wrong else "ok", reasons=wrong)
