"""Judges published claims by bundles: one verdict for each claim and stack, with its reason in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from repro import wording
from repro.claims import Claim
from repro.judge import stats
from repro.measured import Interval, Measured, Record, stack

SCHEMA_VERSION = 1
REPRODUCED, DIFFERS, AMBIGUOUS = "REPRODUCED", "DIFFERS", "AMBIGUOUS"
NOT_COMPARABLE, BLOCKED = "NOT-COMPARABLE", "BLOCKED"
TRIED = (REPRODUCED, DIFFERS, AMBIGUOUS)
VERDICTS = (*TRIED, NOT_COMPARABLE, BLOCKED)
# Agents without a model: hand-written solutions, a control, or a recording.
NO_AGENT = ("oracle", "nop", "replay")
AGENT_PROBLEMS = 10
# Verdicts of a wrong kernel, which has no speedup. A kernel that did not run here was not tried.
WRONG = ("incorrect", "rejected")


@dataclass(frozen=True)
class Trial:
    """What one bundle says about one claim. measured: in the claim's unit; None if nothing can be compared."""

    bundle: str
    stack: dict[str, Any]
    machine: str
    verdict: str
    reason: str
    measured: tuple[float, float, float] | None = None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        value, *ci95 = self.measured or (None,)
        return {"bundle": self.bundle, "verdict": self.verdict, "reason": self.reason, "measured": value,
                "ci95": ci95 or None, "notes": self.notes}  # fmt: skip


def word(low: float, high: float, claim: Claim) -> str:
    """Return REPRODUCED, DIFFERS or AMBIGUOUS: a 95 % interval inside the claim's band, outside, or across an edge.

    low, high: the interval in the claim's unit. Edges belong to the band.
    """
    if claim.low <= low and high <= claim.high:
        return REPRODUCED
    return DIFFERS if high < claim.low or low > claim.high else AMBIGUOUS


def judge(claims: list[Claim], bundles: list[Measured]) -> dict[str, Any]:
    """Return every claim with its outcomes as plain data, for `--json` and tables."""
    entries = [claim.to_json() | {"outcomes": _outcomes(claim, bundles)} for claim in claims]
    counts = Counter(outcome["verdict"] for entry in entries for outcome in entry["outcomes"])
    return {
        "schema_version": SCHEMA_VERSION,
        "bundles": [{"bundle": b.name, "verb": b.verb, "why_not": b.why_not} for b in bundles],
        "counts": {verdict: counts[verdict] for verdict in VERDICTS},
        "claims": entries,
    }


def reproduced(found: dict[str, Any]) -> bool:
    """Return whether at least one claim was tried and all tried claims were reproduced."""
    counts = found["counts"]
    return bool(counts[REPRODUCED] and not counts[DIFFERS] and not counts[AMBIGUOUS])


def _outcomes(claim: Claim, bundles: list[Measured]) -> list[dict[str, Any]]:
    """Return one outcome for each stack and kind of GPU, or one with the reason why there is none."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for bundle in bundles:
        trial = _trial(claim, bundle)
        if trial is not None:
            groups.setdefault((trial.stack["label"], trial.machine), []).append(trial)
    if not groups:
        if claim.needs:
            verdict, reason = BLOCKED, f"needs {'; '.join(claim.needs)}"
        else:
            verdict, reason = NOT_COMPARABLE, "no bundle measured it"
        return [{"verdict": verdict, "reason": reason, "stack": None, "machine": None, "measured": None, "ci95": None,
                 "notes": [], "trials": []}]  # fmt: skip
    return [_merged(trials) for trials in groups.values()]


def _merged(trials: list[Trial]) -> dict[str, Any]:
    """Return the verdict of one stack. Bundles that tried the claim decide; if they disagree it is AMBIGUOUS."""
    tried = [trial for trial in trials if trial.verdict in TRIED] or trials
    last = tried[-1]
    told = last.to_json() | {"stack": last.stack, "machine": last.machine, "trials": [t.to_json() for t in trials]}
    if len({trial.verdict for trial in tried}) > 1:
        told["verdict"] = AMBIGUOUS
        told["reason"] = "bundles disagree: " + ", ".join(f"{t.verdict} in {t.bundle}" for t in tried)
    return {name: value for name, value in told.items() if name != "bundle"}


def _trial(claim: Claim, bundle: Measured) -> Trial | None:
    """Return what a bundle says about a claim, or None if it has nothing to do with it."""
    if claim.measure == "none" or bundle.verb != ("run" if claim.study == "agent" else "benchmark"):
        return None
    if claim.measure in ("mean", "gain"):
        return _over_problems(claim, bundle)
    records = [r for r in bundle.records.values() if _meant(claim, r)]
    if claim.study == "agent" and _no_agent(bundle):
        return None
    if not records:
        row = str(claim.number) if claim.number is not None else f"{claim.problem}/{claim.variant}/"
        why = next(
            (why for key, why in bundle.unmeasured.items() if key == row or key.startswith(row) and "/" in row), ""
        )
        return _no(bundle, None, f"not measured: {why}") if why else None
    first = records[0]
    refused = _refused(claim, bundle, records)
    if refused:
        return _no(bundle, first, refused)
    wrong = next((r for r in records if r.verdict in WRONG), None)
    if wrong is not None:
        return _trial_of(bundle, first, DIFFERS, f"the kernel is {wrong.why}: a wrong kernel has no speed")
    quantities = [r.time_ms if claim.measure == "time" else r.speedups.get(claim.over) for r in records]
    if any(q is None for q in quantities):
        missing = next(r for r, q in zip(records, quantities, strict=True) if q is None)
        return _no(
            bundle,
            first,
            f"not measured: {missing.why or f'no {claim.measure} of {claim.variant} {claim.over}'.rstrip()}",
        )
    found = [q for q in quantities if q is not None]
    together = _together(found)
    notes = _notes(claim, bundle, records)
    measured = (together.value, together.low, together.high)
    away = claim.elsewhere(_values(bundle, first))
    if claim.kind == "absolute" and away:
        return _trial_of(bundle, first, NOT_COMPARABLE, f"an absolute figure of another machine: {'; '.join(away)}",
                         measured, notes)  # fmt: skip
    unsure = [r for r in records if r.words.get(claim.over) == "UNCONFIRMED" and claim.measure == "speedup"]
    verdict = AMBIGUOUS if unsure else word(together.low, together.high, claim)
    reason = _reason(verdict, together, claim)
    if unsure:
        reason = "the judge's own clock does not confirm a speedup over 1"
    if away:
        notes = [*notes, f"a ratio, compared across machines: {'; '.join(away)}"]
    return _trial_of(bundle, first, verdict, reason, measured, notes)


def _no_agent(bundle: Measured) -> bool:
    """Return whether no model wrote a bundle's solutions: they are shipped, or a script's replies."""
    return bundle.parameters.get("agent") in NO_AGENT or bool(bundle.parameters.get("study", {}).get("scripted"))


def _meant(claim: Claim, record: Record) -> bool:
    """Return whether a record is of the claim."""
    if claim.study == "agent":
        return (
            record.arm == claim.variant and not record.control and record.verdict != "" and record.problem == claim.key
        )
    return record.number == claim.number and record.variant == claim.variant


def _refused(claim: Claim, bundle: Measured, records: list[Record]) -> str:
    """Return why a bundle did not measure a claim as the claim says, or ""."""
    if claim.published_kernels and bundle.shipped:
        return "its kernels are those that ship here, not the published ones"
    other = next((r for r in records if r.problem != claim.key), None)
    if other is not None:
        return f"its problem is {other.problem}, of other sizes or another dtype than {claim.key}"
    return next((r.why_not for r in records if r.why_not), "")


def _over_problems(claim: Claim, bundle: Measured) -> Trial | None:
    """Judge the geometric mean of an arm's speedups, or the gain of one arm over the other, over all problems."""
    if _no_agent(bundle):
        return None
    arms = ("with_kb", "baseline") if claim.measure == "gain" else (claim.variant,)
    by_arm = {arm: _by_problem(bundle, arm) for arm in arms}
    if not all(by_arm.values()):
        return None
    records = [r for found in by_arm.values() for rows in found.values() for r in rows]
    why = next((r.why_not for r in records if r.why_not), "")
    if why:
        return _no(bundle, records[0], why)
    means = []
    for arm, found in by_arm.items():
        timed = [_together([r.speedups["eager"] for r in rows]) for rows in found.values()
                 if all(r.verdict == "correct" and "eager" in r.speedups for r in rows)]  # fmt: skip
        if len(timed) < AGENT_PROBLEMS:
            reason = f"{arm}: {len(timed)} of {AGENT_PROBLEMS} problems have a correct solution in every repeat"
            return _no(bundle, records[0], reason)
        mean = stats.geometric_mean([{"ratio": t.value, "ci95": [t.low, t.high]} for t in timed])
        means.append(Interval(mean["ratio"], *mean["ci95"]))
    notes = _notes(claim, bundle, records)
    away = claim.elsewhere(_values(bundle, records[0]))
    if away:
        notes.append(f"a ratio, compared across machines: {'; '.join(away)}")
    if claim.measure == "mean":
        measured = (means[0].value, means[0].low, means[0].high)
    else:
        gain = means[0].over(means[1])
        measured = (100 * (gain.value - 1), 100 * (gain.low - 1), 100 * (gain.high - 1))
    verdict = word(measured[1], measured[2], claim)
    return _trial_of(bundle, records[0], verdict, _reason(verdict, Interval(*measured), claim), measured, notes)


def _by_problem(bundle: Measured, arm: str) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in bundle.records.values():
        if record.arm == arm and not record.control and record.verdict:
            found.setdefault(record.problem, []).append(record)
    return found


def _together(found: list[Interval]) -> Interval:
    """Combine repeats: their geometric mean, with an interval from the lowest edge to the highest.

    One run's interval does not cover the scatter between runs.
    """
    mean = math.exp(sum(math.log(each.value) for each in found) / len(found))
    return Interval(mean, min(each.low for each in found), max(each.high for each in found))


def _reason(verdict: str, found: Interval, claim: Claim) -> str:
    where = {REPRODUCED: "lies within", DIFFERS: "lies outside", AMBIGUOUS: "straddles an edge of"}[verdict]
    return f"[{found.low:.4g}, {found.high:.4g}] {claim.unit} {where} [{claim.low:.4g}, {claim.high:.4g}] {claim.unit}"


def _notes(claim: Claim, bundle: Measured, records: list[Record]) -> list[str]:
    notes = []
    if bundle.parameters.get("solutions"):
        notes.append(wording.FROM_FOLDER)
    if claim.published_kernels:
        notes.append(f"kernels of the folder {bundle.parameters.get('artifacts')}, taken for the published ones")
    if not all(r.converged for r in records):
        notes.append("not converged when the time budget ended")
    if claim.study == "agent" and len({r.key for r in records}) == len({(r.arm, r.problem) for r in records}):
        notes.append("one run for each problem: the interval does not cover the scatter between runs")
    theirs = records[0].published_ms
    if claim.measure == "time" and theirs.get(claim.variant):
        notes.append(f"by the published protocol {theirs[claim.variant]:.4g} ms")
    over, own = theirs.get(claim.over), theirs.get(claim.variant)
    if claim.measure == "speedup" and over and own:
        notes.append(f"by the published protocol {over / own:.3g}x")
    return notes


def _values(bundle: Measured, record: Record) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = bundle.fingerprints.get(record.fingerprint, {}).get("values", {})
    return found


def _no(bundle: Measured, record: Record | None, reason: str) -> Trial:
    return _trial_of(bundle, record or next(iter(bundle.records.values()), None), NOT_COMPARABLE, reason)


def _trial_of(
    bundle: Measured, record: Record | None, verdict: str, reason: str,
    measured: tuple[float, float, float] | None = None, notes: Iterable[str] = (),
) -> Trial:  # fmt: skip
    if record is None:
        return Trial(bundle.name, {"label": "stack not recorded", "pinned": False}, "?", verdict, reason)
    machine = str(_values(bundle, record).get("gpu_name", {}).get("value") or "no GPU")
    return Trial(bundle.name, stack(bundle, record), machine, verdict, reason, measured, list(notes))
