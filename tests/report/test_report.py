"""Reports of bundles that are made here on disk, row by row as a run writes them.

What reports of recorded bundles say: test_snapshots.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import series as samples
from sampled import seen

from repro.bundle.write import Bundle
from repro.engines.base import Attempt, Engine
from repro.errors import EngineError, EngineGone
from repro.fingerprint import digest
from repro.judge import verdict
from repro.judge.implementation import Implementation
from repro.judge.timing import intervals, published_protocol
from repro.judge.timing.sampling import Series
from repro.problems import catalogue
from repro.records.job import Job, Outcome
from repro.records.options import Options
from repro.records.result import Ceilings, Timing
from repro.records.row import Planned
from repro.records.verdict import Reason
from repro.report import document, elements, markdown, sources
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.runs.rows import Row
from repro.studies import artifact_study
from repro.studies.agent import controls
from repro.studies.agent.agent import Oracle
from repro.system import jsonio
from repro.system.jsonio import Json

CEILINGS = {"copy_tb_s": 4.3, "read_tb_s": 4.4, "write_tb_s": 4.2, "fp32_tflop_s": 52.0, "tf32_tflop_s": 390.0,
            "fp16_tflop_s": 700.0, "bf16_tflop_s": 700.0}  # fmt: skip


def fingerprint(device: str, machine: Json | None = None, **off_pin: str) -> Json:
    """As `repro.fingerprint.collect` makes it, with the values that the headline shows. machine: hard fields."""
    names = {"torch": "2.9.1+cu128", "triton": "3.5.1", "python": "3.12.3"} | off_pin
    names |= {"gpu_name": "NVIDIA H200", "driver": "580.1"} if device == "cuda" else {"cpu_model": "a CPU"}
    values = {name: {"value": v, "source": "test", "status": "ok", "class": "V"} for name, v in names.items()}
    for name, value in (machine or {}).items():
        status = "ok" if value is not None else "not_supported"
        values[name] = {"value": value, "source": "test", "status": status, "class": "H"}
    ids = {"sku_id": digest(values, "H"), "fingerprint_id": digest(values, "HCV")}
    return {"schema_version": 1, "taken": "2025-11-21T12:00:00Z", "device": device, "off_pin": off_pin,
            "values": values} | ids  # fmt: skip


def series(ms: float) -> Series:
    """Forty gated blocks around `ms`, thirteen open ones."""
    return samples([ms * (1 + 0.001 * (block % 3 - 1)) for block in range(40)])


def result(
    key: str, ms: dict[str, float], *, device: str = "cuda", bad: dict[str, str] | None = None, **timing: Any
) -> Json:
    """What a job returns. ms: solution or baseline -> time; bad: solution -> why it is wrong (untimed)."""
    problem = catalogue.load(key)
    baselines = {"eager": "fp32", "eager_tf32": "tf32", "compile": "fp32", "compile_tf32": "tf32"}
    facts = Timing(**{"status": "converged", "left_out": {}, "baseline_classes": baselines} | timing)
    timed = {name: series(value) for name, value in ms.items()}
    reached = Ceilings(**CEILINGS) if device == "cuda" else None
    entries = []
    for name in [*(n for n in ms if n not in facts.baseline_classes), *(bad or {})]:
        implementation = Implementation(name, Path(f"{name}.py"), "ModelNew", [name])
        implementation.hello = {"uid": 61000, "confined": {"seccomp": "applied"}}
        if device == "cuda":
            implementation.profile = {"kernels": [{"name": "mine", "us": 30.0}, {"name": "at::native::x", "us": 10.0}]}
        implementation.distances = {"native": [dict.fromkeys(("rel_l2", "max", "row"), 2.5e-4)]}
        implementation.legacy = {"native": {"allclose_1e-2": True, "allclose_1e-4": False}}
        judged = verdict.Judged("correct", [], "bf16" if "bf16" in key else "tf32", 2.5e-4)
        if bad and name in bad:
            reason = Reason(code="rel_l2", trial="native", detail=bad[name])
            judged = verdict.Judged("incorrect", [reason], rel_l2=1.0)
        entries.append(verdict.result(problem, implementation, judged, timed, facts, reached, "audited").to_json())
    return {
        "results": entries,
        "baselines": {n: verdict.baseline(s).to_json() for n, s in timed.items() if n in facts.baseline_classes},
        "samples_ms": {n: s.record().to_json() for n, s in timed.items()},
        "timing": facts.to_json() | {"clock": "CUDA events behind a gate, cold L2"},
        "ceilings": reached and reached.to_json(),
        "trials": [{"kind": "native", "seed": 7}],
        "trials_left_out": {},
        "margin": 29.5,
        "wall_s": 12.5,
    }


class Scripted(Engine):
    """Answers every job with what `script` holds for it: a result, or an error."""

    name = "docker"

    def __init__(self, device: str, script: Json, machine: Json | None = None, **off_pin: str) -> None:
        self.device, self.script, self.machine = device, script, fingerprint(device, machine, **off_pin)
        self.description = {
            "engine": "docker", "isolation": "containers", "version": "28.0", "image_id": f"sha256:{'abc0' * 16}"
        }  # fmt: skip

    def _attempt(self, jobs: list[Job], timeout_s: float, progress: Callable[[str], None]) -> Attempt:
        (job,) = jobs
        answer = self.script[job.id]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            yield Outcome(job.id, "failed", error=answer, fingerprint=self.machine)
        else:
            yield Outcome(job.id, "done", answer, fingerprint=self.machine)
        return ""


def bundle_of(
    folder: Path, verb: str, script: Json, columns: dict[str, Json], *, device: str = "cuda",
    parameters: Json | None = None, unplanned: dict[str, str] | None = None,
    machine: Json | None = None, **off_pin: str,
) -> Bundle:  # fmt: skip
    """A bundle of scripted rows, read again from disk. unplanned: row -> why it never became a job."""
    rows = [
        Row(Planned(row=name, **of), None if unplanned and name in unplanned else Job(name, "evaluate"),
            error=(unplanned or {}).get(name, ""))
        for name, of in columns.items()
    ]  # fmt: skip
    given = {"size": "full" if device == "cuda" else "smoke", "device": device} | (parameters or {})
    bundle = Bundle.create(folder, verb, [row.id for row in rows], given)
    bundle.manifest["started"] = "2025-11-21T12:00:00Z"
    engine = Scripted(device, script, machine, **off_pin)
    try:
        Run(engine, folder, Progress()).execute(rows, bundle, lambda row: "")
    except EngineError:
        pass
    named = bundle.path.with_name(f"20251121T120000Z-{verb}")
    bundle.path.rename(named)
    return Bundle.open(named)


def study(folder: Path, device: str = "cuda", *, sampled: bool = False, **off_pin: str) -> Bundle:
    """An agent study: two repeats, one not converged, an incorrect solution, a failed job, a missing fixture.
    sampled: with what a sampler saw, of one row a GPU that was throttled while it was timed."""
    fast = {"eager": 4.0, "eager_tf32": 2.0, "compile": 3.0, "compile_tf32": 1.5}
    script = {
        "L2_99/oracle/0": result("L2_99", fast | {"mine": 1.0}, device=device),
        "L2_99/oracle/1": result("L2_99", fast | {"mine": 1.1}, device=device, status="not_converged"),
        "L2_84/oracle/0": result("L2_84", fast, device=device, bad={"mine": "0.4 over the limit 0.02 of class bf16"}),
        "L1_36/oracle/0": "the container ran out of memory",
        "L2_99/nop/0": result("L2_99", {}, device=device, bad={"mine": "1 over the limit 0.02 of class bf16"}),
    }
    if sampled:
        script["L2_99/oracle/0"] |= seen()
        script["L2_99/oracle/1"] |= seen({"hw_thermal": (4.0, 5.5)})
        script["L2_84/oracle/0"] |= seen(seconds=4.0, timed=None)
    columns = {
        name: {"problem": name.split("/")[0], "arm": name.split("/")[1], "control": "/nop/" in name,
               "repeat": int(name[-1])}
        for name in [*script, "L3_20/oracle/0"]
    }  # fmt: skip
    arms = {"arms": {agent.name: agent.label for agent in (Oracle(), controls.EVERY["nop"])}}
    return bundle_of(folder, "run", script, columns, device=device, parameters=arms,
                     unplanned={"L3_20/oracle/0": "no fixture for L3_20"}, **off_pin)  # fmt: skip


INPUT_MS = {"eager": 4.0, "compile": 3.0, "input_kernel": 2.8}
BOTH_MS = INPUT_MS | {"optimized": 2.4}


def artifact_columns(*names: str) -> dict[str, Json]:
    """The columns of artifacts whose folders lack nothing."""
    return {name: {"problem": name, "number": int(name[:2]), "missing": []} for name in names}


def artifacts(folder: Path, device: str = "cuda") -> Bundle:
    """An artifact study: one good folder, one with a wrong kernel, one without a kernel, one that failed."""
    script = {
        "36_RMSNorm": result("L1_36@bf16", BOTH_MS, device=device),
        "43_Max_Pooling_3D": result("L1_43@bf16", INPUT_MS, device=device, bad={"optimized": "1 over the limit 0.02"}),
        "82_conv": "the job's process ended with signal SIGKILL",
    }
    columns = artifact_columns(*script, "04_Matrix")
    columns["04_Matrix"]["missing"] = ["input_kernel.py", "optimized_kernel_beam_search.py"]
    return bundle_of(folder, "benchmark", script, columns, device=device, parameters={"artifacts": "artifacts"},
                     unplanned={"04_Matrix": "04_Matrix holds no kernel"})  # fmt: skip


def drawn(bundle: Bundle) -> str:
    return markdown.render(document.build([bundle]))


def line_with(text: str, *words: str) -> str:
    """The one table row in which all these words stand."""
    found = [line for line in text.splitlines() if line.startswith("|") and all(word in line for word in words)]
    assert found, f"no row with {words} in\n{text}"
    return found[0]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_every_row_that_failed_stands_there_with_its_reason(tmp_path, device):
    text = drawn(study(tmp_path, device))
    line_with(text, "L2_84", "✗ wrong: relative L2 error 0.4", "on the published inputs")
    line_with(text, "L1_36", "RMSNorm", "not measured: the container ran out of memory")
    line_with(text, "L3_20", "MobileNetV2", "not measured: no fixture for L3_20")
    line_with(text, "L2_99", "1 over the limit 0.02 of class bf16")
    assert "4 of 6 rows measured, the run is incomplete. Missing: L1_36/oracle/0, L3_20/oracle/0." in text
    assert "4 of 6 rows measured" in text.splitlines()[2]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_solutions_of_one_problem_are_told_apart(tmp_path, device):
    """`repro evaluate good.py bad.py --problem L1_36`: which of the two is wrong?"""
    script = {
        "L1_36/good": result("L1_36", {"eager": 4.0, "mine": 3.6}, device=device),
        "L1_36/bad": result("L1_36", {"eager": 4.0}, device=device, bad={"mine": "too far"}),
        "L1_36/dead": "the container ran out of memory",
    }
    columns = {name: {"problem": "L1_36", "file": f"{name[6:]}.py"} for name in script}
    text = drawn(bundle_of(tmp_path, "evaluate", script, columns, device=device))
    assert "✓ correct" in line_with(text, "L1_36", "good.py")
    line_with(text, "L1_36", "bad.py", "✗ wrong: ", "too far")
    line_with(text, "L1_36", "dead.py", "out of memory")


def test_what_stands_in_a_documents_cell_stays_there():
    rows = [["a | b [x](y) <i> `"] * 2]
    table = elements.table("t", "c", [("text", "text"), ("code", "code")], rows)
    part = elements.section("t", "t", tables=[table])
    last = markdown.section(part).splitlines()[-1]
    assert last == "| a \\| b [x]\\(y) \\<i> \\` | `` a \\| b [x](y) <i> ` `` |"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_every_artifact_that_failed_stands_there_with_its_reason(tmp_path, device):
    text = drawn(artifacts(tmp_path, device))
    line_with(text, "43 Max Pooling 3D", "✗ wrong: relative L2 error 1")
    line_with(text, "82 conv", "signal SIGKILL")
    line_with(text, "04_Matrix", "04_Matrix holds no kernel")
    line_with(text, "04 Matrix", "optimized_kernel_beam_search.py is missing")
    assert "2 of 4 rows measured, the run is incomplete" in text


def test_rows_that_a_lost_engine_left_out_are_named(tmp_path):
    """What ran before is kept; what did not run says why."""
    gone = "the Docker engine went away in the middle of a job"
    script = {"a": result("L1_36", {"eager": 4.0, "mine": 3.6}), "b": EngineGone(gone), "c": None}
    columns = {name: {"problem": f"P_{name}", "file": f"{name}.py"} for name in script}
    whole = document.build([bundle_of(tmp_path, "evaluate", script, columns)])
    (source,) = whole.sources
    assert source.status == "incomplete" and (whole.headline.planned, whole.headline.finished) == (3, 1)
    text = markdown.render(whole)
    for name, how in (("b", "lost: "), ("c", "")):
        assert f"- ○ {name}: not measured: {how}{gone}" in text


@pytest.mark.parametrize("make", [study, artifacts])
def test_times_of_the_cpu_are_no_measurement(tmp_path, make):
    """The report says so and shows neither a time nor a speedup; on a GPU it shows both and does not say so."""
    cpu = drawn(make(tmp_path / "cpu", "cpu"))
    assert "not a measurement" in " ".join(cpu.replace("*", "").split())
    tables = "\n".join(line for line in cpu.splitlines() if line.startswith("|"))
    assert " ms" not in tables and "x [" not in tables
    gpu = drawn(make(tmp_path / "gpu", "cuda"))
    assert "not a measurement" not in " ".join(gpu.replace("*", "").split())
    assert " ms" in gpu and "x [" in gpu


def test_a_stack_that_is_not_the_pinned_one_is_stamped(tmp_path):
    text = drawn(study(tmp_path / "a", torch="2.11.0", triton="3.6.0"))
    assert "this is not the pinned software (torch 2.11.0, triton 3.6.0)" in text and ", off-pin)" in text
    pinned = drawn(study(tmp_path / "b"))
    assert "off-pin" not in pinned
    assert "**H200** (torch 2.9.1+cu128, Triton 3.5.1, driver 580.1, pinned)" in pinned


def test_the_geometric_mean_is_over_correct_solutions_and_says_how_many(tmp_path):
    """Failed problems are neither left out silently nor counted as 1x; the control has no mean."""
    bundle = study(tmp_path)
    whole = document.build([bundle])
    (source,) = sources.read([bundle])
    oracle, nop = sources.groups(source)
    assert len(oracle.solutions) + len(oracle.lost) == 5 and nop.means == {}
    ratios = [each.verdict.speedup["eager"] for each in oracle.solutions if each.outcome == "correct" and each.verdict]
    assert [round(ratio.ratio, 6) for ratio in ratios] == [4.0, round(4 / 1.1, 6)]
    mean = intervals.geometric_mean([ratio.to_json() for ratio in ratios])
    assert oracle.means["eager"].to_json() == mean | {"of": 5}
    (card,) = [card for card in whole.cards if card.label == "Speedup over eager"]
    assert card.value == "3.81x" and card.detail.endswith("geometric mean of 2 of 5")
    assert whole.cards[0].value == "2 of 5" and whole.headline.text.startswith("2 of 5 correct")


def test_a_report_says_how_far_the_judge_was_from_the_solutions(tmp_path):
    """Every trust level and separation of the run; one in the judge's own process is never hidden among the others."""
    script = {name: result("L1_36", {"eager": 4.0, "mine": 3.9}) for name in ("a", "b")}
    columns = {name: {"problem": "L1_36", "file": f"{name}.py"} for name in script}
    script["b"]["results"][0] |= {"trust": "dev", "separation": "none"}
    whole = document.build([bundle_of(tmp_path, "evaluate", script, columns)])
    text = jsonio.dumps(whole.to_json())
    assert "audited, separation user; dev, separation none" in text and "Judged with --trust dev" in text


def test_what_the_judges_clock_does_not_vouch_for_counts_as_no_gain(tmp_path):
    """4x of 10 us, by the worker's word: told, and 1x in the mean: left out, it would raise that of the others."""
    script = {"a": result("L1_82", {"eager": 4.0, "mine": 1.0}), "b": result("L2_99", {"eager": 0.04, "mine": 0.01})}
    columns = {"a": {"problem": "L1_82", "file": "a.py"}, "b": {"problem": "L2_99", "file": "b.py"}}
    script["b"]["results"][0] |= {"verdict": "correct", "reasons": []}  # no GPU is so fast
    bundle = bundle_of(tmp_path, "evaluate", script, columns)
    (group,) = sources.groups(sources.read([bundle])[0])
    assert [each.word("eager") for each in group.solutions] == ["FAST", "UNCONFIRMED"]
    mean = group.means["eager"]
    assert (mean.n, mean.of) == (2, 2) and mean.ratio == pytest.approx(2.0)
    line_with(drawn(bundle), "| b ", "UNCONFIRMED")


def test_nothing_correct_has_no_mean(tmp_path):
    script = {"a": result("L1_36", {"eager": 4.0}, bad={"mine": "wrong"})}
    whole = document.build([bundle_of(tmp_path, "evaluate", script, {"a": {"problem": "L1_36", "file": "mine.py"}})])
    assert [card.label for card in whole.cards] == ["Correct", "GPU and stack"]
    assert "speedups" not in [section.id for section in whole.sections]
    assert whole.headline.text == "0 of 1 correct (1 wrong)"


def by_both_protocols(folder: Path) -> Bundle:
    """One artifact, timed by the published protocol too, which could not compile; a quick look."""
    found = result("L1_36@bf16", BOTH_MS, baseline_classes={"eager": "bf16", "compile": "bf16"})
    found["parity"] = {
        "times_ms": {"eager": 4.1, "compile": None, "input_kernel": 2.9, "optimized": 2.05},
        "reasons": {"compile": "BackendCompilerFailed: no"}, "protocol": published_protocol.PROTOCOL, "grad": True,
        "measurement": True, "wall_s": 9.0,
    }  # fmt: skip
    options = Options(parity=True).quick().on("cuda").to_json()
    parameters = {"artifacts": "artifacts", "quick": True, "options": options}
    columns = artifact_columns("36_RMSNorm")
    return bundle_of(folder, "benchmark", {"36_RMSNorm": found}, columns, parameters=parameters)


def test_the_published_protocol_stands_beside_ours(tmp_path):
    text = drawn(by_both_protocols(tmp_path))
    row = [cell.strip() for cell in line_with(text, "36_RMSNorm", "4.1").split("|")[1:-1]]
    assert row == ["36_RMSNorm", "4.1", "4", "3", "2.9", "2.8", "2.05", "2.4", "2.00x", "1.25x"]
    assert "do_bench(warmup=500, rep=100)" in text and "**Note.** A quick look" in text


def test_every_torch_baseline_has_its_column_or_its_reason(tmp_path):
    classes = dict.fromkeys(("eager", "compile", "reduce_overhead"), "bf16")
    script = {"36_RMSNorm": result("L1_36@bf16", BOTH_MS | {"reduce_overhead": 2.9}, baseline_classes=classes,
                                   left_out={"max_autotune": "timeout: run took longer than 20 s"})}  # fmt: skip
    bundle = bundle_of(tmp_path, "benchmark", script, artifact_columns(*script), parameters={"artifacts": "artifacts"})
    whole = document.build([bundle])
    text = markdown.render(whole)
    assert "| reduce-overhead ms " in text and "| max-autotune ms" not in text
    assert "| 2.9 " in line_with(text, "36_RMSNorm", "optimized", "FAST")
    assert "baseline max_autotune left out: timeout" in jsonio.dumps(whole.to_json())


def test_the_line_of_a_problem_has_each_kernels_verdict_time_and_speedups(tmp_path):
    line = artifact_study.summary(by_both_protocols(tmp_path).record("36_RMSNorm"))
    assert line.startswith("input_kernel correct (") and line.endswith(", 2.4 ms, 1.67x eager, 1.25x compile")


def test_an_artifacts_entry_has_its_numbers_ready(tmp_path):
    entry = artifact_study.entry(by_both_protocols(tmp_path).records()["36_RMSNorm"]).to_json()
    assert entry.keys() >= {"problem", "eager_ms", "compile_ms", "input_kernel_ms", "optimized_ms", "fingerprint_id"}
    assert entry["optimized_ms"] == entry["times_ms"]["optimized"]["median"] > 0
    assert entry["times_ms"]["optimized"].keys() >= {"median", "ci95", "iqr", "n"}
    assert entry["best_baseline"]["baseline"] == "compile" and 0 < entry["floor_fraction"] < 1
    assert entry["parity"]["optimized_ms"] == 2.05 and entry["parity"]["compile_ms"] is None


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("verb", ["benchmark", "evaluate"])
def test_distances_without_end_are_drawn(tmp_path, verb, value):
    """On disk an infinity is a word: a report of such a row must still come out."""
    found = result("L1_36", {"eager": 4.0}, bad={"optimized": "no end"})
    found["results"][0] |= {"rel_l2": value, "distances": {"native": [{"rel_l2": value, "max": value, "row": value}]}}
    columns = artifact_columns("36_RMSNorm")
    columns["36_RMSNorm"]["file"] = "mine.py"
    bundle = bundle_of(tmp_path, verb, {"36_RMSNorm": found}, columns)
    assert "no end" in line_with(drawn(bundle), "no end")


def test_a_refused_fixture_is_shown_with_its_reason(tmp_path):
    limits = {"seed": 1, "stress": None, "weights_sha256": "0" * 64}
    made = {
        "problem": "L2_84", "margin": 0.8, "best_cheat": "zeros", "refused": "the cheat 'zeros' passes every trial",
        "trials": {"native": limits, "stress": limits}, "trials_left_out": {}, "build_s": 1.25,
        "schema_version": 1, "size": "smoke",
        "dtype": "float32", "problem_sha256": "0" * 64, "generator": "philox", "device": "cpu", "public_seed": 1,
        "inputs": [], "weights_sha256": "0" * 64, "output": {},
    }  # fmt: skip
    good = made | {"problem": "L1_36", "refused": "", "margin": 29.5, "best_cheat": "half_of_channels"}
    script = {"L2_84": made, "L1_36": good, "L1_82": "no space left on device"}
    bundle = bundle_of(tmp_path, "fixtures", script, {name: {"problem": name} for name in script}, device="cpu")
    text = drawn(bundle)
    assert " 2 " in line_with(text, "L2_84", "zeros", "✗ refused: the cheat 'zeros' passes every trial")
    assert "✓ usable" in line_with(text, "L1_36", "29.5")
    assert "- ○ L1_82: not measured: failed: no space left on device" in text
