"""`repro claims` and `repro benchmark --rounds`: every round has a verdict and a reason, and a bundle holds no text of
a source without a licence.
"""

from __future__ import annotations

import json

import pytest
from conftest import CPU, Done, Tool, rows, strict_json
from test_artifact_study import NOT_PYTHON, shipped

from repro.artifacts import sources
from repro.bundle.write import Bundle
from repro.records import reading
from repro.records.row import Row
from repro.studies import artifact_study

pytestmark = pytest.mark.slow

NAME = "36_RMSNorm"
GOOD = (shipped("36") / "optimized_kernel_beam_search.py").read_text()
KERNELS = {1: GOOD, 2: "def kernel_function(x, num_features, eps=1e-5):\n    return x\n", 3: NOT_PYTHON, 4: None}
MARK = "this_name_stands_in_no_other_file"


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tool, Done]:
    """`repro claims` from a copy of the published folder that holds one problem with four rounds."""
    tool = Tool(tmp_path_factory.mktemp("rounds"))
    given = tool.folder / "given"
    folder = given / NAME
    folder.mkdir(parents=True)
    marked = f"\n\ndef {MARK}():\n    pass\n"
    (folder / "problem.py").write_text((shipped("36") / "problem.py").read_text() + marked)
    for file in artifact_study.KERNELS.values():
        (folder / file).write_text(GOOD + marked)
    for number, text in KERNELS.items():
        round_ = folder / "optimization_trace" / f"round_{number}"
        round_.mkdir(parents=True)
        time = {"kernels": {"kernel_round_1": {"time_ms": 1.5 * number}}}
        (round_ / "benchmark_results.json").write_text(json.dumps(time))
        if text is not None:
            (round_ / "kernel.py").write_text(text + marked)
    (tool.folder / "sources.toml").write_text(
        f'[source.kernelagent-artifacts]\naddress = "https://repository.invalid/x"\ncommit = "{"0" * 40}"\n'
        f'tree = "{sources.tree_hash(given)}"\nlicence = "none"\npurpose = "a test"\nredistributable = false\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "FILE", tool.folder / "sources.toml")
        kept = str(tool.folder / "kept")
        done = tool.within("claims", *CPU, "--from", given, "--json", "claims.json", REPRO_SOURCES=kept)
    done.succeeded()
    return tool, done


def test_claims_fetches_measures_and_judges_with_one_command(claimed):
    """On the CPU nothing is a measurement, and every claim of the study says so, of the kernels and of their rounds."""
    tool, said = claimed
    found = strict_json((tool.folder / "claims.json").read_text())
    assert len(found["claims"]) == 102
    reasons = {claim["id"]: claim["outcomes"][0]["as_judged"]["reason"] for claim in found["claims"]}
    assert "it ran on the CPU" in reasons["artifact-speedup/36_RMSNorm"]
    assert "it ran on the CPU" in reasons["artifact-running-best/36_RMSNorm/round-1"]
    last = said.out.splitlines()[-1]
    assert last.startswith("claims: ") and "report: " in last and last.endswith("report.html")
    assert "profile: 0 of 4 calls profiled; no gpu" in said.err
    assert rows(tool.bundles()[1]).keys() == {NAME, f"{NAME}/rounds", f"{NAME}/profile"}


def test_every_round_has_its_verdict_reason_and_published_time(claimed):
    (entry,) = artifact_study.entries(Bundle.open(claimed[0].bundles()[1]).records().values())
    told = [(each.round, each.verdict, each.published_ms) for each in entry.rounds]
    assert told[0] == (0, "correct", None) and told[1:] == [
        (1, "correct", 1.5),
        (2, "incorrect", 3.0),
        (3, "error", 4.5),
        (4, "not measured", 6.0),
    ]
    _, good, wrong, not_python, missing = (each.why for each in entry.rounds)
    assert good == "" and wrong and not_python and "round_4 has no kernel.py" in missing
    assert entry.kernels["optimized"].verdict == "correct"
    assert not any(each.best for each in entry.rounds), "times on a CPU are not measurements"


def test_bundles_hold_hashes_and_no_text_of_a_source_without_a_licence(claimed):
    """And all jobs of a folder are given one fixture, of its own problem file."""
    tool, _ = claimed
    measured, benchmark = tool.bundles()
    assert measured.name.endswith("-fixtures") and benchmark.name.endswith("-benchmark")
    (name,) = rows(measured)
    assert name.startswith("L1_36@bf16-") and (tool.results / "fixtures" / "smoke-cpu" / f"{name}.json").exists()
    inputs = {name: {each["name"]: each for each in row["inputs"]} for name, row in rows(benchmark).items()}
    assert all("fixture.json" in given for name, given in inputs.items() if not name.endswith("/profile"))
    kernels = [each for given in inputs.values() for name, each in given.items() if name.startswith("solution_")]
    assert len(kernels) >= 6 and all(len(each["sha256"]) == 64 and "no licence" in each["not_kept"] for each in kernels)
    for bundle in tool.bundles():
        for file in bundle.rglob("*"):
            assert not file.is_file() or MARK.encode() not in file.read_bytes(), file
        done = tool.within("verify", bundle)
        assert done.code == 0, done.out


def row(times: dict[str, float | None]) -> Row:
    """A finished row of rounds on a GPU. times: solution -> ms; None: it is incorrect."""
    results = [
        {"problem": NAME, "solution": name, "verdict": "incorrect" if ms is None else "correct",
         "measurement": ms is not None,
         "reasons": [{"code": "rel_l2", "detail": "too far"}],
         "time_ms": ms and {"median": ms, "ci95": [ms, ms], "iqr": 0.0, "n": 20}}
        for name, ms in times.items()
    ]  # fmt: skip
    samples = {name: {"gated": {"device_ms": [ms] * 20}} for name, ms in times.items() if ms}
    published = {str(at): 1.0 for at in range(len(times))}
    result = {"results": results, "samples_ms": samples}
    return reading.row({"row": "x", "status": "done", "error": "", "problem": NAME, "rounds": published,
                        "content": "0" * 16, "wall_s": 1.0, "fingerprint_id": None, "result": result})  # fmt: skip


def test_the_running_best_is_the_fastest_correct_kernel_so_far():
    found = artifact_study.rounds(
        row({"input_kernel": 4.0, "round_1": 5.0, "round_2": None, "round_3": 2.0, "round_4": 3.0})
    )
    assert [each.best for each in found] == [True, False, False, True, False]
    assert found[3].over_input.ratio == pytest.approx(2.0) and found[2].over_input is None


def test_rounds_of_an_input_kernel_that_is_wrong_are_compared_with_each_other():
    found = artifact_study.rounds(row({"input_kernel": None, "round_1": 5.0, "round_2": 4.0}))
    assert [each.best for each in found] == [False, True, True]
    assert all(each.over_input is None for each in found)


def test_rounds_of_a_folder_without_a_trace_are_refused(tmp_path):
    done = Tool(tmp_path).within("benchmark", "36", "--rounds", *CPU)
    assert done.code == 1 and "no folder holds optimization_trace/round_N" in done.err
