"""Folders in the published layout, made up here: what lint says of them, how they are drawn, and that nothing in them
that is missing, broken or odd stops either. Through the command line, as a reviewer would."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import strict_json

from repro import config
from repro.artifacts import layout
from repro.cli import main
from repro.system.jsonio import Json

SHIPPED = config.ARTIFACTS_DIR
NAME = "36_RMSNorm"
TIMES_MS = {1: 5.0, 2: 3.6, 3: 3.5, 4: 3.52}
# L1_36 at full size: elements that are read, and as many that are written.
ELEMENTS = 1879048192
PEAK = 2.447e12
ROUND_1, TRACE = f"{NAME}/optimization_trace/round_1", f"{NAME}/optimization_trace"
KERNEL = '''"""Version {0}."""


def kernel_function(x, num_features=64, eps=1e-5):
    """Divides by the root of the mean square.

    Step {0}.
    """
    return x / (x.square().mean(1, keepdim=True) + eps).sqrt()
'''
RESULTS, OPTIMIZED_NCU, PROMPT = "benchmark_results.json", "optimized_ncu_metrics.json", "opt_prompt.txt"


def profile(dtype_bytes: int, ms: float) -> Json:
    """A profile of a kernel that moves what it must, in a number of milliseconds."""
    rate = 2 * ELEMENTS * dtype_bytes / ms * 1e3
    values = {
        "dram__bytes_read.sum": ELEMENTS * dtype_bytes,
        "dram__bytes_write.sum": float(ELEMENTS * dtype_bytes),
        "dram__bytes.sum.per_second": rate,
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": 100 * rate / PEAK,
        "launch__registers_per_thread": 32,
    }
    return {"metrics": {"_rms_norm_kernel": values}, "metadata": {"round_num": 1, "ncu_version": "2025.2.1.0"}}


def published(root: Path, name: str = NAME) -> Path:
    """A folder of artifacts with one whole artifact in it."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "problem.py").write_bytes((SHIPPED / NAME / "problem.py").read_bytes())
    (folder / "input_kernel.py").write_text(KERNEL.format(0))
    (folder / "optimized_kernel_beam_search.py").write_text(KERNEL.format(3))
    for number, ms in TIMES_MS.items():
        trace = folder / "optimization_trace" / f"round_{number}"
        trace.mkdir(parents=True)
        times = {"kernel_round_1": {"time_ms": ms, "path": f"./runs/workers/w2/r{number}/artifacts/kernel_round_1.py"}}
        write(trace / RESULTS, {"problem": "problem.py", "size": 4096, "device": "cuda", "dtype": "torch.bfloat16",
                                "warmup": 25, "repeat": 100, "kernels": times})  # fmt: skip
        for which in ("input", "optimized"):
            write(trace / f"{which}_ncu_metrics.json", profile(2, 1.3 * ms))
        write(trace / "strategy.json", [{"category": "memory", "summary": "", "root_causes": []}])
        (trace / "bottleneck_prompt.txt").write_text("You are ...")
        (trace / "bottleneck_response.txt").write_text("[]")
        parent = KERNEL.format(min(number, 3) - 1)
        (trace / PROMPT).write_text(f"The problem:\n```python\nclass Model: ...\n```\nNow:\n```python\n{parent}```\n")
        (trace / "opt_reply.txt").write_text(f"Larger tiles.\n\n```python\n{KERNEL.format(number)}```\n")
        (trace / "reflexion.txt").write_text('```json\n{"was_fix_effective": true}\n```')
        (trace / "kernel.py").write_text(KERNEL.format(number))
    return root


def write(path: Path, value):
    """As the published scripts do: an infinity becomes a token that is not JSON."""
    path.write_text(json.dumps(value))


def edit(path: Path, change: Callable[[Any], Any]):
    """Rewrites a JSON file in place."""
    value = json.loads(path.read_text())
    change(value)
    write(path, value)


def linted(root: Path, tmp_path: Path) -> tuple[int, Json]:
    """`repro verify` of a folder of kernels: exit code and findings."""
    out = tmp_path / "lint.json"
    code = main.main(["verify", str(root), "--json", str(out)])
    return code, strict_json(out.read_text())


def test_a_folder_that_says_what_it_holds_has_notes_alone(tmp_path):
    code, report = linted(published(tmp_path / "a"), tmp_path)
    assert code == 0 and {finding["severity"] for finding in report["findings"]} == {"note"}, report["findings"]
    assert report["artifacts"] == [NAME]
    assert "5 3.6 3.5 3.5 ms, best is round 3" in [finding["what"] for finding in report["findings"]]


def later_best(root: Path):
    edit(root / TRACE / "round_4" / RESULTS, lambda v: v["kernels"]["kernel_round_1"].update(time_ms=3.2))


def other_warmup(root: Path):
    edit(root / TRACE / "round_2" / RESULTS, lambda v: v.update(warmup=500))


def infinite(root: Path):
    edit(root / ROUND_1 / RESULTS, lambda v: v["kernels"]["kernel_round_1"].update(time_ms=float("inf")))


def no_profile(root: Path):
    (root / ROUND_1 / OPTIMIZED_NCU).unlink()
    (root / ROUND_1 / "reflexion.txt").unlink()


def odd_metrics(root: Path):
    def change(value):
        kernel = value["metrics"]["_rms_norm_kernel"]
        kernel["dram__bytes_read.sum"] = [1, 2]
        kernel["launch__registers_per_thread"] = None

    edit(root / ROUND_1 / OPTIMIZED_NCU, change)


def cut_short(root: Path):
    file = root / ROUND_1 / "strategy.json"
    file.write_text(file.read_text()[:-3])


def shipped_elsewhere(root: Path):
    (root / NAME / "optimized_kernel_beam_search.py").write_text(KERNEL.format("of another run"))


def shipped_formatted(root: Path):
    text = KERNEL.format(3).replace("Divides by", "Divides   by").replace("(x, num", "(\n    x,\n    num")
    (root / NAME / "optimized_kernel_beam_search.py").write_text(text)


def no_problem(root: Path):
    (root / NAME / "problem.py").unlink()


def gap(root: Path):
    (root / TRACE / "round_2").rename(root / TRACE / "round_9")


CASES = [
    (later_best, "warning", "shipped_round", ("round 3's kernel (3.5 ms)", "round 4's (3.2 ms)")),
    (other_warmup, "error", "protocols_differ", ("warmup is 25 and 500",)),
    (infinite, "error", "no_time", ("time_ms is inf",)),
    (no_profile, "warning", "missing_transcript", ("optimized_ncu_metrics.json, reflexion.txt",)),
    (odd_metrics, "warning", "bad_metrics", ("dram__bytes_read.sum, launch__registers",)),
    (cut_short, "error", "unreadable", ("is not JSON",)),
    (shipped_elsewhere, "error", "shipped_kernel", ("is no round's kernel",)),
    (shipped_formatted, "note", "shipped_formatting", ("round 3's kernel in other formatting",)),
    (no_problem, "error", "missing_file", ("missing",)),
    (gap, "warning", "missing_round", ("no round 2, 5, 6, 7, 8",)),
]


@pytest.mark.parametrize(
    ("change", "severity", "code", "words"), CASES, ids=lambda value: getattr(value, "__name__", None)
)
def test_every_fault_has_its_finding(tmp_path, change, severity, code, words):
    """One fault, its finding with the numbers, and exit code 2 where it is an error."""
    root = published(tmp_path / "a")
    change(root)
    exit_code, report = linted(root, tmp_path)
    found = [f for f in report["findings"] if f["code"] == code and f["severity"] == severity]
    assert any(all(word in finding["what"] for word in words) for finding in found), report["findings"]
    assert all(finding["where"] and finding["why"] for finding in report["findings"])
    assert exit_code == (2 if report["errors"] else 0)
    assert (severity == "error") <= bool(report["errors"])


@pytest.mark.parametrize("columns", [80, 160])
def test_lint_prints_a_line_a_finding_and_exits_2_on_an_error(columns, tool):
    root = published(tool.folder / "a")
    infinite(root)
    done = tool.within("verify", root, "--json", "lint.json", COLUMNS=str(columns))
    report = strict_json((tool.folder / "lint.json").read_text())
    lines = done.out.splitlines()
    assert done.code == 2 and done.err == ""
    told = [f"{f['where']}: {f['severity']}: {f['what']} [{f['code']}]" for f in report["findings"]]
    assert [line for line in lines if line.endswith("]")] == told and "36_RMSNorm/" in told[0]
    sums = Counter(f["severity"] for f in report["findings"])
    assert lines[-1] == f"1 error · {sums['warning']} warnings · 1 note · in 1 artifact"


def test_lint_reads_one_artifact_of_another_spelling(tmp_path):
    root = published(tmp_path / "a")
    (root / NAME).rename(root / "036___RMS__Norm")
    (found,) = layout.find(root / "036___RMS__Norm")
    assert found.number == 36


def test_lint_of_a_folder_without_artifacts_is_wrong_use(tool):
    done = tool.within("verify", ".")
    assert done.code == 1 and "NN_Name" in done.complaint


def test_unreadable_files_do_not_stop_the_checks(tmp_path):
    """Every file of a trace replaced by garbage, a folder or nothing at all, and a round that is a file."""
    root = published(tmp_path / "a")
    for position, file in enumerate(sorted((root / NAME).rglob("*.*"))):
        if file.is_file():
            file.unlink()
            if position % 4 == 0:
                file.write_bytes(b"\xff\x00[" * 100)
            elif position % 4 == 1:
                file.mkdir()
            elif position % 4 == 2:
                file.write_text('[{"metrics": 3}]' if file.suffix == ".json" else "")
    (root / TRACE / "round_7").write_text("")
    code, report = linted(root, tmp_path)
    assert code == 2 and report["errors"] > 3


def test_the_problem_is_known_by_number_and_sizes(tmp_path):
    """A folder 36 with other sizes is another problem."""
    root = published(tmp_path / "a")
    file = root / NAME / "problem.py"
    assert layout.Artifact(root / NAME).known == "L1_36"
    file.write_text(file.read_text().replace("dim1 = 512", "dim1 = 8 * 8"))
    assert layout.Artifact(root / NAME).known is None
