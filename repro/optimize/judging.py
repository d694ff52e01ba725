"""The judge as the loop uses it: a session that checks and times candidates, and comparisons of what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from repro.judge.correctness.distance import BIAS
from repro.judge.timing import speedups
from repro.records.result import JudgeResult
from repro.records.search import Contest, Gain, Judged, Median, Timed
from repro.records.session import Checked, CheckTier, Opened
from repro.records.verdict import Distances, Reason
from repro.studies.evaluation import Submission
from repro.system import jsonio
from repro.system.digest import sha256

REASONS = 3
# Hexadecimal digits of a digest of outputs.
DIGITS = 16
# A ratio needs this many samples of both.
LEAST_SAMPLES = 3
T = TypeVar("T")


class Judge(Protocol):
    """A warm judge of one problem. spent_s: seconds by part of the latest request."""

    @property
    def opened(self) -> Opened: ...

    @property
    def spent_s(self) -> dict[str, float]: ...

    def check(self, submissions: Sequence[Submission], tier: CheckTier, keep: Sequence[str]) -> list[Checked]:
        """Return one verdict each. tier: see JudgeSession. keep: names of solutions whose full verdict stands."""

    def time(self, submissions: Sequence[Submission], tier: CheckTier) -> JudgeResult:
        """Return times beside each other and the baselines."""

    def all(self, works: Sequence[Callable[[Judge], T]]) -> Iterator[T]:
        """Do works side by side, each with a judge on one GPU; yield what they return, in their order."""


def check(judge: Judge, submissions: list[Submission], tier: CheckTier, keep: Sequence[str] = ()) -> dict[str, Judged]:
    """Return name -> what the loop keeps of each verdict.

    outputs: a digest of the distances of every output from the reference, in every trial, and of a screening's bits of
    the whole output. Two solutions of one request get the same inputs, so equal outputs have equal digests.
    """
    return {
        entry.solution: Judged(
            verdict=entry.verdict, reasons=_told(entry.reasons), precision_class=entry.precision_class,
            rel_l2=entry.rel_l2, labels=entry.labels, outputs=outputs(entry.distances, entry.bits),
        )
        for entry in judge.check(submissions, tier, keep)
    }  # fmt: skip


def _told(reasons: list[Reason]) -> list[str]:
    return [f"{reason.code}: {reason.detail}" for reason in reasons[:REASONS]]


def time(judge: Judge, submissions: list[Submission], tier: CheckTier) -> Contest:
    """Return what the loop keeps of a contest: samples, medians and verdicts by name, the baselines' medians."""
    told = judge.time(submissions, tier)
    programs = {
        entry.solution: Timed(
            verdict=entry.verdict, reasons=_told(entry.reasons),
            time_ms=Median(median=entry.time_ms.median) if entry.time_ms else None, floor_ms=entry.floor_ms,
            measurement=entry.measurement,
            samples_ms=told.samples_ms[entry.solution].gated.device_ms if entry.solution in told.samples_ms else [],
        )
        for entry in told.results
    }  # fmt: skip
    baselines = {name: each.time_ms.median for name, each in told.baselines.items()}
    found = Contest(programs=programs, baselines_ms=baselines, clock=told.timing.clock)
    again = told.timing.timed_again
    return found.model_copy(update={"timed_again": again}) if again else found


def ratio(contest: Contest, base: str, ours: str) -> Gain | None:
    """Return the speedup of one program over another in a contest, with its interval; None without samples of both."""
    samples = [contest.programs[name].samples_ms for name in (base, ours) if name in contest.programs]
    if len(samples) < 2 or any(len(each) < LEAST_SAMPLES for each in samples):
        return None
    found = speedups.speedup(*samples)
    return Gain(ratio=found.ratio, ci95=found.ci95, n=min(map(len, samples)))


def equal_outputs(told: dict[str, Judged], parent: str, candidate: str) -> bool:
    """Return whether a candidate's outputs had the bits and the distances of its parent's in one check."""
    mine, theirs = (told[name].outputs if name in told else "" for name in (candidate, parent))
    return bool(mine) and mine == theirs


def outputs(distances: dict[str, list[Distances]], bits: list[int] | None) -> str:
    """Return a digest of outputs, "" without any. The distance that looks at other elements each time is left out."""
    if not distances:
        return ""
    fixed = {
        kind: [each.model_dump(exclude_unset=True, exclude={BIAS}) for each in every]
        for kind, every in distances.items()
    }
    return sha256(jsonio.dumps([fixed, bits]))[:DIGITS]
