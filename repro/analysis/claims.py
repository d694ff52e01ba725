"""Judges published claims by bundles. A claim has two verdicts for each stack, each with its reason in words.

*Reproduced as published*: by the published way of measuring, which verifies nothing (`--parity`, or the profile in the
dtype that fits). *Holds as judged*: the kernel is correct, and the judge's own figure lies within the tolerance.

`_READERS` names for each measure of claims.toml how a bundle shows its two figures. `_trial` compares them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from repro.analysis.records import Implementation, Interval, Source, grouped, interval, together
from repro.artifacts import layout
from repro.judge.timing import intervals
from repro.judge.timing.speedups import SAME
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
    Measure,
)
from repro.records.fingerprint import Stack
from repro.records.profile import Profile
from repro.records.row import Row
from repro.records.verdict import Speedup
from repro.studies import artifact_study

VERDICTS: tuple[ClaimWord, ...] = get_args(ClaimWord)
TRIED = VERDICTS[:3]
SIDES = ("as_published", "as_judged")
_LIES = {"REPRODUCED": "lies within", "DIFFERS": "lies outside", "AMBIGUOUS": "straddles an edge of"}
# Agents without a model: hand-written solutions, a control, or a recording.
_NO_AGENT = ("oracle", "nop", "replay")
_AGENT_PROBLEMS = 10
# Verdicts of a wrong kernel, which has no speedup. A kernel that did not run here was not tried.
_WRONG = ("incorrect", "rejected")
# The profiled kernel by the part of a claim. Times are of the dtype _TIMED; most published profiles ran in float32.
_PROFILED = {"input": "input_kernel", "optimised": "optimized"}
_TIMED, _DTYPES = "bfloat16", ("bfloat16", "float32")
# Two ways of timing that agree within this share tell the same; beyond it the difference is explained.
_ALIKE = 0.05
_TORCH = {"eager": "eager torch", "compile": "torch.compile", "input_kernel": "the input kernel",
          "optimized": "the optimised kernel"}  # fmt: skip
_SHIPPED = "its kernels are those that ship here, not the published ones"


def _figure(measured: Interval, claim: Claim, before: str = "", after: str = "") -> ClaimVerdict:
    """Return the verdict on a figure by its interval. before, after: put around the reason."""
    verdict = word(measured.low, measured.high, claim)
    what = f"[{measured.low:.4g}, {measured.high:.4g}] {claim.unit} {_LIES[verdict]}"
    reason = f"{before}{what} [{claim.low:.4g}, {claim.high:.4g}] {claim.unit}{after}"
    return ClaimVerdict(verdict=verdict, reason=reason, measured=measured.value, ci95=measured.ci95)


def _without(why: str, verdict: ClaimWord = "NOT-COMPARABLE") -> ClaimVerdict:
    """Return a verdict without a figure."""
    return ClaimVerdict(verdict=verdict, reason=why, measured=None, ci95=None)


_NO_PROTOCOL = _without("the study published no way of measuring to repeat")


def word(low: float, high: float, claim: Claim) -> ClaimWord:
    """Return REPRODUCED, DIFFERS or AMBIGUOUS: a 95 % interval inside the claim's band, outside, or across an edge.

    low, high: the interval in the claim's unit. Edges belong to the band.
    """
    if claim.low <= low and high <= claim.high:
        return "REPRODUCED"
    return "DIFFERS" if high < claim.low or low > claim.high else "AMBIGUOUS"


def judge(claims: list[Claim], sources: list[Source]) -> JudgedClaims:
    """Return every claim with its outcomes, for `--json` and tables."""
    entries = [JudgedClaim(**claim.to_json(), outcomes=_outcomes(claim, sources)) for claim in claims]
    counts = {side: Counter(o.side(side).verdict for entry in entries for o in entry.outcomes) for side in SIDES}
    return JudgedClaims(
        schema_version=2,
        bundles=[ClaimSource(bundle=source.name, verb=source.verb, why_not=source.why_not) for source in sources],
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
        of, left = sum(counts[side][verdict] for verdict in TRIED), counts[side]["NOT-COMPARABLE"]
        rest = f" ({left} {wording.CLAIM[side]['NOT-COMPARABLE']})" if left else ""
        words += [f"{counts[side]['REPRODUCED']} of {of} {what}{rest}"] if of else []
    blocked = counts["as_judged"]["BLOCKED"]
    words += [f"{blocked} {wording.CLAIM['as_judged']['BLOCKED']}"] if blocked else []
    return ", ".join(words) or "none"


def why(outcome: ClaimOutcome) -> str:
    """Return why an outcome's verdicts are what they are: where they differ that difference first."""
    published, judged = outcome.as_published.reason, outcome.as_judged.reason
    reasons = [judged] if published == judged else [f"published: {published}", f"judged: {judged}"]
    return "; ".join(filter(None, (outcome.difference, *reasons)))


def tried(outcome: ClaimOutcome) -> bool:
    """Return whether an outcome has a verdict of either kind that compares."""
    return any(outcome.side(side).verdict in TRIED for side in SIDES)


def reproduced(found: JudgedClaims) -> bool:
    """Return whether at least one claim was tried as judged, and no tried claim failed either way."""
    counts = found.counts
    return bool(counts["as_judged"]["REPRODUCED"] and not any(
        counts[side][verdict] for side in SIDES for verdict in ("DIFFERS", "AMBIGUOUS")))  # fmt: skip


# -- from bundles to outcomes


def _outcomes(claim: Claim, sources: list[Source]) -> list[ClaimOutcome]:
    """Return one outcome for each stack and kind of GPU, or one with the reason why there is none."""
    read = (_READERS[claim.measure](claim, source) for source in sources if _concerns(claim, source))
    groups = grouped(((one.stack and one.stack.label, one.machine), one) for one in read if one is not None)
    if groups:
        return [_merged(several) for several in groups.values()]
    none = _without(f"needs {'; '.join(claim.needs)}", "BLOCKED") if claim.needs else _without("no bundle measured it")
    return [_bare(claim, none, none)]


def _bare(claim: Claim, published: ClaimVerdict, judged: ClaimVerdict) -> ClaimOutcome:
    """Return an outcome of no machine."""
    return ClaimOutcome(
        stack=None, machine=None, published=claim.value, unit=claim.unit, low=claim.low, high=claim.high,
        as_published=published, as_judged=judged, difference="", over_best=None, notes=[], trials=[],
    )  # fmt: skip


def _concerns(claim: Claim, source: Source) -> bool:
    """Return whether a bundle is of the claim's study. Solutions that no model wrote are no agent's."""
    if claim.study != "agent":
        return source.verb == "benchmark"
    scripted = source.parameters.get("study", {}).get("scripted")
    return source.verb == "run" and source.parameters.get("agent") not in _NO_AGENT and not scripted


def _outcome(
    claim: Claim, source: Source, row: Row | None, published: ClaimVerdict, judged: ClaimVerdict,
    difference: str = "", notes: list[str] | None = None,
) -> ClaimOutcome:  # fmt: skip
    """Return the two verdicts of one bundle on a claim.

    row: of its machine. difference: why the figures differ, in words, or "". notes: what limits the comparison; None
    where nothing was tried.
    """
    values, stack = source.values(row), source.stack(row)
    away, gpu = claim.elsewhere(values), values.get("gpu_name", {}).get("value")
    if claim.kind == "absolute" and away:
        published, judged = (_other_machine(side, away) for side in (published, judged))
    if notes is not None:
        difference = difference or _elsewhere(claim, judged, stack, gpu, away)
        across = f"{_ACROSS.get(claim.measure, 'a ratio, compared across machines')}: {'; '.join(away)}"
        notes = notes + [across] * bool(away and claim.kind == "ratio")
    trial = ClaimTrial(bundle=source.name, as_published=published, as_judged=judged)
    return _bare(claim, published, judged).model_copy(update={
        "stack": stack, "machine": str(gpu or ("no GPU" if values else "?")), "difference": difference,
        "notes": notes or [], "trials": [trial],
    })  # fmt: skip


_ACROSS: dict[str, str] = {
    "running-best": "compared as a ratio to the input kernel, across machines",
    "profile": "a share, compared across machines",
}


def _other_machine(side: ClaimVerdict, away: list[str]) -> ClaimVerdict:
    """Return a figure that another machine's does not compare with; a wrong kernel stays wrong."""
    if side.verdict == "NOT-COMPARABLE" or side.measured is None:
        return side
    reason = f"an absolute figure of another machine: {'; '.join(away)}"
    return side.model_copy(update={"verdict": "NOT-COMPARABLE", "reason": reason})


def _elsewhere(claim: Claim, judged: ClaimVerdict, here: Stack, gpu: Any, away: list[str]) -> str:
    """Return what else differs from the published run where both ways agree with each other, and not with it."""
    if claim.measure not in ("speedup", "time") or judged.verdict not in ("DIFFERS", "AMBIGUOUS"):
        return ""
    rate = claim.hard.get("bandwidth_signature_gb_s")
    theirs = str(claim.hard["gpu_name"]) + (f" of {rate} GB/s" if rate else "")
    other = [f"the machine ({gpu}; published: {theirs})"] * bool(away)
    other += [f"the stack ({here.label})"] * (not here.pinned)
    return f"both ways agree here; what differs is {' and '.join(other)}" if other else ""


def _merged(several: list[ClaimOutcome]) -> ClaimOutcome:
    """Return the verdicts of one stack. Bundles that tried the claim decide; if they disagree it is AMBIGUOUS."""
    last = max(reversed(several), key=lambda one: (
        *(one.side(side).verdict in TRIED for side in reversed(SIDES)),
        bool(one.as_judged.measured or one.as_published.measured),
    ))  # fmt: skip
    trials = [trial for one in several for trial in one.trials]
    decided = {name: _decided([(t.bundle, getattr(t, name)) for t in trials]) for name in SIDES}
    return last.model_copy(update={**decided, "trials": trials})


def _decided(of: list[tuple[str, ClaimVerdict]]) -> ClaimVerdict:
    """Return the verdict of several bundles of one stack: (name, verdict)."""
    decide = [(name, each) for name, each in of if each.verdict in TRIED]
    decide = decide or [(name, each) for name, each in of if each.measured] or of[-1:]
    last = decide[-1][1]
    if len({each.verdict for _, each in decide}) == 1:
        return last
    verdicts = ", ".join(f"{each.verdict} in {name}" for name, each in decide)
    return last.model_copy(update={"verdict": "AMBIGUOUS", "reason": f"bundles disagree: {verdicts}"})


def _once(value: float) -> Interval:
    """Return a figure that was measured once: what differs by less is the same."""
    return Interval(value, value * (1 - SAME), value * (1 + SAME))


def _untried(claim: Claim, source: Source, why: str, row: Row | None = None) -> ClaimOutcome:
    first = next(iter(source.implementations.values()), None)
    return _outcome(claim, source, row or (first.row if first else None), _without(why), _without(why))


# -- times and speedups of kernels


def _kernel(claim: Claim, source: Source) -> ClaimOutcome | None:
    """Read a time or speedup; None where the bundle has nothing to do with it."""
    mine = [each for each in source.implementations.values() if _meant(claim, each)]
    if not mine:
        row = str(claim.number) if claim.number is not None else f"{claim.problem}/{claim.variant}/"
        why = next(
            (why for key, why in source.unmeasured.items() if key == row or "/" in row and key.startswith(row)), ""
        )
        return _untried(claim, source, f"not measured: {why}") if why else None
    refused = _refused(claim, source, mine)
    if refused:
        return _untried(claim, source, refused, mine[0].row)
    judged = _by_judge(claim, mine)
    published = _by_protocol(claim, mine[0])
    best = mine[0].speedups.get("best_same_class") if claim.measure == "speedup" else None
    over_best = Speedup(ratio=best.value, ci95=best.ci95, baseline=mine[0].best) if best else None
    difference = _why_apart(claim, mine[0], published, judged)
    found = _outcome(claim, source, mine[0].row, published, judged, difference, _notes(claim, source, mine))
    return found.model_copy(update={"over_best": over_best})


def _meant(claim: Claim, each: Implementation) -> bool:
    """Return whether an implementation is of the claim."""
    if claim.study == "artifact":
        return each.row.number == claim.number and each.name == claim.variant
    mine = each.row.arm == claim.variant and each.problem == claim.key
    return mine and not each.row.control and each.verdict is not None


def _refused(claim: Claim, source: Source, mine: list[Implementation]) -> str:
    """Return why a bundle did not measure a claim as the claim says, or ""."""
    if claim.published_kernels and source.shipped:
        return _SHIPPED
    other = next((each for each in mine if each.problem != claim.key), None)
    if other is not None:
        return f"its problem is {other.problem}, of other sizes or another dtype than {claim.key}"
    return next((each.why_not for each in mine if each.why_not), "")


def _by_protocol(claim: Claim, each: Implementation) -> ClaimVerdict:
    """Return a time or speedup by the published protocol, which has no interval."""
    if claim.study == "agent":
        return _NO_PROTOCOL
    parity = each.result.parity
    if not parity:
        return _without("not measured by the published protocol: --parity was not given")
    times = [(name, each.result.parity_ms.get(name)) for name in (claim.variant, claim.over) if name]
    for name, ms in times:
        if not ms:
            why = parity.reasons.get(name, f"no time of {_TORCH.get(name, name)}")
            return _without(f"not measured by the published protocol: {why}")
    own, *base = (ms for _, ms in times if ms)
    return _figure(_once(base[0] / own if base and claim.measure == "speedup" else own), claim)


def _by_judge(claim: Claim, mine: list[Implementation]) -> ClaimVerdict:
    """Return a time or speedup by the judge: nothing holds of a wrong kernel."""
    wrong = next((each for each in mine if each.outcome in _WRONG), None)
    if wrong is not None:
        return _without(f"the kernel is {wrong.why}: a wrong kernel has no speed", "DIFFERS")
    measured = []
    for each in mine:
        figure = each.time_ms if claim.measure == "time" else each.speedups.get(claim.over)
        if figure is None:
            lacking = f"no {claim.measure} of {claim.variant} {claim.over}".rstrip()
            return _without(f"not measured: {each.why or lacking}")
        measured.append(figure)
    found = _figure(together(measured), claim)
    if claim.measure == "speedup" and any(each.word(claim.over) == "UNCONFIRMED" for each in mine):
        why = "the judge's own clock does not confirm a speedup over 1"
        return found.model_copy(update={"verdict": "AMBIGUOUS", "reason": why})
    return found


def _why_apart(claim: Claim, each: Implementation, published: ClaimVerdict, judged: ClaimVerdict) -> str:
    """Return why the two ways of measuring differ, or "": the variant whose time they disagree most about."""
    if each.outcome in _WRONG:
        return f"the kernel is {each.why}"
    if published.measured is None or judged.measured is None:
        return ""
    ours = each.result.medians_ms
    shares = {name: theirs / ours[name] for name in (claim.variant, claim.over)
              if (theirs := each.result.parity_ms.get(name)) and ours.get(name)}  # fmt: skip
    if abs(math.log(published.measured / judged.measured)) <= _ALIKE or not shares:
        return ""
    name = max(shares, key=lambda each: abs(math.log(shares[each])))
    on = each.result.parity is not None and each.result.parity.grad and name in ("eager", "compile")
    grads = ", which leaves gradients on" if on else ""
    times = f"{shares[name]:.2f} times as long" if shares[name] > 1 else f"{100 * shares[name]:.0f} % of the time"
    return f"by the published protocol{grads}, {_TORCH.get(name, name)} takes {times}"


def _notes(claim: Claim, source: Source, mine: list[Implementation]) -> list[str]:
    once = len({each.key for each in mine}) == len({(each.row.arm, each.problem) for each in mine})
    notes = {
        wording.FROM_FOLDER: bool(source.parameters.get("solutions")),
        _folder(source): claim.published_kernels,
        "not converged when the time budget ended": not all(each.converged for each in mine),
        "one run for each problem: the interval does not cover the scatter between runs":
            claim.study == "agent" and once,
    }  # fmt: skip
    return [note for note, holds in notes.items() if holds]


def _folder(source: Source) -> str:
    return f"kernels of the folder {source.parameters.get('artifacts')}, taken for the published ones"


# -- what is measured beside the kernels: rounds and profiles


def _beside(
    claim: Claim, source: Source, rows: Mapping[int, Row], part: str
) -> tuple[Row | None, ClaimOutcome | None]:  # fmt: skip
    """Return the row of an artifact's rounds or profiles, or what is said without one. part: end of the row's id."""
    row = rows.get(claim.number or 0)
    if row is None:
        lost = next((why for key, why in source.unmeasured.items()
                     if key.endswith(part) and layout.number(key) == claim.number), "")  # fmt: skip
        if not lost and not any(each.row.number == claim.number for each in source.implementations.values()):
            return None, None
        return None, _untried(claim, source, f"not measured: {lost or f'--{part[1:]} was not given'}")
    why_not = source.why_not or (row.judged.no_measurement if row.judged else "")
    refused = _SHIPPED if source.shipped else why_not
    return row, _untried(claim, source, refused, row) if refused else None


def _running_best(claim: Claim, source: Source) -> ClaimOutcome | None:
    """Read the fastest kernel by the end of a round: its time, or on another machine its speedup over the input's."""
    row, refused = _beside(claim, source, source.rounds, artifact_study.ROUNDS)
    if row is None or refused:
        return refused
    away = bool(claim.elsewhere(source.values(row)))
    every = artifact_study.rounds(row)
    until = int(claim.part.removeprefix("round "))
    given = next((each for each in every if each.round == 0), None)
    mine = [each for each in every if 0 < each.round <= until]
    wrong = f"the input kernel is {given.why}" if given and given.verdict in _WRONG else ""
    difference = wrong or next(_wrong(mine), "")
    if away:
        assert claim.base is not None
        ratio = claim.base / claim.value
        low, high = ratio * (1 - claim.ratio_tolerance), ratio * (1 + claim.ratio_tolerance)
        claim = claim.model_copy(update={"kind": "ratio", "unit": "x", "value": ratio, "low": low, "high": high})
    published = _best_by_protocol(claim, mine, given.published_protocol_ms if given else None, away=away)
    judged = _best_by_judge(claim, mine, until, wrong, away=away)
    return _outcome(claim, source, row, published, judged, difference, [_folder(source)])


def _wrong(rounds: list[Round]) -> Iterator[str]:
    """Yield what is wrong with each round whose kernel is."""
    return (f"round {each.round} is {each.why}" for each in rounds if each.verdict in _WRONG)


def _best_by_protocol(claim: Claim, rounds: list[Round], base: float | None, *, away: bool) -> ClaimVerdict:
    """Return the fastest round by the published protocol. base: the input kernel's time, ms."""
    times = {each.round: ms for each in rounds if (ms := each.published_protocol_ms)}
    if not times or (away and not base):
        return _without("not measured by the published protocol: --parity was not given, or no time")
    best = min(times, key=lambda number: times[number])
    return _figure(_once(base / times[best] if away and base else times[best]), claim, f"round {best}: ")


def _best_by_judge(claim: Claim, rounds: list[Round], until: int, wrong: str, *, away: bool) -> ClaimVerdict:
    """Return the fastest correct round by the judge. wrong: why the input kernel is, or ""."""
    own = [(time.median, each) for each in rounds if each.verdict == "correct" and (time := each.time_ms)]
    if not own:
        first = next(_wrong(rounds), "")
        if not first:
            return _without("not measured: no round has a time")
        return _without(f"no kernel is correct by round {until}: {wrong or first}", "DIFFERS")
    if away and wrong:
        what = wrong.replace("the input kernel is", "that kernel is", 1)
        return _without(f"on another machine a ratio to the input kernel is compared, and {what}")
    _, fastest = min(own, key=lambda timed: timed[0])
    measured = interval(fastest.over_input if away else fastest.time_ms)
    if measured is None:
        return _without("not measured: no ratio to the input kernel")
    return _figure(measured, claim, f"round {fastest.round}: ")


def _profile(claim: Claim, source: Source) -> ClaimOutcome | None:
    """Read a profiler's figure: in the dtype that fits as published, in the timed dtype as judged."""
    row, refused = _beside(claim, source, source.profiles, artifact_study.PROFILE)
    if row is None or refused:
        return refused
    kernel = _PROFILED[claim.part]
    profiles: dict[str, Profile] = {each.dtype: each for each in row.profiles if each.kernel == kernel}
    nearest, published, judged = _profiled(claim, profiles)
    kernels = (each for each in source.solutions if each.row.number == claim.number and each.name == kernel)
    wrong = next((each.why for each in kernels if each.outcome in _WRONG), "")
    difference = ""
    if wrong:
        difference = f"the kernel is {wrong}"
        judged = _without(f"{difference}: a wrong kernel does other work", "DIFFERS")
    elif (published.verdict, judged.verdict) == ("REPRODUCED", "DIFFERS"):
        difference = f"the published profile fits {nearest}, and the published times are of {_TIMED}"
    notes = ["clocks as the machine runs them; the published profile was taken at the profiler's locked clock"]
    return _outcome(claim, source, row, published, judged, difference, notes)


def _profiled(claim: Claim, profiles: Mapping[str, Profile]) -> tuple[str, ClaimVerdict, ClaimVerdict]:
    """Return the dtype that fits, its figure, and the figure in the timed dtype."""
    totals = {dtype: each.totals[claim.metric] for dtype, each in profiles.items() if each.state == "profiled"}
    values = {dtype: _once(total * claim.scale) for dtype in _DTYPES if (total := totals.get(dtype)) is not None}
    failed = [each.told for each in profiles.values() if each.state != "profiled"]
    neither = _without(f"not profiled: {failed[0] if failed else 'the profiler gave no value'}")
    if not values:
        return "", neither, neither
    nearest = min(values, key=lambda dtype: abs(values[dtype].value - claim.value))
    others = ", ".join(f"{dtype} {each.value:.4g}" for dtype, each in values.items() if dtype != nearest)
    published = _figure(values[nearest], claim, f"{nearest}: ", f"; {others}" if others else "")
    timed = _figure(values[_TIMED], claim, f"{_TIMED}: ") if _TIMED in values else neither
    return nearest, published, timed


# -- the agent study over all problems


def _over_problems(claim: Claim, source: Source) -> ClaimOutcome | None:
    """Read the geometric mean of an arm's speedups, or the gain of the arm with knowledge over the other, per cent."""
    gain = claim.measure == "gain"
    by_arm = {arm: _by_problem(source, arm) for arm in (("with_kb", "baseline") if gain else (claim.variant,))}
    if not all(by_arm.values()):
        return None
    every = [each for problems in by_arm.values() for repeats in problems.values() for each in repeats]
    first = every[0].row
    why = next((each.why_not for each in every if each.why_not), "")
    if why:
        return _untried(claim, source, why, first)
    means = []
    for arm, problems in by_arm.items():
        solved = [
            repeats
            for repeats in problems.values()
            if all(one.outcome == "correct" and "eager" in one.speedups for one in repeats)
        ]
        if len(solved) < _AGENT_PROBLEMS:
            have = f"{len(solved)} of {_AGENT_PROBLEMS} problems have a correct solution in every repeat"
            return _untried(claim, source, f"{arm}: {have}", first)
        means.append(_mean_of(solved))
    figure = means[0]
    if gain:
        ratio = figure.over(means[1])
        figure = Interval(*(100 * (edge - 1) for edge in (ratio.value, ratio.low, ratio.high)))
    return _outcome(claim, source, first, _NO_PROTOCOL, _figure(figure, claim), "", _notes(claim, source, every))


def _mean_of(solved: list[list[Implementation]]) -> Interval:
    """Return the geometric mean of problems' speedups over eager, the repeats of each together."""
    timed = [together([each.speedups["eager"] for each in repeats]) for repeats in solved]
    mean = intervals.geometric_mean([{"ratio": t.value, "ci95": t.ci95} for t in timed])
    return Interval(mean["ratio"], *mean["ci95"])


def _by_problem(source: Source, arm: str) -> dict[str, list[Implementation]]:
    mine = (each for each in source.solutions if each.row.arm == arm and not each.row.control)
    return grouped((each.problem, each) for each in mine)


# Measure of a claim -> how a bundle shows its two figures.
_READERS: dict[Measure, Callable[[Claim, Source], ClaimOutcome | None]] = {
    "speedup": _kernel,
    "time": _kernel,
    "running-best": _running_best,
    "profile": _profile,
    "mean": _over_problems,
    "gain": _over_problems,
}
