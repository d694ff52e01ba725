"""`repro run --solutions ARM=DIR`: what counts as a solution in a folder, how it is judged, reported and held against
the claims; and the torch controls beside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import CPU, WHOLE, Tool, manifest, rows
from test_claims import judged, published
from test_compare import H200, on
from test_report import bundle_of, result

from repro.analysis import records
from repro.bundle.write import Bundle
from repro.cli import main
from repro.judge.source.bans import bans
from repro.judge.source.labels import labels as labels_of
from repro.problems import catalogue
from repro.records import wording
from repro.records.verdict import Verdict
from repro.report import document, markdown, study
from repro.studies.agent import controls, folder, options
from repro.studies.evaluation import absent
from repro.system.jsonio import Json

SUITE = catalogue.suites()["agent"]
# Without a kernel, since Triton's interpreter takes its time.
RMS_NORM = """import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + self.eps)
"""
ZEROS = """import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, *given):
        super().__init__()
        self.conv2d = nn.Conv2d(given[0], given[0], given[1], bias=False, groups=given[0])

    def forward(self, x):
        return torch.zeros_like(self.conv2d(x))
"""
BROKEN = "def ModelNew(:\n"


def placed(root: Path, **files: str) -> Path:
    """A folder with files; in their names `__` is `/`."""
    for name, text in files.items():
        file = root / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def scanned(root: Path, *names: str) -> folder.Folder:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {name}\n")
    return folder.scan("mine", root)


def told(found: folder.Folder, root: Path) -> dict[str, list[str]]:
    return {problem: [str(file.relative_to(root)) for file in files] for problem, files in found.samples.items()}


# -- what is a solution


def test_files_and_folders_named_after_a_problem_are_its_solutions(tmp_path):
    found = scanned(tmp_path, "L1_36_RMSNorm.py", "L1_82/out/7/solution.py", "L1_82/helper.py", "L1_097_x/any.py",
                    "L2_34/__pycache__/solution.py", "L2_34/kernel.py")  # fmt: skip
    assert told(found, tmp_path) == {
        "L1_36": ["L1_36_RMSNorm.py"], "L1_82": ["L1_82/out/7/solution.py"], "L1_97": ["L1_097_x/any.py"],
        "L2_34": ["L2_34/kernel.py"],
    }  # fmt: skip
    assert found.unused == []


def test_every_sample_of_a_kernelbench_run_is_a_repeat_in_its_order(tmp_path):
    names = [f"level_1_problem_36_sample_{n}_kernel.py" for n in (10, 0, 2)]
    found = scanned(tmp_path, *names, "level_3_problem_44_sample_0_kernel.py", "level_1_problem_1_sample_0_kernel.py",
                    "generation_config.yaml", ".cache/L1_82_x.py")  # fmt: skip
    assert told(found, tmp_path) == {
        "L1_36": [f"level_1_problem_36_sample_{n}_kernel.py" for n in (0, 2, 10)],
        "L3_44": ["level_3_problem_44_sample_0_kernel.py"],
    }
    assert found.unused == ["generation_config.yaml", "level_1_problem_1_sample_0_kernel.py"]
    problem = catalogue.load("L1_36")
    assert found.repeats(problem) == 3 and b"sample_10" in found.solve(problem, 2).source


def test_what_is_no_solution_is_named(tmp_path):
    """Another problem's file, one of no problem, a report, and a folder of which it is unclear what its solution is."""
    found = scanned(tmp_path, "L1_36.py", "L1_04_x.py", "kernel.py", "L1_82.md", "L1_97/a.py", "L1_97/b.py")
    assert told(found, tmp_path) == {"L1_36": ["L1_36.py"]}
    assert found.unused == ["L1_04_x.py", "L1_82.md", "L1_97/", "kernel.py"]
    assert "L1_97/" in wording.unused("mine", found.unused) and "and 4 more" in wording.unused("mine", ["x"] * 12)


def test_a_problem_without_a_file_is_missing_and_says_why(tmp_path):
    found = scanned(tmp_path, "L1_36.py")
    given = found.solve(catalogue.load("L3_43"), 0)
    assert given.missing and given == absent("L3_43_MinGPTCausalAttention", "no file of L3_43 in the folder")
    assert found.repeats(catalogue.load("L3_43")) == 1


# -- the command line

WRONG = {
    "no folder": (["--solutions", "a=nowhere"], "no such folder: nowhere"),
    "no arm": (["--solutions", "good"], "it takes ARM=DIR"),
    "a path as a name": (["--solutions", "../a=good"], "it takes ARM=DIR"),
    "twice": (["--solutions", "a=good", "--solutions", "a=good"], "it is given twice"),
    "a control's name": (["--solutions", "tf32=good"], "the name of a control"),
    "nothing in it": (["--solutions", "a=empty"], "level_1_problem_36_sample_0_kernel.py"),
    "an agent": (["--solutions", "a=good", "--agent", "sdk"], "does not go with --agent"),
    "arms": (["--solutions", "a=good", "--arms", "baseline"], "does not go with --arms"),
    "repeats": (["--solutions", "a=good", "--repeats", "3"], "each file of a problem is a repeat"),
    "control": (["--controls", "tf16"], "no control tf16: there are nop, tf32, tf32_compile, none"),
    "none and one": (["--controls", "none nop"], "no control none, nop"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_found_before_anything_starts(name, tmp_path, monkeypatch, capsys):
    placed(tmp_path, **{"good__L1_36.py": RMS_NORM, "empty__notes.md": ""})
    monkeypatch.chdir(tmp_path)
    arguments, words = WRONG[name]
    assert main.main(["run", *CPU, "--results", "results", *arguments]) == 1
    assert words in capsys.readouterr().err and not (tmp_path / "results").exists()


def chosen(device: str, size: str, *words: str) -> list[str]:
    args = main.parser().parse_args(["run", *words])
    return [control.name for control in options.chosen_controls(args, device, size)]


def test_torch_controls_run_where_tf32_exists_and_a_time_counts(tmp_path):
    mine = ("--solutions", f"a={tmp_path}")
    assert chosen("cuda", "full", *mine) == chosen("cuda", "full", "--agent", "sdk") == ["tf32", "tf32_compile"]
    assert chosen("cpu", "full", *mine) == chosen("cuda", "smoke", *mine) == []
    assert chosen("cuda", "full", *mine, "--no-timing") == chosen("cuda", "full", *mine, "--controls", "none") == []
    assert chosen("cuda", "full") == chosen("cpu", "smoke") == ["nop"], "the shipped solutions, as published"
    assert chosen("cuda", "full", "--agent", "nop") == []
    assert chosen("cpu", "smoke", *mine, "--controls", "tf32_compile,nop") == ["nop", "tf32_compile"]


# -- controls


@pytest.mark.parametrize("problem", catalogue.ids())
def test_a_torch_control_is_the_problems_model_and_two_lines(problem, tmp_path):
    loaded = catalogue.load(problem)
    for name in controls.TORCH:
        given = controls.EVERY[name].solve(loaded, 0)
        added = given.source.removeprefix(loaded.path.read_bytes()).decode().split("\n")
        assert given.source != added and len([line for line in added if line]) == (2 if name == "tf32" else 3)
        file = tmp_path / f"{name}.py"
        file.write_bytes(given.source)
        labels = labels_of(file)
        assert {"no_custom_kernel", "sets_tf32"} <= set(labels) and bans(file) == []
        assert ("torch_compile" in labels) == (name == "tf32_compile")


# The compiler takes most of the time.
JUDGED = [*controls.TORCH][: 2 if WHOLE else 1]


@pytest.mark.slow
def test_torch_controls_are_judged_as_any_solution(judged_controls):
    for name in JUDGED:
        row = judged_controls[f"L1_36/{name}/0"]
        (entry,) = row["result"]["results"]
        assert entry["verdict"] == "correct" and "no_custom_kernel" in entry["labels"]
        assert row["torch_control"] and not row["control"]


@pytest.fixture
def judged_controls(tool: Tool, smoke_results: Path) -> dict[str, Json]:
    shutil.copytree(smoke_results, tool.results, ignore=shutil.ignore_patterns("*-fixtures"))
    placed(tool.folder / "a", **{"L1_36.py": RMS_NORM})
    words = ("--problem", "L1_36", "--solutions", "a=a", "--controls", " ".join(JUDGED))
    done = tool("run", *CPU, "--no-timing", *words)
    done.succeeded()
    assert "TF32 does not exist on the CPU" in done.err and done.out.splitlines()[-1].startswith("1 of 1 correct")
    return rows(tool.bundles()[-1])


# -- a run

THREE = [word for problem in ("L1_36", "L1_82", "L1_97") for word in ("--problem", problem)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, smoke_results: Path) -> tuple[Tool, str, str]:
    """Two folders over three problems: the same good kernel in both, a kernel of zeros, a broken file, two missing."""
    tool = Tool(tmp_path_factory.mktemp("arms"))
    shutil.copytree(smoke_results, tool.results, ignore=shutil.ignore_patterns("*-fixtures"))
    placed(tool.folder / "first", **{"L1_36_mine.py": RMS_NORM, "L1_82/solution.py": ZEROS, "L1_97.py": BROKEN})
    placed(
        tool.folder / "runs/second", **{"level_1_problem_36_sample_0_kernel.py": RMS_NORM, "eval_results.json": "{}"}
    )
    done = tool("run", *CPU, "--no-timing", *THREE, "--solutions", "baseline=first", "--solutions",
                "with_kb=runs/second", COLUMNS="100")  # fmt: skip
    done.succeeded()
    return tool, done.out, done.err


@pytest.mark.slow
def test_each_problem_of_each_arm_is_a_row_with_a_verdict(ran):
    tool, out, err = ran
    bundle = tool.bundles()[-1]
    assert manifest(bundle)["status"] == "complete"
    found = {
        name: wording.word(Verdict.model_validate(row["result"]["results"][0])) for name, row in rows(bundle).items()
    }
    assert found == {
        "L1_36/baseline/0": "correct", "L1_36/with_kb/0": "correct", "L1_82/baseline/0": "wrong",
        "L1_82/with_kb/0": "missing", "L1_97/baseline/0": "error", "L1_97/with_kb/0": "missing",
    }  # fmt: skip
    last = out.splitlines()[-1]
    assert "baseline: 1 of 3 correct (1 wrong, 1 error) · with_kb: 1 of 3 correct (2 missing)" in last, last
    assert "missing: no file of L1_82 in the folder" in out and "line 1: invalid syntax" in out
    assert (
        "with_kb: not used, no problem's id at the beginning of the name, as in L1_36_mine.py: eval_results.json" in err
    )
    assert err.index("with_kb: no file, so an error each: L1_82, L1_97\n") < err.index("[1/6]")


@pytest.mark.slow
def test_the_order_of_the_arms_is_reversed_from_problem_to_problem(ran):
    arms = [name.split("/")[1] for name in manifest(ran[0].bundles()[-1])["plan"]]
    assert arms == ["baseline", "with_kb", "with_kb", "baseline", "baseline", "with_kb"]


@pytest.mark.slow
def test_the_bundle_says_where_the_solutions_came_from_and_nothing_of_an_agent(ran):
    tool, out, _ = ran
    bundle = tool.bundles()[-1]
    told_ = manifest(bundle)
    assert "agent" not in told_["parameters"] and told_["parameters"]["solutions"] == ["baseline", "with_kb"]
    assert set(told_["parameters"]["arms"].values()) == {wording.FROM_FOLDER}
    assert told_["unused_files"] == {"with_kb": ["eval_results.json"]}
    assert str(tool.folder) not in (bundle / "manifest.json").read_text()
    text = (bundle / "report.md").read_text()
    assert out.count(wording.FROM_FOLDER) >= 3 and wording.FROM_FOLDER in text and "eval_results.json" in text
    done = tool.within("verify", bundle)
    assert done.code == 0, done.out


# -- the report and the claims of a run on a GPU


def timed(root: Path, arms: dict[str, dict[str, float]], **more: Any) -> Bundle:
    """A bundle of solutions from folders on a GPU: arm -> problem -> speedup over eager; 0 is a wrong solution."""
    script, columns = {}, {}
    for arm, speedups in arms.items():
        for problem, ratio in speedups.items():
            name = f"{problem}/{arm}/0"
            times = {"eager": 40.0 * (ratio or 1)} | ({"mine": 40.0} if ratio else {})
            script[name] = result(problem, times, bad=None if ratio else {"mine": "1 over the limit 0.02"})
            columns[name] = {"problem": problem, "arm": arm, "control": False, "repeat": 0,
                             "torch_control": arm in controls.TORCH}  # fmt: skip
    labels = {arm: controls.EVERY[arm].label if arm in controls.EVERY else wording.FROM_FOLDER for arm in arms}
    parameters = {"arms": labels, "solutions": [arm for arm in arms if arm not in controls.EVERY],
                  "options": {"timing": True}, **more}  # fmt: skip
    return on(bundle_of(root, "run", script, columns, parameters=parameters), **H200)


def studied(bundle: Bundle) -> study.Study:
    """What a report says of a study."""
    found = study.build(records.source(bundle, "A"))
    assert found is not None
    return found


def both(**with_kb: float) -> dict[str, dict[str, float]]:
    return {"baseline": published("baseline"), "with_kb": published("with-kb") | with_kb,
            "tf32": dict.fromkeys(SUITE, 1.9), "tf32_compile": dict.fromkeys(SUITE, 3.3)}  # fmt: skip


def test_arms_are_paired_by_problem_and_held_against_the_controls(tmp_path):
    bundle = timed(tmp_path, both())
    told_ = studied(bundle)
    pairs = {(each.base, each.other): each for each in told_.comparisons}
    assert list(pairs) == [("baseline", "with_kb"), ("tf32", "baseline"), ("tf32", "with_kb"),
                           ("tf32_compile", "baseline"), ("tf32_compile", "with_kb")]  # fmt: skip
    gain = pairs["baseline", "with_kb"]
    assert gain.n == 10 and gain.ratio == pytest.approx(1.172, abs=5e-3) and gain.detectable and gain.detectable > 1.3
    assert pairs["tf32_compile", "with_kb"].ratio == pytest.approx(2.114 / 3.3, rel=5e-3)
    text = markdown.render(document.build([bundle]))
    there = ("tf32 (no custom kernel)", "with_kb over tf32_compile (no custom kernel)", "80 % of such studies",
             "fast_p", wording.FROM_FOLDER, "How the solutions came about")  # fmt: skip
    for words in there:
        assert words in text, words
    for words in ("Budgets of one cell", "Tokens", "knowledge calls", "Every sitting"):
        assert words not in text, words


def test_a_failure_and_a_missing_problem_count_as_no_gain(tmp_path):
    bundle = timed(tmp_path, both(L3_43=0.0))
    told_ = studied(bundle)
    arm = told_.arms["with_kb"]
    assert arm.speeds.problems["L3_43"].fail_is_1 == 1.0 and arm.speeds.overall[2:] == (9, 10)
    assert arm.verdicts == {"correct": 9, "wrong": 1}


def test_a_torch_control_is_in_every_table_and_never_among_the_solutions(tmp_path):
    told_ = document.build([timed(tmp_path, both())])
    assert "10 of 10 correct" in told_.headline.text
    tables = {table.id: table for part in told_.sections for table in part.tables}
    for name in ("summary", "correctness", "speedups-run", "a-study-arms", "a-study-problems", "a-study-comparisons"):
        assert "tf32_compile" in str(tables[name]), name
    line = next(row for row in tables["summary"].rows if "tf32_compile" in row)
    assert "/" not in str(line[2]), "no published figure stands beside a control"
    (forest,) = [figure for part in told_.sections for figure in part.figures if figure.id == "forest"]
    assert "tf32_compile" not in str(forest.data)
    cards = {card.label: card.value for card in told_.cards}
    assert cards["Correct"] == "20 of 20" and cards["no kernel, tf32_compile: over eager"] == "3.30x"


def test_arms_of_the_claims_names_test_them_as_solutions_from_folders(tool):
    bundle = timed(tool.folder / "a", both())
    _, _, outcomes = judged(tool, bundle.path)
    for name in ("agent-mean-baseline/all", "agent-gain/all", "agent-speedup-with-kb/L3_43"):
        (only,) = outcomes[name]
        assert only["verdict"] == "REPRODUCED" and wording.FROM_FOLDER in only["notes"], (name, only)


def test_arms_of_other_names_test_no_claim(tool):
    bundle = timed(tool.folder / "a", {"mine": published("baseline"), "yours": published("with-kb")})
    _, _, outcomes = judged(tool, bundle.path)
    assert {outcome["verdict"] for name, each in outcomes.items() if name.startswith("agent") for outcome in each} == {
        "BLOCKED"
    }
