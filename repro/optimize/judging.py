"""The judge as the loop uses it: a session that checks and times candidates, and comparisons of what it returns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

from repro.judge.correctness.distance import BIAS
from repro.judge.timing import speedups
from repro.studies.evaluation import Submission
from repro.system import jsonio

# Programs that have workers at once, where the judge does not say how many have room.
BATCH = 8
REASONS = 3
# Hexadecimal digits of a digest of outputs.
DIGITS = 16
# A ratio needs this many samples of both.
LEAST_SAMPLES = 3


class Judge(Protocol):
    """A warm judge of one problem.

    opened: the machine's fingerprint, the GPU's ceilings (None on the CPU), and how many programs have room at once.
    spent_s: seconds by part of the latest request.
    """

    @property
    def opened(self) -> dict[str, Any]: ...

    @property
    def spent_s(self) -> dict[str, float]: ...

    def check(self, submissions: Sequence[Submission], tier: str, keep: Sequence[str]) -> list[dict[str, Any]]:
        """Return one verdict each, as in the results of `repro evaluate`.

        tier: full or screen, see JudgeSession. keep: names of solutions whose full verdict stands.
        """

    def time(self, submissions: Sequence[Submission], tier: str) -> dict[str, Any]:
        """Return times beside each other and the baselines. tier: screen or full."""


def check(judge: Judge, submissions: list[Submission], tier: str, keep: Sequence[str] = ()) -> dict[str, Any]:
    """Return name -> what the loop keeps of each verdict.

    outputs: a digest of the distances of every output from the reference, in every trial, and of a screening's bits of
    the whole output. Two solutions of one request get the same inputs, so equal outputs have equal digests.
    """
    found = {}
    for entry in judge.check(submissions, tier, keep):
        found[entry["solution"]] = {
            "verdict": entry["verdict"],
            "reasons": [f"{r.get('code', '')}: {r.get('detail', '')}" for r in entry["reasons"][:REASONS]],
            "precision_class": entry.get("precision_class"),
            "rel_l2": entry.get("rel_l2"),
            "labels": entry.get("labels", []),
            "outputs": outputs(entry.get("distances", {}), entry.get("bits")),
        }
    return found


def time(judge: Judge, submissions: list[Submission], tier: str) -> dict[str, Any]:
    """Return what the loop keeps of a contest: samples, medians and verdicts by name, the baselines' medians."""
    told = judge.time(submissions, tier)
    samples = told.get("samples_ms", {})
    found: dict[str, Any] = {}
    for entry in told["results"]:
        name = entry["solution"]
        found[name] = {
            "verdict": entry["verdict"],
            "reasons": [f"{r.get('code', '')}: {r.get('detail', '')}" for r in entry["reasons"][:REASONS]],
            "time_ms": {"median": entry["time_ms"]["median"]} if entry.get("time_ms") else None,
            "floor_ms": entry.get("floor_ms"),
            "measurement": bool(entry.get("measurement")),
            "samples_ms": samples.get(name, {}).get("gated", {}).get("device_ms", []),
        }
    baselines = {name: each["time_ms"]["median"] for name, each in told.get("baselines", {}).items()}
    timing = told.get("timing", {})
    again = {"timed_again": timing["timed_again"]} if timing.get("timed_again") else {}
    return {"programs": found, "baselines_ms": baselines, "clock": timing.get("clock", "")} | again


def ratio(contest: dict[str, Any], base: str, ours: str) -> dict[str, Any] | None:
    """Return the speedup of one program over another in a contest, with its interval; None without samples of both."""
    samples = [contest["programs"].get(name, {}).get("samples_ms", []) for name in (base, ours)]
    if any(len(each) < LEAST_SAMPLES for each in samples):
        return None
    found = speedups.speedup(*samples)
    return {"ratio": found.ratio, "ci95": found.ci95, "n": min(map(len, samples))}


def equal_outputs(told: dict[str, Any], parent: str, candidate: str) -> bool:
    """Return whether a candidate's outputs had the bits and the distances of its parent's in one check."""
    mine, theirs = (told.get(name, {}).get("outputs", "") for name in (candidate, parent))
    return bool(mine) and mine == theirs


def outputs(distances: dict[str, list[dict[str, float]]], bits: list[int] | None) -> str:
    """Return a digest of outputs, "" without any. The distance that looks at other elements each time is left out."""
    if not distances:
        return ""
    fixed = {
        kind: [{n: v for n, v in each.items() if n != BIAS} for each in every] for kind, every in distances.items()
    }
    return hashlib.sha256(jsonio.dumps([fixed, bits]).encode()).hexdigest()[:DIGITS]
