"""Published figures held against bundles: the file, the verdicts, and `repro compare --claims` as a user runs it."""

from __future__ import annotations

import math
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import Done, Tool, shipped_benchmark
from test_compare import H200, folder_of, on
from test_report import bundle_of, result
from test_terminal import line_with

from repro import config
from repro.analysis import claims
from repro.analysis import published as figures
from repro.artifacts.layout import Artifact
from repro.bundle import storage
from repro.bundle.write import Bundle
from repro.cli import main
from repro.fingerprint import classes
from repro.problems import catalogue
from repro.records.claim import Claim
from repro.studies import artifact_study
from repro.system.jsonio import Json

H100 = {"gpu_name": "NVIDIA H100", "bandwidth_signature_gb_s": 2446.848, "mig_mode": 0}
# The published times of 36, with which its published speedup follows.
THEIRS = {"eager": 12.879, "compile": 8.135, "input_kernel": 5.461, "optimized": 3.525}
BF16 = {"eager": "bf16", "compile": "bf16"}
SPEEDUP = "artifact-speedup/36_RMSNorm"
TIME = "artifact-optimized-time/36_RMSNorm"


def judged(tool: Tool, *args: object) -> tuple[Done, Json, dict[str, list[Json]]]:
    """Claims against bundles: what was printed, the JSON, and the outcomes by claim with the verdict as judged."""
    done = tool.within("compare", "--claims", "-v", *args, "--json", tool.folder / "out.json", COLUMNS="800")
    assert done.code in (0, 3), done.err
    found = tool.json()
    return done, found, {claim["id"]: [o | o["as_judged"] for o in claim["outcomes"]] for claim in found["claims"]}


def outcome(tool: Tool, claim: str, *args: object) -> Json:
    """The one outcome of a claim."""
    _, _, found = judged(tool, *args)
    (only,) = found[claim]
    return only


def theirs(folder: Path, times: Json = THEIRS, **options: Any) -> Path:
    """A bundle of 36 of a folder that is not the shipped one."""
    return folder_of(folder, {"36_RMSNorm": times}, **options)


# The file


def test_the_shipped_claims_are_whole():
    """Both studies with every kind of figure; each claim says what tests it or what is lacking, and its source."""
    found = figures.load()
    known = {p.key for suite in ("agent", "artifacts") for p in catalogue.suite(suite, size="full")}
    ids = {claim.id for claim in found}
    assert len(ids) == len(found) == 125
    assert sum(claim.study == "agent" for claim in found) == 23
    assert {SPEEDUP, TIME, "agent-mean-with-kb/all", "artifact-running-best/36_RMSNorm/round-3"} <= ids
    for claim in found:
        assert claim.low < claim.value < claim.high and claim.source and claim.machine and claim.stack, claim.id
        assert (claim.command or claim.needs) and claim.reason.strip() and claim.minutes > 0, claim.id
        assert list(claim.tolerance) in (["relative"], ["absolute"]) and min(claim.tolerance.values()) > 0, claim.id
        assert (claim.measure == "profile") == bool(claim.metric), claim.id
        assert (claim.base is not None) == (claim.ratio_tolerance > 0) == (claim.measure == "running-best"), claim.id
        assert bool(claim.variant) != (claim.measure in ("running-best", "profile")), claim.id
        assert all(classes.CLASS[field] == "H" for field in claim.hard), claim.id
        assert not re.search(r"(^|\s)/|\.\./|https?://", f"{claim.command} {claim.source}"), "of no machine"
        assert claim.problem == "all" or claim.key in known


def test_every_command_is_one_of_this_tool():
    """As a reader types it, with the published folder for DIR."""
    commands = {claim.command for claim in figures.load() if claim.command}
    assert commands
    for command in commands:
        words = shlex.split(command.replace("DIR", "theirs"))
        assert words[0] == "repro" and main.parser().parse_args(words[1:]).verb in ("benchmark", "evaluate", "run")


SMALL = """
schema_version = 1
[study.s]
source = "a paper"
machine = "a GPU"
stack = "torch"
hard = { gpu_name = "L4" }
[[family]]
id = "f"
study = "s"
what = "speedup of {problem}"
unit = "x"
kind = "ratio"
tolerance = { relative = 0.1 }
at_least = 1.0
reason = "because"
measure = "speedup"
variant = "optimized"
over = "eager"
command = "repro benchmark {number}"
minutes = 1
needs = []
values = { 36_RMSNorm = 2.0 }
"""


def small(tmp_path: Path, text: str = SMALL) -> list[Claim]:
    file = tmp_path / "claims.toml"
    file.write_text(text)
    return figures.load(file)


def test_a_claim_has_its_band_and_its_command(tmp_path):
    (claim,) = small(tmp_path)
    assert (claim.id, claim.key, claim.command) == ("f/36_RMSNorm", "L1_36@bf16", "repro benchmark 36")
    assert (claim.low, claim.high) == pytest.approx((1.8, 2.2))
    (claim,) = small(tmp_path, SMALL.replace("RMSNorm = 2.0", "RMSNorm = 1.05"))
    assert (claim.low, claim.high) == pytest.approx((1.0, 1.155)), "what is claimed to be faster is not slower"
    (claim,) = small(tmp_path, SMALL.replace("relative = 0.1", "absolute = 0.5"))
    assert (claim.low, claim.high) == (1.5, 2.5)


# Verdicts


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (2.0, 2.0, "REPRODUCED"),  # of no width
        (1.8, 2.2, "REPRODUCED"),  # an edge belongs to the band
        (1.8, 1.8, "REPRODUCED"),
        (1.79, 1.85, "AMBIGUOUS"),
        (2.19, 2.21, "AMBIGUOUS"),
        (1.0, 3.0, "AMBIGUOUS"),  # wider than the band
        (1.5, 1.79, "DIFFERS"),
        (2.21, 2.21, "DIFFERS"),
    ],
)
def test_words(tmp_path, low, high, verdict):
    (claim,) = small(tmp_path)
    exact = Claim(**{**claim.__dict__, "low": 1.8, "high": 2.2})
    assert claims.word(low, high, exact) == verdict


def test_a_speedup_compares_on_another_gpu_and_a_time_does_not(tool):
    done, found, outcomes = judged(tool, theirs(tool.folder / "a"))
    assert done.code == 0
    (ratio,) = outcomes[SPEEDUP]
    assert ratio["verdict"] == "REPRODUCED" and ratio["measured"] == pytest.approx(8.135 / 3.525)
    assert ratio["ci95"][0] < ratio["measured"] < ratio["ci95"][1] and ratio["stack"]["pinned"] is True
    assert any("compared across machines: gpu_name NVIDIA H200 (published: H100)" in note for note in ratio["notes"])
    assert any("kernels of the folder theirs" in note for note in ratio["notes"])
    for name in (TIME, "artifact-eager-time/36_RMSNorm"):
        (time,) = outcomes[name]
        assert time["verdict"] == "NOT-COMPARABLE" and "an absolute figure of another machine" in time["reason"]
        assert time["measured"] is not None, "told all the same"
    line_with(done.out, SPEEDUP, "2.31", "✓ holds")
    assert "that were tested: NVIDIA H200, pinned: torch 2.9.1+cu128, Triton 3.5.1" in done.out
    assert found["counts"]["as_judged"]["REPRODUCED"] == 1
    assert "claims: 1 of 1 hold as judged (" in done.out.splitlines()[-1]


def test_times_compare_on_the_published_kind_of_machine(tool):
    _, _, outcomes = judged(tool, theirs(tool.folder / "a", machine=H100))
    for name in (TIME, "artifact-eager-time/36_RMSNorm", "artifact-compile-time/36_RMSNorm", SPEEDUP):
        (only,) = outcomes[name]
        assert only["verdict"] == "REPRODUCED", only
        assert not any("across machines" in note for note in only["notes"])
    slow = theirs(tool.folder / "b", THEIRS | {"eager": 14.0}, machine=H100)
    assert outcome(tool, "artifact-eager-time/36_RMSNorm", slow)["verdict"] == "DIFFERS"


@pytest.mark.parametrize(
    "machine",
    [
        {"gpu_name": "NVIDIA H1000"},
        {"bandwidth_signature_gb_s": 3352.0},
        {"mig_mode": 1},
        {"bandwidth_signature_gb_s": None},  # not recorded: it may differ
    ],
)
def test_a_machine_that_is_not_the_published_one(tool, machine):
    found = outcome(tool, TIME, theirs(tool.folder / "a", machine=H100 | machine))
    assert found["verdict"] == "NOT-COMPARABLE" and next(iter(machine)) in found["reason"]


def test_the_shipped_kernels_are_never_taken_for_the_published_ones(tool):
    """Nor those of a bundle that does not say whose they are. What is torch's own does not ask."""
    for parameters in ({"artifacts": "artifacts", "shipped": True}, {"shipped": None}):
        path = theirs(tool.folder / str(parameters["shipped"]), parameters=parameters, machine=H100)
        if parameters["shipped"] is None:
            bundle = Bundle.open(path)
            del bundle.manifest["parameters"]["shipped"]
            bundle.finish("complete")
        _, _, outcomes = judged(tool, path)
        assert outcomes[SPEEDUP][0]["verdict"] == outcomes[TIME][0]["verdict"] == "NOT-COMPARABLE"
        assert "those that ship here" in outcomes[SPEEDUP][0]["reason"]
        assert outcomes["artifact-eager-time/36_RMSNorm"][0]["verdict"] == "REPRODUCED"


def test_a_benchmark_knows_whether_its_kernels_ship(tmp_path):
    shipped = config.ARTIFACTS_DIR / "36_RMSNorm"
    copied = tmp_path / "36_RMSNorm"
    shutil.copytree(shipped, copied)
    assert artifact_study.ships(Artifact(shipped)) and artifact_study.ships(Artifact(copied))
    for file in ("input_kernel.py", "optimized_kernel_beam_search.py"):
        (copied / file).write_text("def kernel_function(x, eps): return x\n")
    assert not artifact_study.ships(Artifact(copied)) and not artifact_study.ships(Artifact(tmp_path))


def test_every_stack_has_its_verdict(tool):
    """As on problem 77: what holds on the pinned stack need not on a newer one."""
    a = theirs(tool.folder / "a")
    newer = {"torch": "2.11.0+cu130", "triton": "3.6.0"}
    b = theirs(tool.folder / "b", THEIRS | {"compile": 5.0}, versions=newer)
    done, found, outcomes = judged(tool, a, b, "--strict")
    assert done.code == 3
    first, second = outcomes[SPEEDUP]
    assert (first["verdict"], first["stack"]["pinned"]) == ("REPRODUCED", True)
    assert (second["verdict"], second["stack"]["pinned"]) == ("DIFFERS", False)
    line_with(done.out, SPEEDUP, "2 (off-pin)", "1.41", "does not hold")
    assert "2 (off-pin) is NVIDIA H200, off-pin: torch 2.11.0+cu130, Triton 3.6.0" in done.out
    assert "lies outside [2.079, 2.541] x" in second["reason"]


def test_bundles_of_one_stack_that_disagree_leave_it_open(tool):
    a, b = theirs(tool.folder / "a"), theirs(tool.folder / "b", THEIRS | {"compile": 5.0})
    found = outcome(tool, SPEEDUP, a, b)
    assert found["verdict"] == "AMBIGUOUS" and "bundles disagree: REPRODUCED in" in found["reason"]
    assert len(found["trials"]) == 2
    cpu_like = theirs(tool.folder / "c", parameters={"size": "smoke"})
    assert outcome(tool, SPEEDUP, a, cpu_like)["verdict"] == "REPRODUCED", "what was not tried does not count"


def no_kernel(verdict: str, detail: str) -> Json:
    found = result("L1_36@bf16", {"eager": 12.879, "compile": 8.135}, bad={"optimized": detail},
                   baseline_classes=BF16)  # fmt: skip
    found["results"][0]["verdict"] = verdict
    found["results"][0]["reasons"][0]["code"] = "exception" if verdict == "error" else "rel_l2"
    return found


WRONG = no_kernel("incorrect", "1 over the limit 0.02")


def unconfirmed() -> Json:
    found = result("L1_36@bf16", THEIRS, baseline_classes=BF16)
    for entry in found["results"]:
        entry["speedup"]["compile"]["word"] = "UNCONFIRMED"
    return found


@pytest.mark.parametrize(
    ("times", "options", "verdict", "why"),
    [
        (THEIRS, {"device": "cpu"}, "NOT-COMPARABLE", "it ran on the CPU"),
        (THEIRS, {"parameters": {"size": "smoke"}}, "NOT-COMPARABLE", "size smoke"),
        ("signal SIGKILL", {}, "NOT-COMPARABLE", "not measured: failed: signal SIGKILL"),
        (no_kernel("error", "no such attribute"), {}, "NOT-COMPARABLE", "not measured: stopped with an error"),
        ({"eager": 12.879, "optimized": 3.525}, {}, "NOT-COMPARABLE", "no speedup of optimized compile"),
        (result("L1_82@bf16", THEIRS, baseline_classes=BF16), {}, "NOT-COMPARABLE", "L1_82@bf16, of other sizes"),
        ({"eager": 12.879, "compile": 8.135, "input_kernel": 5.0}, {}, "BLOCKED", "the published folder of kernels"),
        (WRONG, {}, "DIFFERS", "1 over the limit 0.02"),
        (unconfirmed(), {}, "AMBIGUOUS", "does not confirm"),
        (THEIRS | {"compile": 0.9 * 2.31 * 3.525}, {}, "AMBIGUOUS", "straddles an edge of"),
    ],
)
def test_a_bundle_without_a_clear_speedup_says_why(tool, times, options, verdict, why):
    found = outcome(tool, SPEEDUP, theirs(tool.folder / "a", times, **options))
    assert found["verdict"] == verdict and why in found["reason"]


def test_unconverged_times_and_the_published_protocol_are_noted(tool):
    both = result("L1_36@bf16", THEIRS, baseline_classes=BF16, status="not_converged")
    both["parity"] = {"times_ms": {"compile": 8.0, "optimized": 4.0}}
    found = outcome(tool, SPEEDUP, theirs(tool.folder / "a", both))
    assert "not converged when the time budget ended" in found["notes"]
    assert found["as_published"]["verdict"] == "DIFFERS" and found["as_published"]["measured"] == 2.0


# Both ways of measuring, rounds, profiles


def sides(found: Json) -> tuple[str, str]:
    """The verdicts of an outcome, as published and as judged."""
    return found["as_published"]["verdict"], found["as_judged"]["verdict"]


def both_ways(published: dict[str, float], judged: dict[str, float] = THEIRS, *, grad: bool = True) -> Json:
    """A result with times (ms) by the judge and by the published protocol."""
    found = result("L1_36@bf16", judged, baseline_classes=BF16)
    return found | {"parity": {"times_ms": published, "reasons": {}, "grad": grad}}


def test_a_claim_can_be_reproduced_as_published_and_not_hold_as_judged(tool):
    """As on problem 82: gradients that are left on slow torch.compile down."""
    path = theirs(tool.folder / "a", both_ways(THEIRS, THEIRS | {"compile": 4.0}))
    found = outcome(tool, SPEEDUP, path)
    assert sides(found) == ("REPRODUCED", "DIFFERS")
    words = "by the published protocol, which leaves gradients on, torch.compile takes 2.03 times as long"
    assert found["difference"] == words
    done, _, _ = judged(tool, path)
    line_with(done.out, SPEEDUP, "2.31", "✓ reproduced", "✗ does not hold", words)
    last = done.out.splitlines()[-1]
    assert "claims: 1 of 1 reproduced as published (18 not comparable), 0 of 1 hold as judged" in last


EDGE = THEIRS | {"compile": 2.31 * 0.905 * THEIRS["optimized"]}
FAST = THEIRS | {"optimized": 2.5}


@pytest.mark.parametrize(
    ("measured", "verdicts", "difference"),
    [
        (WRONG | {"parity": {"times_ms": THEIRS, "grad": True}}, ("REPRODUCED", "DIFFERS"), "the kernel is wrong"),
        (both_ways(EDGE), ("AMBIGUOUS", "REPRODUCED"), ""),
        (both_ways(FAST, FAST), ("DIFFERS", "DIFFERS"),
         "both ways agree here; what differs is the machine (NVIDIA H200; published: "),
    ],
    ids=["a wrong kernel never holds", "one time has one per cent on either side", "both agree on another figure"],
)  # fmt: skip
def test_a_claim_has_a_verdict_by_each_way_of_measuring(tool, measured, verdicts, difference):
    found = outcome(tool, SPEEDUP, theirs(tool.folder / "a", measured))
    assert sides(found) == verdicts and found["difference"].startswith(difference)


# Published times of the rounds of 36, ms; 0 is the input kernel.
ROUNDS_MS = {0: 5.461, 1: 3.563, 2: 3.6, 3: 3.525, 4: 3.525, 5: 3.525, 6: 3.525, 7: 3.525, 8: 3.525}


# Rows of 36 beside its own: ending of the row's id -> its result and columns.
More = dict[str, tuple[Json, Json]]


def beside(folder: Path, more: More, **options: Any) -> Path:
    """A bundle of 36 with more rows."""
    name = "36_RMSNorm"
    script = {name: both_ways(THEIRS)} | {f"{name}/{end}": found for end, (found, _) in more.items()}
    columns = {key: {"problem": name, "number": 36, "missing": []} for key in script}
    for end, (_, told) in more.items():
        columns[f"{name}/{end}"] |= told
    given = {"artifacts": "theirs", "shipped": False}
    hard = H200 | options.get("machine", {})
    return bundle_of(folder, "benchmark", script, columns, parameters=given, machine=hard).path


def rounds(times_ms: dict[int, float], wrong: tuple[int, ...] = ()) -> More:
    """A row of rounds: the same times (ms) both ways. wrong: rounds (0: the input kernel) that are incorrect."""
    named = {("input_kernel" if n == 0 else f"round_{n}"): (n, ms) for n, ms in times_ms.items()}
    right = {"eager": 12.879} | {name: ms for name, (n, ms) in named.items() if n not in wrong}
    bad = {name: "1 over the limit 0.02" for name, (n, _) in named.items() if n in wrong}
    found = result("L1_36@bf16", right, bad=bad, baseline_classes={"eager": "bf16"})
    published = {name: ms for name, (_, ms) in named.items()}
    columns = {"rounds": {str(n): ms if n else None for n, ms in times_ms.items()}}
    return {"rounds": (found | {"parity": {"times_ms": published, "reasons": {}}}, columns)}


def running_best(tool: Tool, path: Path, number: int) -> Json:
    return outcome(tool, f"artifact-running-best/36_RMSNorm/round-{number}", path)


def test_running_bests_compare_as_ratios_to_the_input_kernel_on_any_machine(tool):
    """Twice as fast in everything: ratios stay as published, and times are not held against another machine's."""
    path = beside(tool.folder / "a", rounds({n: ms / 2 for n, ms in ROUNDS_MS.items()}))
    found = running_best(tool, path, 2)
    assert found["unit"] == "x" and found["published"] == pytest.approx(5.461 / 3.563)
    for side in ("as_published", "as_judged"):
        assert found[side]["verdict"] == "REPRODUCED" and found[side]["reason"].startswith("round 1: "), found[side]
    assert running_best(tool, path, 3)["as_judged"]["reason"].startswith("round 3: ")


def test_running_bests_compare_as_times_on_the_published_kind_of_machine(tool):
    found = running_best(tool, beside(tool.folder / "a", rounds(ROUNDS_MS), machine=H100), 3)
    assert found["unit"] == "ms" and found["as_judged"]["verdict"] == "REPRODUCED"
    slow = {n: 1.2 * ms for n, ms in ROUNDS_MS.items()}
    assert running_best(tool, beside(tool.folder / "b", rounds(slow), machine=H100), 3)["verdict"] == "DIFFERS"


def test_a_wrong_round_is_no_running_best(tool):
    path = beside(tool.folder / "a", rounds(ROUNDS_MS, wrong=(1,)))
    first = running_best(tool, path, 1)
    assert sides(first) == ("REPRODUCED", "DIFFERS")
    assert "no kernel is correct by round 1" in first["reason"] and "round 1 is wrong" in first["difference"]
    assert running_best(tool, path, 2)["as_judged"]["reason"].startswith("round 2: ")


def test_a_ratio_to_a_wrong_input_kernel_is_not_compared(tool):
    path = beside(tool.folder / "a", rounds(ROUNDS_MS, wrong=(0,)))
    found = running_best(tool, path, 3)
    assert sides(found) == ("REPRODUCED", "NOT-COMPARABLE")
    assert "the input kernel is wrong" in found["difference"]


def test_running_bests_of_a_bundle_without_rounds_say_so(tool):
    found = running_best(tool, theirs(tool.folder / "a"), 3)
    assert found["verdict"] == "NOT-COMPARABLE" and found["reason"] == "not measured: --rounds was not given"


def profile(values: dict[tuple[str, str], float], state: str = "profiled") -> More:
    """A row of profiles. values: kernel and dtype -> share of the peak bandwidth, and rate in GB/s ten times it."""
    entries = [
        {"kernel": kernel, "dtype": dtype, "state": state, "why": "" if state == "profiled" else "because", "ncu": "",
         "clock_control": "none", "launches": [],
         "totals": {"dram_pct": value, "dram_bytes_per_s": 1e10 * value, "sm_pct": None}}
        for (kernel, dtype), value in values.items()
    ]  # fmt: skip
    return {"profile": ({"profiles": entries}, {"profile": True})}


SHARE = "artifact-ncu-dram-throughput/36_RMSNorm/optimised"  # 89.5 %


def test_a_profile_is_reproduced_by_the_dtype_that_fits(tool):
    path = beside(tool.folder / "a", profile({("optimized", "bfloat16"): 40.0, ("optimized", "float32"): 88.0}))
    found = outcome(tool, SHARE, path)
    assert found["as_published"]["verdict"] == "REPRODUCED" and "float32: " in found["as_published"]["reason"]
    assert found["as_judged"]["verdict"] == "DIFFERS" and "bfloat16: " in found["as_judged"]["reason"]
    assert found["difference"] == "the published profile fits float32, and the published times are of bfloat16"
    rate = outcome(tool, "artifact-ncu-dram-rate/36_RMSNorm/optimised", path)
    assert rate["as_published"]["verdict"] == rate["verdict"] == "NOT-COMPARABLE"
    assert "of another machine" in rate["reason"] and rate["measured"] == pytest.approx(400.0)


def test_a_profile_without_a_value_says_why(tool):
    path = beside(tool.folder / "a", profile({("optimized", "bfloat16"): 40.0}, "no_permission"))
    found = outcome(tool, SHARE, path)
    assert found["verdict"] == "NOT-COMPARABLE" and found["reason"] == "not profiled: no permission: because"
    path = beside(tool.folder / "b", profile({("optimized", "bfloat16"): 40.0}))
    share = outcome(tool, "artifact-ncu-compute-throughput/36_RMSNorm/optimised", path)
    assert share["reason"] == "not profiled: the profiler gave no value"


# The agent study


def agent(folder: Path, speedups: dict[str, list[dict[str, float]]], name: str = "sdk") -> Path:
    """A bundle of `run` with arms of an agent: arm -> one dict of problem -> speedup a repeat."""
    script, columns = {}, {}
    for arm, repeats in speedups.items():
        for number, problems_of in enumerate(repeats):
            for problem, ratio in problems_of.items():
                row = f"{problem}/{arm}/{number}"
                script[row] = result(problem, {"eager": 40.0 * ratio, "mine": 40.0})
                columns[row] = {"problem": problem, "arm": arm, "control": False, "repeat": number}
    parameters = {"agent": name, "arms": dict.fromkeys(speedups, "an agent")}
    return on(bundle_of(folder, "run", script, columns, parameters=parameters), **H200).path


def published(arm: str) -> dict[str, float]:
    found = {c.problem: c.value for c in figures.load() if c.id.startswith(f"agent-speedup-{arm}/")}
    assert len(found) == 10
    return found


def test_an_agents_two_arms_are_held_against_the_published_ones(tool):
    path = agent(tool.folder / "a", {"baseline": [published("baseline")], "with_kb": [published("with-kb")]})
    _, _, outcomes = judged(tool, path)
    for name in ("agent-mean-baseline/all", "agent-mean-with-kb/all", "agent-gain/all", "agent-speedup-with-kb/L3_43"):
        (only,) = outcomes[name]
        assert only["verdict"] == "REPRODUCED", (name, only)
        assert "one run for each problem: the interval does not cover the scatter between runs" in only["notes"]
        assert any("gpu_name NVIDIA H200 (published: L4)" in note for note in only["notes"])
    assert outcomes["agent-gain/all"][0]["measured"] == pytest.approx(17.2, abs=0.1)


def test_repeats_widen_the_interval_to_all_of_them(tool):
    path = agent(tool.folder / "a", {"baseline": [{"L1_36": 2.0}, {"L1_36": 3.5}]})
    found = outcome(tool, "agent-speedup-baseline/L1_36", path)
    assert found["verdict"] == "AMBIGUOUS" and found["ci95"] == pytest.approx([2.0, 3.5], rel=0.01)
    assert found["measured"] == pytest.approx(math.sqrt(7.0)) and not any("one run" in n for n in found["notes"])


def test_a_mean_is_over_all_problems_or_none(tool):
    some = dict(list(published("baseline").items())[:9])
    found = outcome(tool, "agent-mean-baseline/all", agent(tool.folder / "a", {"baseline": [some]}))
    assert found["verdict"] == "NOT-COMPARABLE" and "9 of 10 problems" in found["reason"]


@pytest.mark.parametrize("name", ["oracle", "nop", "replay"])
def test_hand_written_solutions_are_no_agents_results(tool, name):
    """Not even where their arms bear the published names."""
    path = agent(tool.folder / "a", {"baseline": [published("baseline")]}, name)
    _, _, outcomes = judged(tool, path)
    for claim in ("agent-mean-baseline/all", "agent-speedup-baseline/L1_36"):
        (only,) = outcomes[claim]
        assert only["verdict"] == "BLOCKED" and "a key for the model" in only["reason"]


# The command


def test_without_a_bundle_the_claims_are_a_list_of_work(tool):
    done, found, outcomes = judged(tool)
    assert done.code == 0 and found["bundles"] == [] and done.out.splitlines()[-1] == "claims: 125 blocked"
    line_with(done.out, "artifact-speedup", "repro benchmark 4 --artifacts DIR --parity")
    line_with(done.out, "agent-gain", "a key for the knowledge base", "repro run --agent claude-code")
    assert tool.within("compare", "--claims", "--strict").code == 3, "nothing was reproduced"


def test_without_a_name_the_newest_bundles_are_taken(tool):
    path = theirs(tool.results)
    done, found, outcomes = judged(tool, "--strict")
    assert [b["bundle"] for b in found["bundles"]] == [path.name]
    assert outcomes[SPEEDUP][0]["verdict"] == "REPRODUCED" and done.code == 0


def test_the_published_bundles_pass_nothing_off_as_the_published_kernels(tool):
    """The published bundle of the kernels that ship, and the same bundle as if from a newer stack."""
    pinned = shipped_benchmark("h200-pinned")
    name, files = storage.unpack((pinned / storage.ARCHIVE).read_bytes())
    for file, content in files.items():
        (tool.folder / name / file).parent.mkdir(parents=True, exist_ok=True)
        (tool.folder / name / file).write_bytes(content)
    newer = on(Bundle.open(tool.folder / name), torch="2.11.0+cu130", triton="3.6.0").path
    done, found, outcomes = judged(tool, pinned, newer)
    assert done.code == 0 and len(outcomes[SPEEDUP]) == 2
    assert not any(found["counts"][side][verdict] for side in found["counts"] for verdict in claims.TRIED)
