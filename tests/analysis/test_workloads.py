"""Shapes: how they are read, the verdict at all of them, and the command around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import CPU, smoke_problem
from test_report import bundle_of, result

from repro.analysis import gate, workloads
from repro.bundle.write import Bundle
from repro.errors import UsageError
from repro.problems import catalogue, shapes
from repro.records.verdict import Verdict
from repro.records.workload import Workload
from repro.report import against, document
from repro.studies import self_test
from repro.system.jsonio import Json


@pytest.mark.parametrize(
    ("name", "text"),
    [("rows.jsonl", '{"batch_size": 4, "weight": 0.3}\n\n{"batch_size": 1, "dim1": 7}\n'),
     ("rows.csv", "batch_size,dim1,weight\n4,,0.3\n1,7,\n")],
)  # fmt: skip
def test_rows_of_a_file_are_workloads(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    found = shapes.workloads([str(tmp_path / name)], catalogue.load("L1_36"))
    assert [(each.name, each.weight) for each in found] == [("batch_size=4", 0.3), ("batch_size=1 dim1=7", 1.0)]


@pytest.mark.parametrize(
    ("given", "due"),
    [([], ["own sizes"]), (["batch_size=2,dim1=3", {"dim1": 5}], ["batch_size=2 dim1=3", "dim1=5"]),
     (["suite"], ["batch_size=4", "batch_size=1 dim1=16", "batch_size=3 dim1=7 dim2=11"]),
     (["neighbours"], ["own sizes", "batch_size=3 dim1=7 dim2=13 (held out)", "batch_size=1 dim1=1 dim2=3 (held out)",
                       "batch_size=9 (held out)"])],
)  # fmt: skip
def test_shapes_are_named_on_the_command_line(given, due):
    assert [each.name for each in shapes.workloads(given, smoke_problem())] == due


@pytest.mark.parametrize(
    ("row", "told"),
    [("{", "is no shape"), ("[1]", "is not NAME=VALUE"), ('{"batch_size": 4, "weight": 0}', "weight: Input should be"),
     ('{"rows": 4}', "has no constant rows"), ("", "holds no shape")],
)  # fmt: skip
def test_other_rows_are_refused(row, told, tmp_path):
    (tmp_path / "rows.jsonl").write_text(row)
    with pytest.raises(UsageError, match=told):
        shapes.workloads([str(tmp_path / "rows.jsonl")], catalogue.load("L1_36"))


def test_every_shape_of_the_suites_is_one_of_its_problem():
    for name in catalogue.suites()["agent"]:
        assert len(shapes.workloads(["suite", "neighbours"], catalogue.load(name))) == 9


def bundle(folder: Path, made: list[Json], name: str = "mine", **more: Any) -> Bundle:
    """A bundle with a row for each shape: batches 1, 2 and 3, the first of weight 3 and the last held out."""
    shape = [{"constants": {"batch_size": size}, "weight": 3.0 if size == 1 else 1.0, "held_out": size == 3}
             for size in (1, 2, 3)]  # fmt: skip
    rows = {f"L1_36/{name} at {Workload(**given).name}": one for given, one in zip(shape, made, strict=False)}
    columns = {row: {"problem": "L1_36", "workload": one} for row, one in zip(rows, shape, strict=False)}
    return bundle_of(folder, "evaluate", rows, columns, **more)


def timed(ms: float, **more: Any) -> Json:
    return result("L1_36", {"eager": 16.0, "mine": ms}, **more)


WRONG = result("L1_36", {"eager": 16.0}, bad={"mine": "0.4 over the limit 0.02 of class bf16"})


def test_speedups_are_weighted_means_and_the_worst_is_named(tmp_path):
    made = bundle(tmp_path, [timed(8.0), timed(32.0), WRONG])
    (found,) = gate.judged(made.records().values())
    assert (found.verdict, len(found.workloads)) == ("correct", 3) and found.time_ms is None
    assert found.speedup["eager"].ratio == pytest.approx((2.0**3 * 0.5) ** 0.25, rel=1e-3)
    assert found.labels.count("shape_specialised") == 1, "a neighbour is a label"
    drawn = document.build([made])
    (table, *_) = drawn.sections[0].tables
    at = [column.title for column in table.columns].index("shape")
    assert [row[at] for row in table.rows] == ["2 shapes; worst 0.5x at batch_size=2", "batch_size=1",
                                               "batch_size=2", "batch_size=3 (held out)"]  # fmt: skip
    assert drawn.headline.parts[0] == "1 of 1 correct"
    unmeasured = [each.model_copy(update={"measurement": False}) for each in found.workloads]
    assert workloads.told(found.model_copy(update={"workloads": unmeasured}), "eager") == "3 shapes"


def test_a_solution_is_right_only_where_it_is_at_all_shapes(tmp_path):
    (found,) = gate.judged(bundle(tmp_path, [timed(8.0), WRONG]).records().values())
    told = "1 of 2 shapes: wrong at batch_size=2 (wrong: relative L2 error 0.4 over the limit"
    assert found.verdict == "incorrect" and found.reasons[0].detail.startswith(told) and not found.speedup
    assert [reason.code for reason in found.reasons] == ["shapes", "rel_l2"]


def test_a_new_solution_is_slower_where_it_is_at_any_shape(tmp_path):
    made = [result("L1_36", {"eager": 40.0, "old": 10.0, "new": ms}) for ms in (9.0, 10.6)]
    found = bundle(tmp_path, made, "against old", parameters={"against": "old.py"})
    _, new = gate.judged(found.records().values())
    assert [gate.slower(each, 0.01) for each in new.workloads] == [False, True]
    sentence = against.sentence(new)
    assert sentence.startswith("new is 1.067x as fast as old [")
    assert sentence.endswith("] weighted over 2 shapes; worst 0.943x at batch_size=2: SLOWER")


def test_the_command_says_at_which_shapes_a_kernel_is_wrong(judge_tool):
    """Right at the shape that is measured; the file of shapes has two more."""
    (case,) = self_test.cases(["adversarial"], ["B18_right_at_one_shape"])
    (judge_tool.folder / "cheat.py").write_bytes(case.source())
    words = ("evaluate", "cheat.py", "--problem", "L1_36", "--shapes", "suite", *CPU, "--no-timing", "--strict")
    done = judge_tool.within(*words, "--json", "out.json")
    assert done.code == 3, done.err
    told = "right at 1 of 3 shapes: wrong at batch_size=1 dim1=16, batch_size=3 dim1=7 dim2=11"
    assert told in " ".join(done.out.split())
    (found,) = judge_tool.json()["results"]
    assert [Verdict.model_validate(one).verdict for one in found["workloads"]] == ["correct", *["incorrect"] * 2]
