"""`repro artifacts lint` on a folder with the shape and the figures of the published study, and made-up texts: every
finding that is due, by severity, code and place, with its figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Tool, strict_json
from test_artifacts import linted, write

from repro import config
from repro.artifacts import readme
from repro.problems import catalogue

NAMES = {
    4: "04_Matrix_vector_multiplication",
    36: "36_RMSNorm",
    43: "43_Max_Pooling_3D",
    77: "77_conv_transposed_3D_square_input_square_kernel___padded____dilated____strided__",
    82: "82_conv_depthwise_2D_square_input_square_kernel",
}
# Times of rounds 1 to 8, ms, in benchmark_results.json, and the running best that the README gives.
TIMES_MS = {
    4: (6.8029, 6.2023, 6.6145, 4.0312, 8.4917, 4.5859, 4.5872, 1.9516),
    36: (3.54753, 3.5528, 3.5191, 3.5790, 3.5532, 3.5849, 3.6186, 3.5139),
    43: (5.2163, 2.6718, 2.7764, 2.43649, 2.5411, 3.4864, 2.7008, 2.6156),
    77: (10.2706, 6.7856, 10.7919, 7.3329, 5.4119, 10.6992, 9.9141, 8.2345),
    82: (1.8184, 1.5061, 1.8545, 2.1388, 1.8585, 1.2253, 2.1061, 1.6140),
}
BEST_MS = {
    4: "6.803 6.202 6.202 4.031 4.031 4.031 4.031 **1.956**",
    36: "3.563 3.563 **3.525** 3.525 3.525 3.525 3.525 3.525",
    43: "5.216 2.672 2.672 **2.436** 2.436 2.436 2.436 2.436",
    77: "14.839 9.836 9.836 9.836 **7.821** 7.821 7.821 7.821",
    82: "1.818 1.506 1.506 1.506 1.506 **1.225** 1.225 1.225",
}
# The README's torch.compile and input kernel, best round, speedup; eager and the input kernel in the prompts.
GIVEN = {
    4: ("2.069", "9.510", 8, "1.06", 2.0928, 9.5118),
    36: ("8.135", "5.461", 3, "2.31", 10.9546, 5.3286),
    43: ("8.267", "6.346", 4, "3.39", 6.2473, 6.3464),
    77: ("20.052", "28.700", 5, "2.56", 14.2310, 19.8687),
    82: ("3.619", "2.603", 6, "2.95", 3.6714, 2.6033),
}
# The round whose kernel each round started from, 0 the input kernel, -1 one that is not published; rounds whose kernel
# is not the reply's; rounds whose input and whose optimized profile is of bfloat16.
PARENTS = {4: (0, 1, 2, 2, -1, 4, 4, 4), 36: (0, 1, 1, 3, 3, 3, 3, 3), 43: (0, 1, 2, 2, 2, 4, 4, 4),
           77: (0, 1, 2, 2, 2, 5, 5, 5), 82: (0, 1, -1, 2, 2, 2, 2, 6)}  # fmt: skip
REPAIRED = {4: (2, 5, 8), 36: (2, 3), 43: (2, 4), 77: (), 82: ()}
BFLOAT16 = {4: ((1, 2), (1,)), 36: ((1, 2, 3), (1,)), 43: ((), ()), 77: (range(1, 9), range(1, 9)), 82: ((1,), ())}
PEAK = 2.4468e12
WRITTEN, DRAM, RATE = (
    "dram__bytes_write.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes.sum.per_second",
)
OCCUPANCY, L1 = "sm__warps_active.avg.pct_of_peak_sustained_active", "l1tex__t_sector_hit_rate.pct"
SM, MEMORY = ("sm__throughput.avg.pct_of_peak_sustained_elapsed",
              "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")  # fmt: skip
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
LABELS = {DRAM: "DRAM throughput (% peak)", RATE: "DRAM bandwidth (GB/s)", OCCUPANCY: "Occupancy (% peak)",
          L1: "L1 cache hit rate", SM: "Compute throughput (% peak)", MEMORY: "Compute-memory throughput (% peak)",
          TENSOR: "Tensor core utilization (% peak)"}  # fmt: skip
# Metrics of some profiles: number, which, round.
PROFILED: dict[tuple[int, str, int], dict[str, float]] = {
    (4, "input", 1): {DRAM: 18.48, RATE: 452.19e9, OCCUPANCY: 6.25, L1: 0},
    (4, "optimized", 8): {DRAM: 91.11, RATE: 2229.33e9, OCCUPANCY: 95.22, L1: 45.42},
    (36, "input", 1): {DRAM: 82.76, RATE: 2025.10e9, SM: 20.37},
    (36, "optimized", 3): {DRAM: 86.92, RATE: 2126.86e9, SM: 8.47},
    (36, "optimized", 8): {DRAM: 89.48, RATE: 2189.45e9, SM: 8.6},
    (43, "input", 1): {DRAM: 30.65, RATE: 749.9e9, MEMORY: 41.89, L1: 83.74},
    (43, "optimized", 4): {DRAM: 66.0, RATE: 1614.96e9, MEMORY: 99.48, L1: 84.08},
    (77, "input", 1): {MEMORY: 97.76, TENSOR: 1.92, RATE: 9.66e9, WRITTEN: 0.25994e9, L1: 99.12},
    (77, "optimized", 1): {RATE: 18.62e9, WRITTEN: 0.25928e9},
    (77, "optimized", 2): {RATE: 28.18e9, WRITTEN: 0.25937e9},
    (77, "optimized", 5): {MEMORY: 92.82, TENSOR: 4.69, RATE: 37.06e9, L1: 98.36, WRITTEN: 0.27282e9},
    (82, "input", 1): {DRAM: 16.58, RATE: 405.66e9, MEMORY: 37.36, OCCUPANCY: 91.59, L1: 77.05},
    (82, "optimized", 6): {DRAM: 70.42, RATE: 1722.89e9, MEMORY: 92.17, OCCUPANCY: 97.95, L1: 88.62},
}  # fmt: skip
# The rounds of the README's optimized column. The kernel that 36 ships is round 3's.
COLUMN = {4: 8, 36: 8, 43: 4, 77: 5, 82: 6}


def kernel(version: object) -> str:
    return f'"""Version {version}."""\n\n\ndef kernel_function(x):\n    return x + {version!r}\n'


def profile(number: int, which: str, round_number: int, time_ms: float) -> dict[str, Any]:
    work = catalogue.load(f"L1_{number:02d}").work
    assert work is not None
    size = 2 if round_number in BFLOAT16[number][which == "optimized"] else 4
    # As published for 77: a cache kept the last of what was written.
    read, written = 0.0171e9 if number == 77 else work.read_elements * size, work.written_elements * size
    rate = (read + written) / time_ms * 1e3 / 1.7
    values = {"dram__bytes_read.sum": read, WRITTEN: written, RATE: rate, DRAM: 100 * rate / PEAK}
    own = PROFILED.get((number, which, round_number), {})
    values |= own | ({DRAM: 100 * own[RATE] / PEAK} if RATE in own and DRAM not in own else {})
    return {"metrics": {"kernel": values}}


def a_round(folder: Path, number: int, at: int) -> None:
    """One round_N folder with its ten files."""
    folder.mkdir(parents=True)
    time_ms, eager, before = TIMES_MS[number][at - 1], *GIVEN[number][4:]
    write(folder / "benchmark_results.json", {"dtype": "torch.bfloat16", "device": "cuda", "warmup": 25, "repeat": 100,
                                              "kernels": {"kernel_round_1": {"time_ms": time_ms}}})  # fmt: skip
    for which in ("input", "optimized"):
        write(folder / f"{which}_ncu_metrics.json", profile(number, which, at, time_ms))
    prompt = f"PyTorch Eager baseline: {eager} ms\n```python\n{kernel(PARENTS[number][at - 1])}```\n"
    if at == 2:
        prompt += f"**Performance**: {before + 1:.4f}ms → 9.9999ms\n**Performance**: {before:.4f}ms → {time_ms}ms\n"
    (folder / "opt_prompt.txt").write_text(prompt)
    reply = kernel("before repair" if at in REPAIRED[number] else at)
    (folder / "opt_reply.txt").write_text(f"```python\n{reply}```\n")
    (folder / "kernel.py").write_text(kernel(at))
    (folder / "strategy.json").write_text("[]")
    for name in ("reflexion", "bottleneck_prompt", "bottleneck_response"):
        (folder / f"{name}.txt").write_text("")


def shown(name: str, value: float) -> str:
    return f"**{value / 1e9:,.0f}**" if name == RATE else f"{value:.1f}%"


def section(number: int) -> str:
    """The README's part about one artifact, with the markup of the published one."""
    compiled, before, best, speedup, *_ = GIVEN[number]
    title = re.sub(r"_square_input_square_kernel_.*", "_square", NAMES[number]).replace("_", "\\_")
    lowest = min(float(value.strip("*")) for value in BEST_MS[number].split())
    before_and_after = PROFILED[number, "input", 1], PROFILED[number, "optimized", COLUMN[number]]
    rows = "".join(f"| {label} | {' | '.join(shown(name, each[name]) for each in before_and_after)} |\n"
                   for name, label in LABELS.items() if name in before_and_after[0])  # fmt: skip
    return (
        f"### {title}\n\n`torch.compile`: **{compiled}ms**\\\n`input kernel`: **{before}ms**\n\n"
        f"| Round | {' | '.join('12345678')} |\n|{'---|' * 9}\n"
        f"| Best (ms) | {' | '.join(BEST_MS[number].split())} |\n\n"
        f"Best: round {best} — **{lowest:.3f}ms** ({speedup}x vs torch.compile)\n\nCounters:\n\n"
        f"| Metric | Input | Optimized |\n|---|---|---|\n{rows}\n"
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study")
    text = "# A study\n\n| Problem | `torch.compile` (ms) | Agent (ms) | Speedup |\n|---|---|---|---|\n"
    for n, (compiled, _, _, speedup, *_) in GIVEN.items():
        text += f"| `{n}_{NAMES[n][3:]}` | {compiled} | **{BEST_MS[n].split('**')[1]}** | {speedup}x |\n"
    text += "\n## Rounds\n\n"
    for number, name in NAMES.items():
        for at in range(1, 9):
            a_round(root / name / "optimization_trace" / f"round_{at}", number, at)
        (folder,) = config.ARTIFACTS_DIR.glob(f"{number:02d}_*")
        (root / name / "problem.py").write_bytes((folder / "problem.py").read_bytes())
        (root / name / "input_kernel.py").write_text(kernel(0))
        shipped = kernel(GIVEN[number][2])
        shipped = shipped.replace("(x)", "(\n    x,\n)") if number == 36 else shipped
        (root / name / "optimized_kernel_beam_search.py").write_text(shipped)
        text += section(number)
    text += "## To do it again\n\nThe second kernel is 3.1x as fast.\n\n```\n# A comment\neager=3.1  2.00x\n"
    text += f"[2/5] {NAMES[36]}\neager=12.879  compile=8.135  input=5.457  opt=3.524  2.31x\n```\n"
    (root / "README.md").write_text(text)
    return root


README_36, README_77 = f"README, {NAMES[36]}", f"README, {NAMES[77]}"
TRACES = {number: f"{name}/optimization_trace" for number, name in NAMES.items()}
# Severity, code and place of every finding on the study, and figures in its text.
DUE = [
    ("error", "profiler_time", README_77,
     ("(input 28.68, round 1 14.84, round 2 9.811, round 5 7.823 ms)", 
      "round 1 is 14.84 ms, in the trace 10.27 ms (+44.5 %)",
      "round 2 to 4 is 9.836 ms, in the trace 6.786 ms (+45.0 %)", "round 5 to 8 is 7.821 ms", "5.412 ms (+44.5 %)",
      "input kernel takes 28.7 ms, in the prompts 19.87 ms (+44.4 %)")),
    ("warning", "readme_times", f"README, {NAMES[4]}", ("round 8 is 1.956 ms, in the trace 1.952 ms (+0.2 %)",)),
    ("warning", "readme_times", README_36, ("round 1, 2 is 3.563 ms, in the trace 3.548 ms (+0.4 %)",
                                            "round 3 to 7 is 3.525 ms, in the trace 3.519 ms (+0.2 %)",
                                            "round 8 is 3.525 ms, in the trace 3.514 ms (+0.3 %)")),
    ("warning", "readme_times", README_36, ("input kernel takes 5.461 ms, in the prompts 5.329 ms (+2.5 %)",)),
    ("warning", "readme_times", README_36, ("eager takes 12.88 ms, in the prompts 10.95 ms (+17.6 %)",)),
    ("warning", "best_round", TRACES[36], ("from round 3 on, the trace in round 8",)),
    ("warning", "shipped_kernel", f"{NAMES[36]}/optimized_kernel_beam_search.py",
     ("round 3's kernel in other formatting (3.519 ms), the fastest is round 8's (3.514 ms)",)),
    ("warning", "slower_baseline", f"README, {NAMES[43]}", ("8.267 ms, eager 6.247 ms", "2.56x", "3.39x")),
    ("warning", "readme_profile", README_36,
     ("input is round 1's profile (bfloat16)",
      "optimized is round 8's profile (float32), not round 3's: 86.92 %, 2127 GB/s, 8.47 %")),
    ("warning", "readme_profile_dtype", f"README, {NAMES[4]}",
     ("input is round 1's profile (bfloat16)", "optimized is round 8's profile (float32)",
      "4.3 GB in 1.952 ms: 2202 GB/s, 90 % of the peak (README: 91.1 %, 2,229 GB/s)")),
    ("warning", "readme_profile_dtype", README_36, ("3.519 ms: 2136 GB/s, 87 %",)),
    ("warning", "readme_profile_dtype", f"README, {NAMES[43]}",
     ("input is round 1's profile (float32)", "optimized is round 4's profile (float32)", "954 GB/s, 39 %", "66.0 %")),
    ("warning", "readme_profile_dtype", f"README, {NAMES[82]}",
     ("optimized is round 6's profile (float32)", "1.07 GB in 1.225 ms: 873 GB/s, 36 %", "70.4 %, 1,723 GB/s")),
    ("warning", "profile_dtype", TRACES[4], ("13 of 16", "input profile of round 3 to 8 float32 or two reads",
                                             "round 2 to 7 float32 or two reads", "round 8 float32")),
    ("warning", "profile_dtype", TRACES[36], ("12 of 16", "input profile of round 4 to 8", "round 2 to 8")),
    ("warning", "profile_dtype", TRACES[43], ("16 of 16",)),
    ("warning", "profile_dtype", TRACES[82], ("15 of 16", "input profile of round 2 to 8", "round 1 to 8")),
    ("warning", "parent_unresolved", TRACES[4] + "/round_5", ()),
    ("warning", "parent_unresolved", TRACES[82] + "/round_3", ()),
    ("warning", "unpublished_repair", TRACES[4], ("round 2, 5, 8",)),
    ("warning", "unpublished_repair", TRACES[36], ("round 2, 3",)),
    ("warning", "unpublished_repair", TRACES[43], ("round 2, 4",)),
    ("warning", "readme_unread", "README", ("1 figure was not read", "3.1x")),
    ("note", "readme_profile", README_77,
     ("input is round 1's profile (bfloat16); optimized is round 5's profile (bfloat16)",)),
    ("note", "warmup_repeat", "{04,36,43,77,82}*/optimization_trace", ("(25, 100)",)),
    ("note", "no_baseline", "{04,36,43,77,82}*/optimization_trace", ()),
    *(("note", "running_best", TRACES[number], (f"best is round {best}",))
      for number, best in ((4, 8), (36, 8), (43, 4), (77, 5), (82, 6))),
]  # fmt: skip


def test_every_finding_on_the_published_study_is_due(study: Path, tmp_path: Path) -> None:
    code, report = linted(study, tmp_path)
    found = {(f["severity"], f["code"], f["where"], f["what"]) for f in report["findings"]}
    assert sorted(each[:3] for each in found) == sorted(each[:3] for each in DUE)
    for *key, words in DUE:
        assert any([*each[:3]] == key and all(word in each[3] for word in words) for each in found), (key, words)
    assert code == 2 and report["errors"] == 1 and report["schema_version"] == 2
    dtypes = {"bfloat16": 24, "float32": 44, "float32 or two reads": 12}
    assert report["counts"] == {
        "rounds": 40,
        "parents_found": 38,
        "repaired": 7,
        "profiles": 80,
        "profile_dtypes": dtypes,
    }
    assert [each["text"] for each in report["unread"]] == ["3.1x"]


def test_the_last_line_counts_findings_and_unread_figures(study: Path, tool: Tool) -> None:
    done = tool.within("artifacts", "lint", study, "--json", "lint.json", COLUMNS="100")
    report = strict_json((tool.folder / "lint.json").read_text())
    lines = done.out.splitlines()
    assert done.code == 2 and max(map(len, lines[:-3])) <= 100
    assert (
        lines[-1]
        == f"1 error · {len(report['findings'])} findings in 5 artifacts · 1 figure of the README was not read"
    )
    assert "38 parents found, 7 kernels repaired, 80 profiles (24 bfloat16, 44 float32, 12 float32 or two" in lines[-2]


def test_the_rest_of_the_readme_is_not_counted_for_one_artifact(study: Path, tmp_path: Path) -> None:
    code, report = linted(study / NAMES[82], tmp_path)
    assert code == 0 and {f["where"].split("/")[0] for f in report["findings"]} == {
        "README", f"README, {NAMES[82]}", NAMES[82],
    }  # fmt: skip
    assert report["counts"]["parents_found"] == 7


def test_escaped_markdown_and_units_are_read() -> None:
    text = (
        "### 04\\_Matrix\\_vector\\*\n\ninput kernel: **9,510.5 µs**\\\n`torch.compile`: 2.069 ms, it says 3 ms.\n\n"
        "#### Rounds\n\n| Round | 1 | 2 | 3 |\n|---|---|---|---|\n| Best (µs) | 1,234.5 | **1.1ms** | 1,95 |\n\n"
        "### 99\\_Other\n\n`input kernel`: **5ms**\n"
    )
    found = readme.read(text, {4})
    assert found.artifacts[4].times == {"input": [9.5105], "compile": [2.069]}
    assert found.artifacts[4].rounds == {1: 1.2345, 2: 1.1}
    assert [(each.line, each.text, each.artifact) for each in found.unread] == [
        (4, "3 ms", 4), (10, "1,95", 4), (14, "5ms", None),
    ]  # fmt: skip


def test_a_table_below_an_unknown_heading_is_counted_as_unread() -> None:
    table = "| Round | 1 | 2 |\n|---|---|---|\n| Best (ms) | 6.803 | **6.202** |\n"
    found = readme.read(f"### The vector kernel\n\n{table}", {4})
    assert not found.artifacts[4].rounds and [each.text for each in found.unread] == ["6.803", "6.202"]


def test_a_speedup_of_other_times_and_a_second_time_are_found(study: Path, tmp_path: Path) -> None:
    root = tmp_path / "study"
    (root / NAMES[43]).parent.mkdir()
    (root / NAMES[43]).symlink_to(study / NAMES[43])
    text = (study / "README.md").read_text()
    text = text.replace("(3.39x vs", "(4.39x vs").replace("| 8.267 |", "| 8.300 |").replace("41.9%", "42.9%")
    text = text.replace("Best: round 4", "Best: round 5").replace("66.0%", "67.0%").replace("1,615", "1,715")
    (root / "README.md").write_text(text)
    _, report = linted(root, tmp_path)
    found = {(f["severity"], f["code"]): f["what"] for f in report["findings"] if "43" in f["where"]}
    assert "4.39x, by its own times 3.407x against compile" in found["error", "readme_speedup"]
    assert found["warning", "readme_times"] == "compile is 8.3 and 8.267 ms"
    assert "names round 5 as best, in its table it is round 4" in found["warning", "best_round"]
    assert "input is round 1's profile (float32) except 42.9 %" in found["warning", "readme_profile"]
    assert "optimized (67.0 %, 1,715 GB/s, 84.1 %, 99.5 %) is no round's profile" in found["warning", "readme_profile"]
