"""Clocks during a run as the report draws them, and what throttling does to times; series as the sampler writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sampled import seen
from test_claims import SPEEDUP, outcome
from test_compare import folder_of, rows_of
from test_page import rows_of as table
from test_page import section
from test_report import bundle_of, result, study

from repro.analysis import compare, records
from repro.bundle.write import Bundle
from repro.fingerprint import series
from repro.records.comparison import Comparison
from repro.records.result import Observed
from repro.report import document as documents
from repro.system import jsonio
from repro.system.jsonio import Json

TIMES = {"eager": 8.0, "compile": 7.0, "input_kernel": 5.0, "optimized": 3.525}
CLASSES = {"eager": "bf16", "compile": "bf16"}
DURING, OUTSIDE = (4.0, 4.2), (0.5, 1.5)


def observed(reasons: Json | None) -> Json:
    """A result of 36 whose GPU gave these reasons; None: nothing was sampled."""
    found = result("L1_36@bf16", TIMES, baseline_classes=CLASSES)
    return found if reasons is None else found | seen(reasons)


def theirs(folder: Path, reasons: Json | None) -> Path:
    return folder_of(folder, {"36_RMSNorm": observed(reasons)})


def built(*bundles: Bundle) -> Json:
    """A document as its JSON holds it."""
    return json.loads(jsonio.dumps(documents.build(list(bundles)).to_json()))


def test_a_window_of_an_older_release_is_read_under_its_present_name():
    """The window of a whole job was called `cell`."""
    for name in ("cell", "job"):
        told = Observed(telemetry={"windows": {name: {"samples": 3}}})
        assert told.telemetry == {"windows": {"job": {"samples": 3}}}


# -- throttling


@pytest.mark.parametrize("reason", ["hw_thermal", "hw_power_brake", "sw_thermal"])
def test_times_of_a_throttled_row_are_no_measurement_and_its_verdict_stays(reason, tmp_path):
    found = records.read(Bundle.open(theirs(tmp_path, {reason: DURING})))
    for record in found.implementations.values():
        assert record.why_not == f"throttled: while it was timed the GPU reported {reason} in 3.3% of samples"
    assert {record.outcome for record in found.implementations.values()} == {"correct", ""}, (
        "solutions, and torch's own"
    )
    assert not found.why_not, "of the row, not of the bundle"


@pytest.mark.parametrize(("verdict", "lines"), [("correct", 3), ("incorrect", 1)])
def test_a_bundle_keeps_each_measurement_of_a_throttled_row(verdict, lines, tmp_path):
    """A row is measured again at most twice, and only where it is correct."""
    found = observed({"hw_thermal": DURING})
    for entry in found["results"]:
        entry["verdict"] = verdict
    file = folder_of(tmp_path, {"36_RMSNorm": found}) / "rows.jsonl"
    told = list(map(json.loads, file.read_text().splitlines()))
    assert [len(line.get("measured_again", [])) for line in told] == list(range(lines))
    assert len({line["result"]["telemetry"]["file"] for line in told}) == lines


@pytest.mark.parametrize(
    "reasons",
    [{"sw_power_cap": (0, 10)}, {"idle": (0, 10)}, {"clocks_setting": (0, 10)}, {"hw_slowdown": DURING},
     {"hw_thermal": OUTSIDE}, {}, None],
)  # fmt: skip
def test_what_does_not_throttle_the_timed_part_leaves_times_as_they_are(reasons, tmp_path):
    """A power cap, clocks that were set, heat before anything was timed; a row that was not sampled."""
    bundle = Bundle.open(theirs(tmp_path, reasons))
    assert not any(record.why_not for record in records.read(bundle).implementations.values())
    assert "its times are no measurement" not in jsonio.dumps(built(bundle))


def test_one_sample_is_enough_whatever_its_share_is_rounded_to():
    told = {"windows": {"timing": {"samples": 100_000, "reasons": {"sw_power_cap": 1.0, "hw_thermal": 0.0}}}}
    assert series.throttled(told).startswith("throttled: ")
    for other in (None, {}, {"windows": {"job": {"reasons": {"hw_thermal": 1.0}}}}, {"windows": {"timing": {}}}):
        assert series.throttled(other) == ""


def test_rows_keep_what_was_seen_and_readers_apply_the_rule(tmp_path):
    """The rule is in no file: rows of disk and of memory are read alike, and a bundle from before the rule too."""
    path = theirs(tmp_path, {"hw_thermal": DURING})
    *_, line = (path / "rows.jsonl").read_text().splitlines()
    assert "no_measurement" not in line and json.loads(line)["result"]["results"][0]["measurement"] is True
    bundle = Bundle.open(path)
    (row,) = bundle.rows.values()
    assert {entry["measurement"] for entry in row["result"]["results"]} == {False}
    again = Bundle.create(tmp_path / "again", "benchmark", ["36_RMSNorm"], {})
    again.add(json.loads(line))
    assert again.rows["36_RMSNorm"] == row


def test_a_throttled_row_is_compared_by_its_verdict_alone(tool):
    a, b = theirs(tool.folder / "a", {}), theirs(tool.folder / "b", {"hw_power_brake": DURING})
    _, found, rows = rows_of(tool, a, b)
    row = rows["36_RMSNorm", "optimized"]
    assert row["speedup"] == {} and row["time_ms"] is None and row["verdict"] == ["correct", "correct"]
    assert row["time_reason"].startswith("B: throttled: ") and not compare.worse(Comparison.written(found))


def test_a_throttled_row_reproduces_nothing_and_contradicts_nothing(tool):
    found = outcome(tool, SPEEDUP, theirs(tool.folder / "a", {"sw_thermal": DURING}))
    assert found["verdict"] == "NOT-COMPARABLE" and found["reason"].startswith("throttled: ")
    assert outcome(tool, SPEEDUP, theirs(tool.folder / "b", {}))["verdict"] != "NOT-COMPARABLE"


def test_a_throttled_solution_is_in_no_mean_and_no_figure(tmp_path):
    bundle = study(tmp_path, sampled=True)
    whole = built(bundle)
    notes = {row["row"]: row["notes, skips and reasons"] for row in table(whole, "log", "log")}
    assert "its times are no measurement: throttled: " in notes["L2_99/oracle/1"]
    assert notes["L2_99/oracle/1"].count("measured again: throttled: ") == 2
    assert "Measured again, because the GPU was throttled: L2_99/oracle/1." in str(whole)
    assert "hw_thermal in 25.0% of samples" in notes["L2_99/oracle/1"]
    (card,) = [card for card in whole["cards"] if card["label"] == "Speedup over eager"]
    assert card["detail"].endswith("geometric mean of 1 of 5")
    assert whole["headline"]["throttled"] == 1 and "times of 1 row left out" in str(whole["headline"]["parts"])
    rows = {row["row"]: row for row in table(whole, "speedups", "speedups-run")}
    assert rows["L2_99/oracle/1"]["ms"] is None and rows["L2_99/oracle/1"]["word"] == "no measurement"
    assert rows["L2_99/oracle/0"]["ms"]["value"] == pytest.approx(1.0, rel=0.01)
    (figure,) = section(whole, "summary")["figures"]
    assert len(figure["data"]["rows"]) == 1
    assert [row["solution"] for row in table(whole, "roofline", "roofline")] == ["oracle"]
    verdicts = [row["verdict"] for row in table(whole, "correctness", "correctness")]
    assert verdicts.count("correct") == 2, "right is right, however slow"


def test_a_row_that_is_throttled_says_so_as_it_ends(tmp_path):
    from repro.studies import artifact_study

    (row,) = Bundle.open(theirs(tmp_path, {"hw_thermal": DURING})).records().values()
    assert " ms" not in artifact_study.summary(row) and "correct" in artifact_study.summary(row)
    entry = artifact_study.entry(row).to_json()
    assert entry["no_measurement"].startswith("throttled: ") and entry["optimized_ms"] == pytest.approx(3.525)


# -- the section


def test_the_table_has_every_row_that_was_sampled_while_it_was_timed(tmp_path):
    whole = built(study(tmp_path, sampled=True))
    first, second = table(whole, "clocks", "sampled")
    assert (first["row"], first["samples"]) == ("L2_99/oracle/0", 120)
    clock = {"median": pytest.approx(1753), "min": 1725, "max": 1785}
    assert first["SM MHz"] == first["SM MHz"] | clock and first["times"] == "not throttled"
    assert first["J"] == 1800
    assert second["SM MHz"]["min"] == 1100 and second["times"] == "throttled" and second["W"]["max"] == 650
    assert second["event reasons, share of samples"] == "hw_thermal 25%, sw_power_cap 75%"


def test_bundles_without_samples_have_no_section_on_clocks(tmp_path):
    cpu = observed(None) | {"telemetry": {"sampler": {"status": "off: the run used the CPU"}, "marks": []}}
    columns = {"36_RMSNorm": {"problem": "36_RMSNorm", "number": 36, "missing": []}}
    bundles = [
        bundle_of(tmp_path / name, "benchmark", {"36_RMSNorm": told}, columns, parameters={"artifacts": "x"})
        for name, told in (("a", observed(None)), ("b", cpu))
    ]
    assert "clocks" not in [section["id"] for section in built(*bundles)["sections"]]
