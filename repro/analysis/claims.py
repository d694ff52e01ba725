"""Judges published claims by bundles. A claim has two verdicts for each stack, each with its reason in words.

*Reproduced as published*: by the published way of measuring, which verifies nothing (`--parity`, or the profile in the
dtype that fits). *Holds as judged*: the kernel is correct, and the judge's own figure lies within the tolerance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from repro.analysis import compare
from repro.analysis.records import Extra, Interval, Measured, Record, interval, stack
from repro.artifacts import layout
from repro.judge.timing import intervals
from repro.records import wording
from repro.records.benchmark import Round
from repro.records.claim import (
    Claim,
    ClaimOutcome,
    ClaimSource,
    ClaimTrial,
    ClaimVerdict,
    ClaimWord,
    JudgedClaim,
    JudgedClaims,
    OverBest,
)
from repro.records.fingerprint import Stack
from repro.records.profile import Profile

REPRODUCED: Final = "REPRODUCED"
DIFFERS: Final = "DIFFERS"
AMBIGUOUS: Final = "AMBIGUOUS"
NOT_COMPARABLE: Final = "NOT-COMPARABLE"
BLOCKED: Final = "BLOCKED"
TRIED: tuple[ClaimWord, ...] = (REPRODUCED, DIFFERS, AMBIGUOUS)
VERDICTS: tuple[ClaimWord, ...] = (*TRIED, NOT_COMPARABLE, BLOCKED)
SIDES = ("as_published", "as_judged")
# Agents without a model: hand-written solutions, a control, or a recording.
NO_AGENT = ("oracle", "nop", "replay")
AGENT_PROBLEMS = 10
# Verdicts of a wrong kernel, which has no speedup. A kernel that did not run here was not tried.
WRONG = ("incorrect", "rejected")
# The profiled kernel by the part of a claim. Times are of the dtype TIMED; most published profiles ran in float32.
PROFILED = {"input": "input_kernel", "optimised": "optimized"}
TIMED, DTYPES = "bfloat16", ("bfloat16", "float32")
# Two ways of timing that agree within this share tell the same; beyond it the difference is explained.
ALIKE = 0.05
TORCH = {"eager": "eager torch", "compile": "torch.compile", "input_kernel": "the input kernel",
         "optimized": "the optimised kernel"}  # fmt: skip
NO_PROTOCOL = "the study published no way of measuring to repeat"


@dataclass(frozen=True)
class Band:
    """What is compared: the published value and the edges of its tolerance, in `unit`."""

    value: float
    unit: str
    low: float
    high: float


def _side(verdict: ClaimWord, reason: str, measured: Interval | None = None) -> ClaimVerdict:
    """Return one of the two verdicts. measured: in the band's unit; once measured, with 1 % on either side."""
    value, ci95 = (measured.value, [measured.low, measured.high]) if measured else (None, None)
    return ClaimVerdict(verdict=verdict, reason=reason, measured=value, ci95=ci95)


@dataclass(frozen=True)
class Trial:
    """What one bundle says about one claim. difference: why the figures differ, in words, or "".

    over_best: the kernel's judged speedup over the best torch baseline of its precision, with that baseline's name.
    """

    bundle: str
    stack: Stack
    machine: str
    band: Band
    as_published: ClaimVerdict
    as_judged: ClaimVerdict
    difference: str = ""
    notes: list[str] = field(default_factory=list)
    over_best: OverBest | None = None

    def record(self) -> ClaimTrial:
        """Return the record of it."""
        return ClaimTrial(bundle=self.bundle, as_published=self.as_published, as_judged=self.as_judged)


def word(low: float, high: float, band: Band | Claim) -> ClaimWord:
    """Return REPRODUCED, DIFFERS or AMBIGUOUS: a 95 % interval inside the claim's band, outside, or across an edge.

    low, high: the interval in the claim's unit. Edges belong to the band.
    """
    if band.low <= low and high <= band.high:
        return REPRODUCED
    return DIFFERS if high < band.low or low > band.high else AMBIGUOUS


def judge(claims: list[Claim], bundles: list[Measured]) -> JudgedClaims:
    """Return every claim with its outcomes, for `--json` and tables."""
    entries = [JudgedClaim(**claim.to_json(), outcomes=_outcomes(claim, bundles)) for claim in claims]
    counts = {side: Counter(o.side(side).verdict for entry in entries for o in entry.outcomes) for side in SIDES}
    return JudgedClaims(
        schema_version=2,
        bundles=[ClaimSource(bundle=b.name, verb=b.verb, why_not=b.why_not) for b in bundles],
        counts={side: {verdict: counts[side][verdict] for verdict in VERDICTS} for side in SIDES},
        claims=entries,
    )


def counted(outcomes: list[ClaimOutcome], side: str) -> str:
    """Return how many of some outcomes have which verdict, in words: `holds 33, does not hold 6, unclear 1`."""
    counts = Counter(outcome.side(side).verdict for outcome in outcomes)
    return ", ".join(f"{wording.CLAIM[side][verdict]} {counts[verdict]}" for verdict in VERDICTS if counts[verdict])


def where(outcome: ClaimOutcome) -> str:
    """Return machine and stack of an outcome, "" without one."""
    return f"{outcome.machine}, {outcome.stack.label}" if outcome.stack else ""


def short(problem: str) -> str:
    """Return a problem's name for a table: `77 conv transposed 3D` of the folder's name."""
    return problem.partition("_square")[0].replace("_", " ") if problem[:1].isdigit() else problem


def told(counts: dict[str, dict[str, int]]) -> str:
    """Return both counts of verdicts in one line, for people."""
    words = []
    for side, what in zip(SIDES, ("reproduced as published", "hold as judged"), strict=True):
        of, left = sum(counts[side][verdict] for verdict in TRIED), counts[side][NOT_COMPARABLE]
        rest = f" ({left} {wording.CLAIM[side][NOT_COMPARABLE]})" if left else ""
        words += [f"{counts[side][REPRODUCED]} of {of} {what}{rest}"] if of else []
    blocked = counts["as_judged"][BLOCKED]
    words += [f"{blocked} {wording.CLAIM['as_judged'][BLOCKED]}"] if blocked else []
    return ", ".join(words) or "none"


def why(outcome: ClaimOutcome) -> str:
    """Return why an outcome's verdicts are what they are: where they differ that difference first."""
    published, judged = outcome.as_published.reason, outcome.as_judged.reason
    reasons = [judged] if published == judged else [f"published: {published}", f"judged: {judged}"]
    return "; ".join(filter(None, (outcome.difference, *reasons)))


def untried(pairs: list[tuple[JudgedClaim, ClaimOutcome]]) -> list[list[str]]:
    """Return a row for the claims that share verdict, reason and stack: there are many, with few reasons.

    Columns: families, count, verdict, reason, stack, command (first claim).
    """
    groups: dict[tuple[str, str, str], list[JudgedClaim]] = {}
    for claim, outcome in pairs:
        judged = outcome.as_judged
        key = (wording.CLAIM["as_judged"][judged.verdict], judged.reason, where(outcome))
        groups.setdefault(key, []).append(claim)
    return [[", ".join(dict.fromkeys(each.family for each in of)), str(len(of)), verdict, reason, stack, of[0].command]
            for (verdict, reason, stack), of in groups.items()]  # fmt: skip


def tried(outcome: ClaimOutcome) -> bool:
    """Return whether an outcome has a verdict of either kind that compares."""
    return any(outcome.side(side).verdict in TRIED for side in SIDES)


def reproduced(found: JudgedClaims) -> bool:
    """Return whether at least one claim was tried as judged, and no tried claim failed either way."""
    counts = found.counts
    return bool(counts["as_judged"][REPRODUCED] and not any(
        counts[side][verdict] for side in SIDES for verdict in (DIFFERS, AMBIGUOUS)))  # fmt: skip


def _outcomes(claim: Claim, bundles: list[Measured]) -> list[ClaimOutcome]:
    """Return one outcome for each stack and kind of GPU, or one with the reason why there is none."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for bundle in bundles:
        trial = _trial(claim, bundle)
        if trial is not None:
            groups.setdefault((trial.stack.label, trial.machine), []).append(trial)
    if not groups:
        if claim.needs:
            none = _side(BLOCKED, f"needs {'; '.join(claim.needs)}")
        else:
            none = _side(NOT_COMPARABLE, "no bundle measured it")
        return [ClaimOutcome(
            stack=None, machine=None, published=claim.value, unit=claim.unit, low=claim.low, high=claim.high,
            as_published=none, as_judged=none, difference="", over_best=None, notes=[], trials=[],
        )]  # fmt: skip
    return [_merged(trials) for trials in groups.values()]


def _merged(trials: list[Trial]) -> ClaimOutcome:
    """Return the verdicts of one stack. Bundles that tried the claim decide; if they disagree it is AMBIGUOUS."""
    last = next((t for t in reversed(trials) if t.as_judged.verdict in TRIED), None)
    last = last or next((t for t in reversed(trials) if t.as_published.verdict in TRIED), None)
    last = last or next((t for t in reversed(trials) if t.as_judged.measured or t.as_published.measured), trials[-1])
    band = last.band
    return ClaimOutcome(
        stack=last.stack, machine=last.machine, published=band.value, unit=band.unit, low=band.low, high=band.high,
        as_published=_decided([(trial.bundle, trial.as_published) for trial in trials]),
        as_judged=_decided([(trial.bundle, trial.as_judged) for trial in trials]),
        difference=last.difference, over_best=last.over_best, notes=last.notes, trials=[t.record() for t in trials],
    )  # fmt: skip


def _decided(of: list[tuple[str, ClaimVerdict]]) -> ClaimVerdict:
    """Return the verdict of several bundles of one stack: (name, verdict)."""
    decide = [(name, each) for name, each in of if each.verdict in TRIED]
    decide = decide or [(name, each) for name, each in of if each.measured] or of[-1:]
    last = decide[-1][1]
    if len({each.verdict for _, each in decide}) == 1:
        return last
    told = ", ".join(f"{each.verdict} in {name}" for name, each in decide)
    return last.model_copy(update={"verdict": AMBIGUOUS, "reason": f"bundles disagree: {told}"})


def _trial(claim: Claim, bundle: Measured) -> Trial | None:
    """Return what a bundle says about a claim, or None if it has nothing to do with it."""
    if bundle.verb != ("run" if claim.study == "agent" else "benchmark"):
        return None
    if claim.study == "agent" and _no_agent(bundle):
        return None
    if claim.measure in ("mean", "gain"):
        return _over_problems(claim, bundle)
    if claim.measure in ("running-best", "profile"):
        return _extra(claim, bundle)
    records = [r for r in bundle.records.values() if _meant(claim, r)]
    if not records:
        row = str(claim.number) if claim.number is not None else f"{claim.problem}/{claim.variant}/"
        why = next(
            (why for key, why in bundle.unmeasured.items() if key == row or key.startswith(row) and "/" in row), ""
        )
        return _untried(claim, bundle, None, f"not measured: {why}") if why else None
    refused = _refused(claim, bundle, records)
    if refused:
        return _untried(claim, bundle, records[0], refused)
    away = claim.elsewhere(_values(bundle, records[0].fingerprint))
    band = _band(claim)
    published = _by_protocol(claim, records[0], band)
    judged = _by_judge(claim, records, band)
    if claim.kind == "absolute" and away:
        published, judged = (_other_machine(side, away) for side in (published, judged))
    notes = _notes(claim, bundle, records)
    if away and claim.kind == "ratio":
        notes.append(f"a ratio, compared across machines: {'; '.join(away)}")
    difference = _why(claim, records[0], published, judged) or _elsewhere(claim, bundle, records[0], judged, away)
    trial = _trial_of(claim, bundle, records[0], band, published, judged, difference, notes)
    return replace(trial, over_best=_over_best(records[0])) if claim.measure == "speedup" else trial


def _band(claim: Claim) -> Band:
    return Band(claim.value, claim.unit, claim.low, claim.high)


def _exactly(value: float) -> Interval:
    """Return a figure that was measured once: what differs by less is the same."""
    return Interval(value, value * (1 - compare.SAME), value * (1 + compare.SAME))


def _compared(found: Interval, band: Band, told: str = "") -> ClaimVerdict:
    """Return the verdict of a measured figure. told: put before its reason."""
    verdict = word(found.low, found.high, band)
    where = {REPRODUCED: "lies within", DIFFERS: "lies outside", AMBIGUOUS: "straddles an edge of"}[verdict]
    what = f"[{found.low:.4g}, {found.high:.4g}]"
    reason = f"{what} {band.unit} {where} [{band.low:.4g}, {band.high:.4g}] {band.unit}"
    return _side(verdict, f"{told}{reason}", found)


def _other_machine(side: ClaimVerdict, away: list[str]) -> ClaimVerdict:
    """Return a figure that another machine's does not compare with; a wrong kernel stays wrong."""
    if side.verdict == NOT_COMPARABLE or side.measured is None:
        return side
    reason = f"an absolute figure of another machine: {'; '.join(away)}"
    return side.model_copy(update={"verdict": NOT_COMPARABLE, "reason": reason})


def _by_protocol(claim: Claim, record: Record, band: Band) -> ClaimVerdict:
    """Return the verdict of a time or speedup by the published protocol, which has no interval."""
    if claim.study == "agent":
        return _side(NOT_COMPARABLE, NO_PROTOCOL)
    if not record.parity:
        return _side(NOT_COMPARABLE, "not measured by the published protocol: --parity was not given")
    ms = {name: record.published_ms.get(name) for name in (claim.variant, claim.over) if name}
    missing = next((name for name, value in ms.items() if not value), None)
    if missing is not None:
        why = record.parity.reasons.get(missing, f"no time of {TORCH.get(missing, missing)}")
        return _side(NOT_COMPARABLE, f"not measured by the published protocol: {why}")
    own = ms[claim.variant]
    assert own is not None
    base = ms.get(claim.over) if claim.measure == "speedup" else None
    return _compared(_exactly(base / own if base else own), band)


def _by_judge(claim: Claim, records: list[Record], band: Band) -> ClaimVerdict:
    """Return the verdict of a time or speedup by the judge: nothing holds of a wrong kernel."""
    wrong = next((r for r in records if r.verdict in WRONG), None)
    if wrong is not None:
        return _side(DIFFERS, f"the kernel is {wrong.why}: a wrong kernel has no speed")
    quantities = [r.time_ms if claim.measure == "time" else r.speedups.get(claim.over) for r in records]
    found = [q for q in quantities if q is not None]
    if len(found) < len(records):
        missing = next(r for r, q in zip(records, quantities, strict=True) if q is None)
        lacking = f"no {claim.measure} of {claim.variant} {claim.over}".rstrip()
        return _side(NOT_COMPARABLE, f"not measured: {missing.why or lacking}")
    together = _together(found)
    if claim.measure == "speedup" and any(r.words.get(claim.over) == "UNCONFIRMED" for r in records):
        return _side(AMBIGUOUS, "the judge's own clock does not confirm a speedup over 1", together)
    return _compared(together, band)


def _over_best(record: Record) -> OverBest | None:
    found = record.speedups.get("best_same_class")
    return OverBest(ratio=found.value, ci95=[found.low, found.high], baseline=record.best) if found else None


def _why(claim: Claim, record: Record, published: ClaimVerdict, judged: ClaimVerdict) -> str:
    """Return why the two ways of measuring differ, or "": the variant whose time they disagree most about."""
    if record.verdict in WRONG:
        return f"the kernel is {record.why}"
    if published.measured is None or judged.measured is None:
        return ""
    if abs(math.log(published.measured / judged.measured)) <= ALIKE:
        return ""
    shares = {name: theirs / ours for name in filter(None, (claim.variant, claim.over))
              if (theirs := record.published_ms.get(name)) and (ours := record.judged_ms.get(name))}  # fmt: skip
    if not shares:
        return ""
    name = max(shares, key=lambda each: abs(math.log(shares[each])))
    on = record.parity is not None and record.parity.grad and name in ("eager", "compile")
    grads = ", which leaves gradients on" if on else ""
    times = f"{shares[name]:.2f} times as long" if shares[name] > 1 else f"{100 * shares[name]:.0f} % of the time"
    return f"by the published protocol{grads}, {TORCH.get(name, name)} takes {times}"


def _elsewhere(claim: Claim, bundle: Measured, record: Record, judged: ClaimVerdict, away: list[str]) -> str:
    """Return what else differs from the published run where both ways agree with each other, and not with it."""
    if judged.verdict not in (DIFFERS, AMBIGUOUS):
        return ""
    here, gpu = stack(bundle, record), _values(bundle, record.fingerprint).get("gpu_name", {}).get("value")
    rate = claim.hard.get("bandwidth_signature_gb_s")
    theirs = str(claim.hard["gpu_name"]) + (f" of {rate} GB/s" if rate else "")
    other = [f"the machine ({gpu}; published: {theirs})"] * bool(away)
    other += [f"the stack ({here.label})"] * (not here.pinned)
    return f"both ways agree here; what differs is {' and '.join(other)}" if other else ""


# -- what is measured beside the kernels: rounds and profiles


def _extra(claim: Claim, bundle: Measured) -> Trial | None:
    """Return what a bundle's rounds or profiles say about a claim."""
    rounds = claim.measure == "running-best"
    found = (bundle.rounds if rounds else bundle.profiles).get(claim.number or 0)
    if found is None:
        ending = "/rounds" if rounds else "/profile"
        why = next((why for key, why in bundle.unmeasured.items()
                    if key.endswith(ending) and layout.number(key) == claim.number), "")  # fmt: skip
        if why:
            return _untried(claim, bundle, None, f"not measured: {why}")
        if not any(record.number == claim.number for record in bundle.records.values()):
            return None
        return _untried(claim, bundle, None, f"not measured: {'--rounds' if rounds else '--profile'} was not given")
    why_not = "its kernels are those that ship here, not the published ones" if bundle.shipped else found.why_not
    if why_not:
        return _untried(claim, bundle, found, why_not)
    if rounds:
        return _running_best(claim, bundle, bundle.rounds[claim.number or 0])
    return _profiled(claim, bundle, bundle.profiles[claim.number or 0])


def _running_best(claim: Claim, bundle: Measured, found: Extra[Round]) -> Trial:
    """Judge the fastest kernel by the end of a round: its time, or on another machine its speedup over the input's."""
    until = int(claim.part.removeprefix("round "))
    away = claim.elsewhere(_values(bundle, found.fingerprint))
    band = _band(claim)
    if away:
        assert claim.base is not None
        ratio = claim.base / claim.value
        band = Band(ratio, "x", ratio * (1 - claim.ratio_tolerance), ratio * (1 + claim.ratio_tolerance))
    entries = [each for each in found.entries if 0 < each.round <= until]
    given = next((each for each in found.entries if each.round == 0), None)
    theirs = {each.round: each.published_protocol_ms for each in entries if each.published_protocol_ms}
    base = given.published_protocol_ms if given else None
    if not theirs or (away and not base):
        published = _side(NOT_COMPARABLE, "not measured by the published protocol: --parity was not given, or no time")
    else:
        best = min(theirs, key=lambda number: theirs[number])
        value = base / theirs[best] if away and base else theirs[best]
        published = _compared(_exactly(value), band, f"round {best}: ")
    own = {each.round: each for each in entries if each.verdict == "correct" and each.time_ms}
    ms = {number: each.time_ms.median for number, each in own.items() if each.time_ms}
    wrong = [each for each in entries if each.verdict in WRONG]
    difference = f"round {wrong[0].round} is {wrong[0].why}" if wrong else ""
    if given and given.verdict in WRONG:
        difference = f"the input kernel is {given.why}"
    if not own:
        judged = _side(DIFFERS, f"no kernel is correct by round {until}: {difference or 'none was judged'}") if wrong \
            else _side(NOT_COMPARABLE, "not measured: no round has a time")  # fmt: skip
    elif away and given and given.verdict in WRONG:
        reason = f"on another machine a ratio to the input kernel is compared, and that kernel is {given.why}"
        judged = _side(NOT_COMPARABLE, reason)
    else:
        best = min(ms, key=lambda number: ms[number])
        value_of = interval(own[best].over_input) if away else interval(own[best].time_ms)
        judged = _side(NOT_COMPARABLE, "not measured: no ratio to the input kernel") if value_of is None \
            else _compared(value_of, band, f"round {best}: ")  # fmt: skip
    notes = [f"kernels of the folder {bundle.parameters.get('artifacts')}, taken for the published ones"]
    if away:
        notes.append(f"compared as a ratio to the input kernel, across machines: {'; '.join(away)}")
    return _trial_of(claim, bundle, found, band, published, judged, difference, notes)


def _profiled(claim: Claim, bundle: Measured, found: Extra[Profile]) -> Trial:
    """Judge a profiler's figure: in the dtype that fits as published, in the timed dtype as judged."""
    kernel = PROFILED[claim.part]
    band = _band(claim)
    of: dict[str, Profile] = {each.dtype: each for each in found.entries if each.kernel == kernel}
    totals = {dtype: told.totals for dtype in DTYPES if (told := of.get(dtype)) and told.state == "profiled"}
    values = {
        dtype: figure * claim.scale for dtype, told in totals.items() if (figure := told[claim.metric]) is not None
    }
    failed = [f"{told.state.replace('_', ' ')}: {told.why}" for told in of.values() if told.state != "profiled"]
    why = failed[0] if failed else "the profiler gave no value"
    published = judged = _side(NOT_COMPARABLE, f"not profiled: {why}")
    if values:
        fits = [d for d, value in values.items() if _compared(_exactly(value), band).verdict == REPRODUCED]
        nearest = fits[0] if fits else min(values, key=lambda dtype: abs(values[dtype] - band.value))
        others = ", ".join(f"{dtype} {value:.4g}" for dtype, value in values.items() if dtype != nearest)
        published = _compared(_exactly(values[nearest]), band, f"{nearest}: ")
        published = published.model_copy(update={"reason": published.reason + (f"; {others}" if others else "")})
    if TIMED in values:
        judged = _compared(_exactly(values[TIMED]), band, f"{TIMED}: ")
    record = next((r for r in bundle.records.values() if r.number == claim.number and r.variant == kernel), None)
    difference = ""
    if record is not None and record.verdict in WRONG:
        difference = f"the kernel is {record.why}"
        judged = _side(DIFFERS, f"{difference}: a wrong kernel does other work")
    elif published.verdict == REPRODUCED and judged.verdict == DIFFERS:
        difference = f"the published profile fits {nearest}, and the published times are of {TIMED}"
    away = claim.elsewhere(_values(bundle, found.fingerprint))
    if claim.kind == "absolute" and away:
        published, judged = (_other_machine(side, away) for side in (published, judged))
    notes = ["clocks as the machine runs them; the published profile was taken at the profiler's locked clock"]
    if away and claim.kind == "ratio":
        notes.append(f"a share, compared across machines: {'; '.join(away)}")
    return _trial_of(claim, bundle, found, band, published, judged, difference, notes)


# -- the agent study


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
    arms = ("with_kb", "baseline") if claim.measure == "gain" else (claim.variant,)
    by_arm = {arm: _by_problem(bundle, arm) for arm in arms}
    if not all(by_arm.values()):
        return None
    records = [r for found in by_arm.values() for rows in found.values() for r in rows]
    why = next((r.why_not for r in records if r.why_not), "")
    if why:
        return _untried(claim, bundle, records[0], why)
    means = []
    for arm, found in by_arm.items():
        timed = [_together([r.speedups["eager"] for r in rows]) for rows in found.values()
                 if all(r.verdict == "correct" and "eager" in r.speedups for r in rows)]  # fmt: skip
        if len(timed) < AGENT_PROBLEMS:
            reason = f"{arm}: {len(timed)} of {AGENT_PROBLEMS} problems have a correct solution in every repeat"
            return _untried(claim, bundle, records[0], reason)
        mean = intervals.geometric_mean([{"ratio": t.value, "ci95": [t.low, t.high]} for t in timed])
        means.append(Interval(mean["ratio"], *mean["ci95"]))
    notes = _notes(claim, bundle, records)
    away = claim.elsewhere(_values(bundle, records[0].fingerprint))
    if away:
        notes.append(f"a ratio, compared across machines: {'; '.join(away)}")
    measured = means[0]
    if claim.measure == "gain":
        gain = means[0].over(means[1])
        measured = Interval(*(100 * (edge - 1) for edge in (gain.value, gain.low, gain.high)))
    band = _band(claim)
    published = _side(NOT_COMPARABLE, NO_PROTOCOL)
    return _trial_of(claim, bundle, records[0], band, published, _compared(measured, band), "", notes)


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
    return notes


def _values(bundle: Measured, fingerprint: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = bundle.fingerprints.get(fingerprint, {}).get("values", {})
    return found


def _untried(claim: Claim, bundle: Measured, found: Record | Extra[Any] | None, reason: str) -> Trial:
    side = _side(NOT_COMPARABLE, reason)
    found = found or next(iter(bundle.records.values()), None)
    return _trial_of(claim, bundle, found, _band(claim), side, side)


def _trial_of(
    claim: Claim, bundle: Measured, found: Record | Extra[Any] | None, band: Band, published: ClaimVerdict,
    judged: ClaimVerdict, difference: str = "", notes: Iterable[str] = (),
) -> Trial:  # fmt: skip
    if found is None:
        unknown = Stack(label="stack not recorded", pinned=False)
        return Trial(bundle.name, unknown, "?", band, published, judged)
    machine = str(_values(bundle, found.fingerprint).get("gpu_name", {}).get("value") or "no GPU")
    return Trial(bundle.name, stack(bundle, found), machine, band, published, judged, difference, list(notes))
