"""Clocks during a run as the report draws them, and what throttling does to times; series as the sampler writes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Tool
from sampled import seen
from test_claims import SPEEDUP, outcome
from test_compare import folder_of, rows_of
from test_page import document, section
from test_page import rows_of as table
from test_report import bundle_of, drawn, line_with, result, study

from repro import config
from repro.analysis import compare, records
from repro.bundle.write import Bundle
from repro.fingerprint import series
from repro.records.comparison import Comparison
from repro.records.result import Observed
from repro.report import clocks, latex, markdown, page, plots
from repro.report import document as documents
from repro.report.clocks import BINS, FEWEST
from repro.report.elements import Figure
from repro.system import jsonio

TIMES = {"eager": 8.0, "compile": 7.0, "input_kernel": 5.0, "optimized": 3.525}
CLASSES = {"eager": "bf16", "compile": "bf16"}
DURING, OUTSIDE = (4.0, 4.2), (0.5, 1.5)


def observed(reasons: dict[str, Any] | None) -> dict[str, Any]:
    """A result of 36 whose GPU gave these reasons; None: nothing was sampled."""
    found = result("L1_36@bf16", TIMES, baseline_classes=CLASSES)
    return found if reasons is None else found | seen(reasons)


def theirs(folder: Path, reasons: dict[str, Any] | None) -> Path:
    return folder_of(folder, {"36_RMSNorm": observed(reasons)})


def built(*bundles: Bundle) -> dict[str, Any]:
    """A document as its JSON holds it."""
    found: dict[str, Any] = json.loads(jsonio.dumps(documents.build(list(bundles), config.ARTIFACTS_DIR).to_json()))
    return found


def test_a_window_of_an_older_release_is_read_under_its_present_name() -> None:
    """The window of a whole job was called `cell`; fixtures and untimed rows have no other."""
    for name in ("cell", "job"):
        told = Observed(telemetry={"windows": {name: {"samples": 3}}})
        source = SimpleNamespace(done=[SimpleNamespace(row="L1_36", result=told)])
        assert clocks._windows(source) == [("L1_36", clocks.Window(samples=3), False)]


# -- throttling


@pytest.mark.parametrize("reason", ["hw_thermal", "hw_power_brake", "sw_thermal"])
def test_times_of_a_throttled_row_are_no_measurement_and_its_verdict_stays(reason: str, tmp_path: Path) -> None:
    found = records.read(Bundle.open(theirs(tmp_path, {reason: DURING})))
    for record in found.records.values():
        assert record.why_not == f"throttled: while it was timed the GPU reported {reason} in 3.3% of samples"
    assert {record.verdict for record in found.records.values()} == {"correct", ""}, "solutions, and torch's own"
    assert not found.why_not, "of the row, not of the bundle"


@pytest.mark.parametrize(
    "reasons",
    [{"sw_power_cap": (0, 10)}, {"idle": (0, 10)}, {"clocks_setting": (0, 10)}, {"hw_slowdown": DURING},
     {"hw_thermal": OUTSIDE}, {}, None],
)  # fmt: skip
def test_what_does_not_throttle_the_timed_part_leaves_times_as_they_are(
    reasons: dict[str, Any] | None, tmp_path: Path
) -> None:
    """A power cap, clocks that were set, heat before anything was timed; a row that was not sampled."""
    bundle = Bundle.open(theirs(tmp_path, reasons))
    assert not any(record.why_not for record in records.read(bundle).records.values())
    assert "its times are no measurement" not in jsonio.dumps(built(bundle))


def test_one_sample_is_enough_whatever_its_share_is_rounded_to() -> None:
    told = {"windows": {"timing": {"samples": 100_000, "reasons": {"sw_power_cap": 1.0, "hw_thermal": 0.0}}}}
    assert series.throttled(told).startswith("throttled: ")
    for other in (None, {}, {"windows": {"job": {"reasons": {"hw_thermal": 1.0}}}}, {"windows": {"timing": {}}}):
        assert series.throttled(other) == ""


def test_rows_keep_what_was_seen_and_readers_apply_the_rule(tmp_path: Path) -> None:
    """The rule is in no file: rows of disk and of memory are read alike, and a bundle from before the rule too."""
    path = theirs(tmp_path, {"hw_thermal": DURING})
    (line,) = (path / "rows.jsonl").read_text().splitlines()
    assert "no_measurement" not in line and json.loads(line)["result"]["results"][0]["measurement"] is True
    bundle = Bundle.open(path)
    (row,) = bundle.rows.values()
    assert {entry["measurement"] for entry in row["result"]["results"]} == {False}
    again = Bundle.create(tmp_path / "again", "benchmark", ["36_RMSNorm"], {})
    again.add(json.loads(line))
    assert again.rows["36_RMSNorm"] == row


def test_a_throttled_row_is_compared_by_its_verdict_alone(tool: Tool) -> None:
    a, b = theirs(tool.folder / "a", {}), theirs(tool.folder / "b", {"hw_power_brake": DURING})
    _, found, rows = rows_of(tool, a, b)
    row = rows["36_RMSNorm", "optimized"]
    assert row["speedup"] == {} and row["time_ms"] is None and row["verdict"] == ["correct", "correct"]
    assert row["time_reason"].startswith("B: throttled: ") and not compare.worse(Comparison.written(found))


def test_a_throttled_row_reproduces_nothing_and_contradicts_nothing(tool: Tool) -> None:
    found = outcome(tool, SPEEDUP, theirs(tool.folder / "a", {"sw_thermal": DURING}))
    assert found["verdict"] == "NOT-COMPARABLE" and found["reason"].startswith("throttled: ")
    assert outcome(tool, SPEEDUP, theirs(tool.folder / "b", {}))["verdict"] != "NOT-COMPARABLE"


def test_a_throttled_artifact_has_its_verdicts_and_its_reason_and_no_time(tmp_path: Path) -> None:
    text = drawn(Bundle.open(theirs(tmp_path, {"hw_thermal": DURING})))
    row = line_with(text, "36 RMSNorm", "correct")
    assert not any(character.isdigit() for character in row.replace("36 RMSNorm", ""))
    assert "Times of 1 row are left out: the GPU was throttled" in text
    assert "Speedup over" not in text


def test_a_throttled_solution_is_in_no_mean_and_no_figure(tmp_path: Path) -> None:
    bundle = study(tmp_path, sampled=True)
    whole = built(bundle)
    notes = {row["row"]: row["notes, skips and reasons"] for row in table(whole, "log", "log")}
    assert "its times are no measurement: throttled: " in notes["L2_99/oracle/1"]
    assert "hw_thermal in 25.0% of samples" in notes["L2_99/oracle/1"]
    (card,) = [card for card in whole["cards"] if card["label"] == "Speedup over eager"]
    assert card["detail"].endswith("geometric mean of 1 of 5")
    assert whole["headline"]["throttled"] == 1 and "times of 1 row left out" in whole["headline"]["text"]
    rows = {row["row"]: row for row in table(whole, "speedups", "speedups-run")}
    assert rows["L2_99/oracle/1"]["ms"] is None and rows["L2_99/oracle/1"]["word"] == "no measurement"
    assert rows["L2_99/oracle/0"]["ms"]["value"] == pytest.approx(1.0, rel=0.01)
    assert any(
        t.startswith("A: no time of L2_99/oracle/1 is shown: throttled") for t in section(whole, "speedups")["text"]
    )
    drawn_rows = [
        f["data"].get("groups", [r["label"] for r in f["data"].get("rows", [])])
        for f in section(whole, "speedups")["figures"]
    ]
    assert drawn_rows and all(len(names) == 1 for names in drawn_rows)
    assert [p["label"] for p in section(whole, "roofline")["figures"][0]["data"]["points"]] == ["L2_99"]
    verdicts = [row["verdict"] for row in table(whole, "correctness", "correctness")]
    assert verdicts.count("correct") == 2, "right is right, however slow"


def test_a_row_that_is_throttled_says_so_as_it_ends(tmp_path: Path) -> None:
    from repro.studies import artifact_study

    (row,) = Bundle.open(theirs(tmp_path, {"hw_thermal": DURING})).records().values()
    assert " ms" not in artifact_study.summary(row) and "correct" in artifact_study.summary(row)
    entry = artifact_study.entry(row).to_json()
    assert entry["no_measurement"].startswith("throttled: ") and entry["optimized_ms"] == pytest.approx(3.525)


# -- the section


def test_the_same_json_draws_the_same_figure(tmp_path: Path) -> None:
    whole = documents.build([study(tmp_path, sampled=True)])
    (figure,) = next(part for part in whole.sections if part.id == "clocks").figures
    text = plots.svg(figure)
    assert plots.svg(Figure.model_validate_json(jsonio.dumps(figure.to_json()))) == text
    assert 'role="img"' in text and "aria-label" in text and "MHz" in text and "°C" in text


def test_the_figure_keeps_rows_extremes_and_reasons(tmp_path: Path) -> None:
    (figure,) = section(built(study(tmp_path, sampled=True)), "clocks")["figures"]
    data = figure["data"]
    assert [(row["row"], row["number"], row["timed_s"]) for row in data["rows"]] == [
        ("L2_99/oracle/0", 1, [2.0, 8.0]), ("L2_99/oracle/1", 2, [12.0, 18.0]), ("L2_84/oracle/0", 3, None),
    ]  # fmt: skip
    assert [bool(row["throttled"]) for row in data["rows"]] == [False, True, False]
    bins = data["bins"]
    lengths = {
        len(values) for told in bins.values() for values in (told.values() if isinstance(told, dict) else [told])
    }
    assert lengths == {len(bins["t_s"])} and bins["t_s"] == sorted(bins["t_s"])
    assert min(bins["sm_mhz"]["min"]) == 1100 and max(bins["sm_mhz"]["max"]) == 1980
    assert max(bins["power_w"]["max"]) == 650 and max(bins["temperature_c"]["max"]) == 55
    slowed = [bins["t_s"][at] for at in data["reasons"]["hw_thermal"]]
    assert 13.9 < min(slowed) < max(slowed) < 15.6 and set(data["reasons"]) == {"idle", "sw_power_cap", "hw_thermal"}


@pytest.mark.slow
def test_however_long_a_run_its_figure_stays_small(tmp_path: Path) -> None:
    """An hour of samples, with one that is slowed: it is still there."""
    script = {
        "long": observed(None) | seen({"hw_thermal": (1800.0, 1800.04)}, seconds=3600.0, timed=(10.0, 3000.0)),
        "short": observed({}),
    }
    columns = {name: {"problem": "L1_36", "file": f"{name}.py"} for name in script}
    (figure,) = section(built(bundle_of(tmp_path, "evaluate", script, columns)), "clocks")["figures"]
    assert len(figure["data"]["bins"]["t_s"]) <= BINS + FEWEST * len(script)
    assert len(jsonio.dumps(figure)) < 32_000 and len(plots.svg(Figure.model_validate(figure))) < 90_000
    assert figure["data"]["rows"][0]["throttled"] and len(figure["data"]["reasons"]["hw_thermal"]) == 1
    assert min(figure["data"]["bins"]["sm_mhz"]["min"]) == 1100


def test_the_table_has_every_row_that_was_sampled(tmp_path: Path) -> None:
    whole = built(study(tmp_path, sampled=True))
    first, second, third = table(whole, "clocks", "sampled")
    assert (first["row"], first["number"], first["window"], first["samples"]) == ("L2_99/oracle/0", 1, "timed", 120)
    assert (
        first["SM MHz"] == {"median": pytest.approx(1753), "min": 1725, "max": 1785}
        and first["times"] == "not throttled"
    )
    assert second["SM MHz"]["min"] == 1100 and second["times"] == "throttled" and second["W"]["max"] == 650
    assert second["event reasons, share of samples"] == "hw_thermal 25%, sw_power_cap 75%"
    assert (third["window"], third["times"]) == ("whole row", None)
    parsed = documents.Document.model_validate(whole)
    for text in (markdown.render(parsed), latex.render(parsed).replace(r"\_", "_"), page.render(parsed)):
        assert "Clocks during the run" in text and "1753 (1100 to 1785)" in text and "hw_thermal" in text


def test_bundles_without_samples_have_no_section_on_clocks(tmp_path: Path) -> None:
    cpu = observed(None) | {"telemetry": {"sampler": {"status": "off: the run used the CPU"}, "marks": []}}
    columns = {"36_RMSNorm": {"problem": "36_RMSNorm", "number": 36, "missing": []}}
    bundles = [
        bundle_of(tmp_path / name, "benchmark", {"36_RMSNorm": told}, columns, parameters={"artifacts": "x"})
        for name, told in (("a", observed(None)), ("b", cpu))
    ]
    assert "clocks" not in [section["id"] for section in built(*bundles)["sections"]]


@pytest.mark.parametrize("damage", ["missing", "cut", "uneven", "outside", "empty"])
def test_a_series_that_cannot_be_read_is_told_and_stops_nothing(damage: str, tmp_path: Path) -> None:
    path = theirs(tmp_path, {})
    (file,) = (path / "telemetry").iterdir()
    whole = json.loads(file.read_text())
    if damage == "missing":
        file.unlink()
    elif damage == "outside":
        rows = path / "rows.jsonl"
        rows.write_text(rows.read_text().replace(f"telemetry/{file.name}", "../../secret.json"))
    else:
        columns = {"uneven": whole["columns"] | {"sm_mhz": [1]}, "empty": {"t_ms": []}, "cut": {}}[damage]
        file.write_text("{" if damage == "cut" else jsonio.dumps({"columns": columns}))
    found = section(built(Bundle.open(path)), "clocks")
    assert found["figures"] == [] and len(found["tables"]) == 2, "numbers of the row stand"
    (text,) = (text for text in found["text"] if "not recorded in A" in text)
    assert ("outside the bundle" if damage == "outside" else "is missing or damaged") in text


def test_what_a_driver_does_not_tell_has_no_panel() -> None:
    bins = clocks.Binned()
    clocks._binned(bins, {"t_ms": [0, 50, 100], "sm_mhz": [1500, -1, 1600]}, 1, 0.0, (0.0, 0.1), 4)
    assert set(bins.panels) == {"sm_mhz"} and bins.masks == [0, 0, 0]
    assert bins.panels["sm_mhz"]["median"] == [1500, None, 1600]
    clocks._binned(bins, {"t_ms": [0], "sm_mhz": [1400], "power_mw": [200_000]}, 2, 0.2, (0.0, 0.1), 4)
    assert bins.panels["power_w"]["max"] == [None, None, None, 200] and bins.panels["sm_mhz"]["min"][-1] == 1400


@pytest.mark.slow
def test_the_page_holds_a_figure_for_each_bundle_that_was_sampled(tool: Tool) -> None:
    paths = [
        study(tool.folder / "a", sampled=True).path,
        theirs(tool.folder / "b", {}),
        theirs(tool.folder / "c", None),
    ]
    assert tool.within("report", *paths, "-o", "out", "--format", "md,html,svg").code == 0
    files = {file.stem for file in (tool.folder / "out/figures").iterdir()}
    assert {"clocks-A", "clocks-B"} <= files and "clocks-C" not in files
    found = section(document(tool.folder / "out"), "clocks")
    assert any("not recorded in C" in text for text in found["text"])
