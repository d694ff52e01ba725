"""`repro compare A B` on bundles that the real writer left, through the real command line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import Done, Tool
from pydantic import ValidationError
from test_report import artifact_columns, artifacts, bundle_of, result, study
from test_terminal import line_with

from repro import config
from repro.analysis import compare, records
from repro.analysis.records import Interval
from repro.bundle.write import Bundle, latest
from repro.errors import BundleError
from repro.records.verdict import Ratio
from repro.system.jsonio import Json

PUBLISHED = config.ARTIFACTS_DIR / "results"
H200 = {"gpu_name": "NVIDIA H200", "bandwidth_signature_gb_s": 4814.304, "mig_mode": 0, "gpu_uuid_hash": "aa"}
EAGER, COMPILE = {"eager": "bf16"}, {"eager": "bf16", "compile": "bf16"}


def on(bundle: Bundle, **values: Any) -> Bundle:
    """The bundle with these values in its fingerprints."""
    for file in (bundle.path / "fingerprints").glob("*.json"):
        found = json.loads(file.read_text())
        for name, value in values.items():
            status = "ok" if value is not None else "not_supported"
            found["values"][name] = {"value": value, "source": "test", "status": status, "class": "H"}
        file.write_text(json.dumps(found))
    return bundle


def folder_of(
    folder: Path, times: Json, *, device: str = "cuda", versions: dict[str, str] | None = None,
    machine: Json | None = None, parameters: Json | None = None, **timing: Any,
) -> Path:  # fmt: skip
    """A bundle of `benchmark`. times: artifact -> times (ms) of its variants, a whole result, or why it has none."""
    script = dict(times)
    for name, ms in times.items():
        if isinstance(ms, dict) and "results" not in ms:
            classes = {n: "bf16" for n in ms if n not in ("input_kernel", "optimized")}
            script[name] = result(f"L1_{name[:2]}@bf16", ms, device=device, baseline_classes=classes, **timing)
    given = {"artifacts": "theirs", "shipped": False} | (parameters or {})
    hard = H200 | (machine or {}) if device == "cuda" else {}
    return bundle_of(folder, "benchmark", script, artifact_columns(*times), device=device, parameters=given,
                     machine=hard, **(versions or {})).path  # fmt: skip


def rows_of(tool: Tool, *args: object) -> tuple[Done, Json, dict[tuple[str, str], Json]]:
    """A comparison: what was printed, the whole JSON, and its rows by artifact and variant."""
    done = tool.within("compare", "-v", *args, "--json", tool.folder / "out.json", COLUMNS="600")
    found = tool.json()
    return done, found, {(row["row"], row["variant"]): row for row in found["rows"]}


KERNEL_MS = {"eager": 8.0, "optimized": 2.0}
TIMES = {"36_RMSNorm": KERNEL_MS}
MINE = "36_RMSNorm", "optimized"


def beside(tool: Tool, times: Json = TIMES, **options: Any) -> tuple[Done, Json, Json]:
    """What is printed, the JSON, and the kernel's row, where another bundle is compared with the usual one."""
    number = len(list(tool.folder.iterdir()))
    usual, other = folder_of(tool.folder / f"a{number}", TIMES), folder_of(tool.folder / f"b{number}", times, **options)
    done, found, rows = rows_of(tool, usual, other)
    return done, found, rows[MINE]


def test_rows_are_compared_with_intervals(tool):
    """The kernel of 36 became a quarter faster, that of 82 stayed, torch.compile of 82 became twice as fast."""
    a = folder_of(tool.folder / "a", {"36_RMSNorm": {"eager": 8.0, "compile": 4.0, "optimized": 3.2},
                                      "82_conv": {"eager": 8.0, "compile": 4.0, "optimized": 2.0}})  # fmt: skip
    b = folder_of(tool.folder / "b", {"36_RMSNorm": {"eager": 8.0, "compile": 4.0, "optimized": 2.4},
                                      "82_conv": {"eager": 8.0, "compile": 2.0, "optimized": 2.0}})  # fmt: skip
    done, found, rows = rows_of(tool, a, b)
    done.succeeded()
    first, second = rows["36_RMSNorm", "optimized"], rows["82_conv", "optimized"]
    assert first["speedup"]["compile"]["word"] == first["time_ms"]["word"] == "FASTER"
    assert first["speedup"]["compile"]["ratio"] == pytest.approx(4 / 3)
    low, high = first["speedup"]["compile"]["ci95"]
    assert 1.33 < low < 4 / 3 < high < 1.34 and first["time_ms"]["ratio"] == pytest.approx(0.75)
    assert (second["speedup"]["eager"]["word"], second["speedup"]["compile"]["word"]) == ("SAME", "SLOWER")
    assert second["time_ms"]["word"] == "SAME" and rows["82_conv", "compile"]["time_ms"]["word"] == "FASTER"
    assert found["verdict_changes"] == found["only_a"] == found["only_b"] == []
    assert "FASTER" in line_with(done.out, "36 RMSNorm", "optimized", "compile", "1.25 → 1.667", "1.333 [")
    assert "no verdicts changed" in done.out and "Nothing but the machine's state differs." in done.out


def evaluated(folder: Path, name: str, ms: float) -> Path:
    """A bundle of `evaluate` with one file."""
    script = {f"L1_36/{name}": result("L1_36", {"eager": 40.0, name: ms})}
    columns = {f"L1_36/{name}": {"problem": "L1_36", "file": f"{name}.py"}}
    return bundle_of(folder, "evaluate", script, columns, machine=H200).path


def test_files_of_other_names_compare_by_their_problem_and_strict_sees_the_slower(tool):
    """What becomes faster, or stays, is no failure."""
    a, b = evaluated(tool.folder / "a", "first", 10.0), evaluated(tool.folder / "b", "second", 11.0)
    done, found, rows = rows_of(tool, a, b, "--strict")
    assert done.code == 3 and found["only_a"] == found["only_b"] == []
    assert rows["L1_36/first", "first → second"]["time_ms"]["word"] == "SLOWER"
    assert [tool.within("compare", *pair, "--strict").code for pair in ((b, a), (a, a))] == [0, 0]


def test_rows_missing_from_one_bundle_are_named_with_the_reason(tool):
    more = {"43_Pool": KERNEL_MS, "77_conv": "no memory", "04_Matrix": KERNEL_MS}
    a = folder_of(tool.folder / "a", TIMES | more)
    other = {"43_Pool": "signal SIGKILL", "77_conv": "no time", "82_conv": KERNEL_MS}
    b = folder_of(tool.folder / "b", TIMES | other)
    done, found, rows = rows_of(tool, a, b)
    assert done.code == 0 and set(rows) == {("36_RMSNorm", "optimized"), ("36_RMSNorm", "eager")}
    reasons = {(o["row"], o["variant"]): o["reason"] for o in found["only_a"]}
    assert reasons["43_Pool", "optimized"] == "failed: signal SIGKILL"
    assert reasons["04_Matrix", "eager"] == compare.ABSENT
    assert {o["row"] for o in found["only_b"]} == {"82_conv"}
    line_with(done.out, "43 Pool", "optimized", "signal SIGKILL")


def test_folders_are_the_same_where_their_numbers_are(tool):
    one = result("L1_04@bf16", KERNEL_MS, baseline_classes=EAGER)
    paths = []
    for name in ("04_Matrix_vector", "4_Matrix_vector"):
        columns = {name: {"problem": name, "number": 4, "missing": []}}
        paths.append(on(bundle_of(tool.folder / name, "benchmark", {name: one}, columns), **H200).path)
    _, found, rows = rows_of(tool, *paths)
    assert len(rows) == 2 and not found["only_a"] and not found["only_b"]


def test_a_changed_verdict_is_named_and_strict_exits_with_it(tool):
    wrong = result("L1_36@bf16", {"eager": 8.0}, bad={"optimized": "1 over the limit 0.02"}, baseline_classes=EAGER)
    a, b = folder_of(tool.folder / "a", TIMES), folder_of(tool.folder / "b", {"36_RMSNorm": wrong})
    done, found, rows = rows_of(tool, a, b, "--strict")
    assert done.code == 3
    (change,) = found["verdict_changes"]
    assert change["verdict"] == ["correct", "incorrect"] and change["variant"] == "optimized"
    line_with(done.out, "36 RMSNorm", "optimized", "correct", "incorrect", "relative L2 error 1 over the limit 0.02")
    assert rows["36_RMSNorm", "optimized"]["time_reason"].startswith("B: incorrect")
    assert tool.within("compare", a, b).code == 0
    assert tool.within("compare", b, a, "--strict").code == 0, "what became correct is no failure"


@pytest.mark.parametrize(
    ("machine", "named"),
    [
        ({"gpu_name": "NVIDIA H100 80GB HBM3"}, "gpu_name NVIDIA H200 and NVIDIA H100 80GB HBM3"),
        ({"bandwidth_signature_gb_s": 2446.848}, "bandwidth_signature_gb_s 4814.304 and 2446.848"),
        ({"mig_mode": 1}, "mig_mode 0 and 1"),
    ],
)
def test_times_never_compare_across_a_hard_difference(tool, machine, named):
    done, _, row = beside(tool, machine=machine)
    assert row["speedup"]["eager"]["word"] == "SAME", "ratios do compare"
    assert row["time_ms"]["word"] is None and row["time_ms"]["ratio"] is None
    assert row["time_ms"]["a"]["value"] == pytest.approx(2.0), "shown side by side all the same"
    assert row["time_reason"] == f"NOT-COMPARABLE: {named}" and named in done.out
    assert line_with(done.out, "hard !", next(iter(machine))) and "times are shown and not compared" in done.out


def test_five_per_cent_between_two_gpus_of_one_kind_is_ambiguous(tool):
    """No interval of one run knows how such machines differ; speedups hold each its own run."""
    for other, time in (("bb", "AMBIGUOUS"), (None, "AMBIGUOUS"), ("aa", "FASTER")):
        _, found, row = beside(tool, {"36_RMSNorm": KERNEL_MS | {"optimized": 1.9}}, machine={"gpu_uuid_hash": other})
        assert (row["time_ms"]["word"], row["speedup"]["eager"]["word"]) == (time, "FASTER"), other
        assert any("Not known to be one GPU" in c for c in found["caveats"]) == (other != "aa")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"device": "cpu"}, "it ran on the CPU"),
        ({"parameters": {"size": "smoke"}}, "it ran at size smoke"),
    ],
)
def test_times_that_are_not_measurements_are_never_compared(tool, options, why):
    a, b = folder_of(tool.folder / "a", TIMES), folder_of(tool.folder / "b", TIMES, **options)
    for pair, side in (((a, b), "B"), ((b, a), "A")):
        done, found, rows = rows_of(tool, *pair)
        row = rows[MINE]
        assert done.code == 0 and row["speedup"] == {} and row["time_ms"] is None
        assert row["verdict"] == ["correct", "correct"] and row["time_reason"].startswith(f"{side}: {why}")
        assert "Speedups" not in done.out and " ms" not in done.out


@pytest.mark.parametrize(
    ("problem", "changes", "why"),
    [
        ("L1_36@bf16", {"trust": "dev", "separation": "none"}, "--trust dev"),
        ("L1_82@bf16", {}, "other sizes or another dtype"),
    ],
)
def test_no_measurement_and_another_problem_are_not_compared(tool, problem, changes, why):
    found = result(problem, KERNEL_MS, baseline_classes=EAGER)
    found["results"][0] |= changes
    assert why in beside(tool, {"36_RMSNorm": found})[2]["time_reason"]


def test_rows_that_did_not_converge_are_marked(tool):
    done, found, row = beside(tool, status="not_converged")
    assert row["converged"] == [True, False]
    line_with(done.out, "36 RMSNorm", "optimized *")
    assert any("had not converged" in caveat for caveat in found["caveats"])


def test_the_controls_noise_and_an_unconfirmed_speedup_leave_it_open(tool):
    """2.2 % faster where the A/A control was 4 % off is neither, nor what the judge's clock does not confirm."""
    fast = {"eager": 8.0, "optimized": 1.956}
    unsure = result("L1_36@bf16", fast, baseline_classes=EAGER)
    unsure["results"][0]["speedup"]["eager"]["word"] = "UNCONFIRMED"
    noisy = {"aa": {"ratio": 1.0, "ci95": [0.96, 1.04]}}
    for told, timing, word in ((fast, {}, "FASTER"), (fast, noisy, "SAME"), (unsure, {}, "AMBIGUOUS")):
        assert beside(tool, {"36_RMSNorm": told}, **timing)[2]["speedup"]["eager"]["word"] == word


def test_rejected_solutions_have_no_speed(tool):
    """A time under what the GPU allows is kept in the row and compared with nothing."""
    _, _, row = beside(tool, {"36_RMSNorm": {"eager": 8.0, "optimized": 0.5}})
    assert row["verdict"] == ["correct", "rejected"] and "faster than this GPU can be" in row["why"][1]
    assert (row["speedup"], row["time_ms"]) == ({}, None) and row["time_reason"].startswith("B: rejected")


def test_an_agent_study_is_compared_row_by_row(tool):
    """Repeats and arms are rows of their own; a baseline that is best in one bundle alone is named."""
    a, b = on(study(tool.folder / "a"), **H200).path, on(study(tool.folder / "b", triton="3.6.0"), **H200).path
    done, found, rows = rows_of(tool, a, b)
    assert done.code == 0 and ("L2_99/oracle/1", "mine") in rows and ("L2_99/nop/0", "mine") in rows
    assert [d["name"] for d in found["fingerprints"][0]["differences"]] == ["triton"]
    assert found["b"]["stacks"] == ["off-pin: torch 2.9.1+cu128, Triton 3.6.0, cuDNN ?"]
    line_with(done.out, "version", "triton", "3.5.1", "3.6.0")
    line_with(done.out, "a/20251121T120000Z-run fails repro verify", "do not trust its numbers")


def test_the_published_stacks_are_compared(tool):
    """The first use: why problem 77 is 20 times as fast on one stack and not on the other."""
    names = ("h200-pinned/20261124T133107Z-benchmark", "h200-newer/20261124T032150Z-benchmark")
    done, found, rows = rows_of(tool, *(PUBLISHED / name for name in names))
    assert done.code == 0 and "fails repro verify" not in done.out, done.err
    (row,) = [row for (name, variant), row in rows.items() if name.startswith("77_") and variant == "optimized"]
    assert {r["word"] for each in rows.values() for r in each["speedup"].values()} >= {"FASTER", "SLOWER", "SAME"}
    assert row["speedup"]["eager"]["word"] == "SLOWER" and row["speedup"]["eager"]["ci95"][1] < 0.5
    versions = {d["name"] for d in found["fingerprints"][0]["differences"] if d["class"] == "version"}
    assert {"torch", "triton", "cudnn"} <= versions
    assert found["a"]["stacks"][0].startswith("pinned: ") and found["b"]["stacks"][0].startswith("off-pin: ")


def test_wrong_use_is_one_line(tool):
    a = folder_of(tool.folder / "a", TIMES)
    run = study(tool.folder / "run").path
    fixtures = latest(PUBLISHED / "h200-pinned", ("fixtures",))
    assert fixtures is not None
    for args, words in (
        ((a,), "compare needs two bundles, 1 given"),
        ((a, a, a), "compare needs two bundles, 3 given"),
        ((a, tool.folder), "is not a bundle"),
        ((a, run), "they share no row"),
        ((a, fixtures.path), "holds no solution's times"),
    ):
        done = tool.within("compare", *args)
        assert done.code == 1 and words in done.complaint, done.err


@pytest.mark.parametrize(
    ("low", "high", "noise", "spread", "word"),
    [
        (1.0, 1.0, 0.0, 0.0, "SAME"),  # of no width
        (0.99, 1.01, 0.0, 0.0, "SAME"),  # edges belong to it
        (1.02, 1.03, 0.0, 0.0, "FASTER"),
        (0.97, 0.98, 0.0, 0.0, "SLOWER"),
        (1.005, 1.03, 0.0, 0.0, "AMBIGUOUS"),
        (0.5, 2.0, 0.0, 0.0, "AMBIGUOUS"),
        (1.02, 1.03, 0.05, 0.0, "SAME"),  # within what the controls do
        (1.02, 1.03, 0.0, 0.07, "AMBIGUOUS"),
        (1.08, 1.09, 0.0, 0.07, "FASTER"),
    ],
)
def test_words(low, high, noise, spread, word):
    assert compare.word(Interval(math.sqrt(low * high), low, high), noise, spread) == word


def test_quotients_carry_both_intervals():
    exact, wide = Interval(2.0, 2.0, 2.0), Interval(4.0, 3.6, 4.4)
    assert exact.over(exact) == Interval(1.0, 1.0, 1.0)
    quotient = wide.over(exact)
    assert (quotient.value, quotient.low, quotient.high) == pytest.approx((2.0, 1.8, 2.2))
    turned = exact.over(wide)
    assert (turned.low, turned.high) == pytest.approx((2 / 4.4, 2 / 3.6))
    both = wide.over(wide)
    assert both.value == 1.0 and both.low == pytest.approx(math.exp(-math.hypot(math.log(4 / 3.6), math.log(4.4 / 4))))


@pytest.mark.parametrize("ci95", [[2.0, 1.0], [0.0, 3.0], [1.0, "inf"], [3.0, 4.0], None])
def test_an_interval_is_three_positive_numbers_in_order(ci95):
    with pytest.raises((BundleError, ValidationError)):
        records.interval(Ratio.model_validate({"ratio": 2.0, "ci95": ci95}))
    assert records.interval(None) is None


def test_an_interval_of_no_width_may_be_a_rounding_off():
    found = records.interval(Ratio(ratio=2.0, ci95=[2.0 + 1e-15, 2.0 + 1e-15]))
    assert found == Interval(2.0, 2.0, 2.0 + 1e-15)


def test_solutions_of_one_row_are_distinguished(tool):
    found = records.read(artifacts(tool.folder / "a"))
    names = ("input_kernel", "optimized", "eager", "compile")
    assert {key for key in found.implementations if key[0] == "36"} == {("36", name) for name in names}
    assert found.unmeasured.keys() == {"82", "4"} and "holds no kernel" in found.unmeasured["4"]
