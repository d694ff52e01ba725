"""The self-test tested: heads of cases, what is complained of, and a few cases through the command line.

`make self-test` runs all cases.
"""

from __future__ import annotations

import ast
import codecs
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from conftest import CPU, Tool, manifest, rows

from repro import config
from repro.cli import arguments
from repro.engines.base import Attempt, Engine, Slots
from repro.engines.local import LocalEngine
from repro.errors import UsageError
from repro.judge.correctness import distance
from repro.records.job import Job, Outcome
from repro.records.options import Options
from repro.records.verdict import Verdict
from repro.studies import self_test
from repro.studies.self_test import Case, Header
from repro.system.jsonio import Json


def engine(device: str = "cpu", name: str = "local") -> Engine:
    return cast(Engine, SimpleNamespace(device=device, name=name))


# -- heads

SHIPPED = self_test.cases(list(self_test.SUITES), [])


def test_both_suites_are_there():
    assert {case.suite for case in SHIPPED} == {"adversarial", "honest"}
    assert len({case.id for case in SHIPPED}) == len(SHIPPED) > 200


def test_every_case_says_in_its_docstring_what_it_does():
    assert [case.id for case in SHIPPED if not ast.get_docstring(ast.parse(case.source()))] == []


def test_the_list_of_exploits_has_each_id_that_begins_a_file_name():
    text = (config.ROOT / "tests/adversarial/README.md").read_text().partition("## What has no file")[0]
    assert set(re.findall(r"^\| ([ABC]\d+) \|", text, re.MULTILINE)) == {case.exploit for case in SHIPPED} - {""}


def test_the_head_of_every_case_says_only_what_is_understood():
    """What is expected of another suite would be an expectation that holds by accident."""
    for case in SHIPPED:
        header = case.header
        case.problem(engine())
        assert len(header.device) < 2, case.id
        assert ("expect" if case.suite == "honest" else "klass") not in header.model_fields_set, case.id


def test_the_reason_distance_stands_for_the_codes_of_all_distances():
    assert {*distance.CODES.values(), "not_finite"} == self_test.DISTANCES
    assert case(expect={"reasons": ["distance", "banned"]}).reasons() == {"banned", *self_test.DISTANCES}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of the checkout; its `tests/adversarial` and `tests/honest` are there."""
    for suite in self_test.SUITES:
        (tmp_path / "tests" / suite).mkdir(parents=True)
    monkeypatch.setattr(config, "ROOT", tmp_path)
    return tmp_path / "tests"


HEAD = '#: problem = "L1_36"\n#: device = ["cpu"]\n'
EXPECT = '#: expect.verdict = ["incorrect"]\n'


@pytest.mark.parametrize(
    "suite, text, words",
    [
        ("honest", "#: problem = L1_36\n", "no header that can be read"),
        ("honest", HEAD + "#: device = []\n", "no header that can be read"),
        ("honest", "import torch\n", "no header that can be read"),
        ("honest", '#: device = ["cpu"]\n', "no header that can be read"),
        ("honest", HEAD + '#: labels_ = ["triton"]\n', "labels_: Extra inputs are not permitted"),
    ],
    ids=["not toml", "twice", "nothing", "no problem", "unknown key"],
)
def test_a_head_that_cannot_be_read_is_wrong_use(tree, suite, text, words):
    (tree / suite / "mine.py").write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        self_test.cases([suite], [])
    assert "mine.py" in str(caught.value)


def test_cases_are_narrowed_by_parts_of_their_names(tree):
    for name in ("B07_none", "B07_tuple", "C01_x"):
        (tree / "adversarial" / f"{name}.py").write_text(
            HEAD + EXPECT + '"""What it does."""\n#: not a head? it is\n'[:0]
        )
    (tree / "honest" / "none_but_right.py").write_text(HEAD)

    def found(suites: list[str], *names: str) -> list[str]:
        return [case.id for case in self_test.cases(suites, list(names))]

    both = list(self_test.SUITES)
    assert found(both) == [
        "adversarial/B07_none", "adversarial/B07_tuple", "adversarial/C01_x", "honest/none_but_right"
    ]  # fmt: skip
    assert found(both, "none") == ["adversarial/B07_none", "honest/none_but_right"]
    assert found(["adversarial"], "B07", "C01_x.py") == found(["adversarial"])
    assert found(both, "tests/honest/none_but_right.py") == found(both, "honest/none") == found(["honest"])
    assert found(both, str(tree / "adversarial")) == found(["adversarial"])
    with pytest.raises(UsageError, match="no case of the self-test is left"):
        self_test.cases(both, ["nothing of that name"])


def case(suite: str = "adversarial", **meta: Any) -> Case:
    return Case(suite, Path("mine.py"), Header.written({"problem": "L1_36"} | meta))


def test_in_16_bits_a_cheat_must_not_be_correct(tmp_path):
    done = Tool(tmp_path)("evaluate", "--self-test", "half_of_ch", "B18_large", "--dtype", "float16", *CPU)
    assert "1 caught, 0 wrong; 1 skipped" in done.out and "L1_36@fp16" in done.err


def test_cases_that_cannot_run_here_are_skipped_with_the_reason():
    here = LocalEngine(gpus="none", device="cpu")
    assert case().skipped(engine()) == "" == case(needs="sh").skipped(here)
    assert case(device=["cuda"]).skipped(engine("cpu")) == "needs a GPU"
    assert case(device=["cuda"]).skipped(engine("cuda")) == ""
    assert case(engine=["docker"]).skipped(engine(name="local")) == "needs the docker engine"
    assert case(needs="no-program-of-that-name").skipped(here) == "no-program-of-that-name is missing"


@pytest.mark.parametrize(
    ("release", "headers", "thrust", "told"),
    [
        ("12.4, V12.4.131", True, True, ""),
        ("13.0, V13.0.48", True, True, "nvcc is of CUDA 13 and torch of CUDA 12"),
        ("12.8, V12.8.93", False, True, "torch's C++ headers are missing"),
        ("12.8, V12.8.93", True, False, "nvcc finds no thrust/complex.h, which torch's C++ headers include"),
    ],
)
def test_inline_cuda_needs_a_nvcc_of_torchs_cuda_and_torchs_headers(
    tmp_path, monkeypatch, release, headers, thrust, told
):
    (tmp_path / "nvcc").write_text(f"""#!/bin/sh
if [ "$1" = -E ]; then grep -q thrust/complex.h "$2" && exit {int(not thrust)}; fi
echo 'Cuda compilation tools, release {release}'
""")
    (tmp_path / "nvcc").chmod(0o755)
    (tmp_path / "torch/include/torch").mkdir(parents=True)
    (tmp_path / "torch/__init__.py").touch()
    (tmp_path / "torch/version.py").write_text("cuda: Optional[str] = '12.8'\n")
    if headers:
        inside = tmp_path / "torch/include/torch/csrc/api/include/torch"
        inside.mkdir(parents=True)
        (inside / "types.h").touch()
        (tmp_path / "torch/include/torch/extension.h").touch()
        (tmp_path / "ninja").touch()
        (tmp_path / "ninja").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    assert case(needs="nvcc").skipped(LocalEngine(gpus="none", device="cpu")) == told


def test_inline_cuda_finds_the_headers_of_a_torch_that_has_them(tmp_path, monkeypatch):
    """The torch that is installed here came with them."""
    assert list((Path(torch.__file__).parent / "include").rglob("torch/types.h")), "what the case includes"
    release = torch.version.cuda or "12.8"
    (tmp_path / "nvcc").write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.9'\n")
    for name in ("nvcc", "ninja"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert case(needs="nvcc").skipped(LocalEngine(gpus="none", device="cpu")) == ""


def test_a_case_is_judged_as_its_head_says_and_else_as_the_command_line_says():
    base = Options(timing_budget_s=10, timeout_s=180, trust="dev", compile_timeout_s=7)
    plain = self_test.options(case(), engine(), base)
    assert (plain.timing, plain.modes, plain.timeout_s) == (False, ("eager",), self_test.TIMEOUT_S)
    assert plain.timing_budget_s == self_test.TIMING_BUDGET_S
    assert (plain.trust, plain.compile_timeout_s) == ("dev", 7)
    told = self_test.options(case(timing=True, compiled=True, timeout_s=15), engine(), base)
    somewhere = case(timing=["cuda"])
    assert [self_test.options(somewhere, engine(d), base).timing for d in ("cpu", "cuda")] == [False, True]
    assert (told.timing, told.modes, told.timeout_s) == (True, Options().modes, 15)
    assert self_test.options(case(), engine(), Options(timing_budget_s=2)).timing_budget_s == 2


def test_cases_that_need_a_judge_of_their_own_are_alone(tree):
    """Those with a bound of their own, those after processes, and timed ones that would disturb others or are of full
    size; the rest side by side with what is judged alike."""
    busy = {"timing": True, "expect": {"verdict": ["rejected"], "reasons": ["background_work"]}}
    more = {
        "T1": busy,
        "T2": {"timeout_s": 5},
        "C09_T3": {},
        "T4": {"timing": True, "size": "full"},
    }
    alone = [Case("adversarial", Path(f"{name}.py"), case(**meta).header) for name, meta in more.items()]
    plain = [Case("honest", Path(f"P{at}.py"), case().header) for at in range(self_test.SIDE_BY_SIDE + 2)]
    timed = [
        Case("honest", Path(f"R{at}.py"), case(timing=True).header) for at in range(self_test.TIMED_SIDE_BY_SIDE + 1)
    ]
    other = [Case("honest", Path("Q.py"), case(problem="L1_82").header)]
    everything = [*alone[:2], *plain, *timed, *other, *alone[2:]]
    found = self_test.groups(everything, engine("cuda"))
    sizes = [1] * 6 + [2, self_test.TIMED_SIDE_BY_SIDE, self_test.SIDE_BY_SIDE]
    assert sorted(map(len, found)) == sorted(sizes)
    assert all([each] in found for each in [*alone, *other])
    assert sorted(each.id for group in found for each in group) == sorted(c.id for c in everything)
    for group in found:
        alike = {(each.header.problem, each.timed(engine("cuda"))) for each in group}
        assert len(alike) == 1


def test_cases_about_time_run_at_full_size_on_a_gpu():
    """What is called back in 10 us is the host's time, and `at_least` confirms no speedup of it."""
    assert case(size="full").problem(engine("cuda")).size == "full"
    small = case(size="full").problem(engine("cpu")), case().problem(engine("cuda"))
    assert [problem.size for problem in small] == ["smoke", "smoke"]
    dependent = [c for c in SHIPPED if "input_dependent_time" in c.header.labels]
    assert dependent and all(c.header.size == "full" for c in dependent)


# -- complaints


def entry(verdict: str = "correct", code: str = "", **facts: Any) -> Json:
    """One verdict as the judge writes it."""
    reasons = [{"code": code, "trial": "native", "detail": "why"}] if code else []
    found = {"problem": "P", "solution": "mine", "verdict": verdict, "reasons": reasons,
             "precision_class": "fp32" if verdict == "correct" else None,
             "rel_l2": 1e-6, "time_ms": None, "measurement": False, "labels": ["triton"], "speedup": {}}  # fmt: skip
    return found | facts


WRONG = {"expect": {"verdict": ["incorrect", "rejected"], "reasons": ["rel_l2", "row"]}}
UNBOUGHT = {"expect": {"verdict": ["correct"]}, "max_speedup": 1.3}
FASTER = {"measurement": True, "speedup": {"eager": {"ratio": 1.9, "ci95": [1.8, 2.0], "at_least": 1.5}}}


def check_complaint(case: Case, given: Json, complaint: str) -> None:
    """Check that a verdict draws one complaint that begins so, or none where it is empty."""
    found = self_test.complaints(case, Verdict.model_validate(given))
    assert not found if not complaint else len(found) == 1 and found[0].startswith(complaint), found


@pytest.mark.parametrize(
    "meta, given, complaint",
    [
        (WRONG, entry("incorrect", "rel_l2"), ""),
        (WRONG, entry("rejected", "row"), ""),
        (WRONG, entry(), "false accept: correct (fp32"),
        (WRONG, entry("error", "exception"), "another verdict: stopped with an error"),
        (WRONG, entry("incorrect", "wrong_shape"), "reason wrong_shape instead of rel_l2, row"),
        ({"expect": {"verdict": ["incorrect"]}}, entry("incorrect", "wrong_shape"), ""),
        (WRONG | {"labels": ["triton", "threads"]}, entry("incorrect", "row"), "label threads is missing"),
        (UNBOUGHT | {"labels": ["input_dependent_time"]}, entry(), ""),  # without a measurement
        (UNBOUGHT | {"labels": ["input_dependent_time"]}, entry(measurement=True), "label input_dependent_time is"),
        (UNBOUGHT, entry(), ""),
        (UNBOUGHT, entry(**FASTER), "bought time: at least 1.5x eager, at most 1.3x was due"),
        (UNBOUGHT, entry(**(FASTER | {"measurement": False})), ""),
        (UNBOUGHT | {"max_speedup": 1.6}, entry(**FASTER), ""),  # by what the judge's own clock confirms
        (UNBOUGHT, entry("incorrect", "row"), "another verdict: wrong: error of the worst row"),
        ({"expect": {"verdict": ["correct"]}, "precision_class": ["bf16"]}, entry(), "class fp32 instead of bf16"),
        ({"expect": {"verdict": ["correct"]}, "precision_class": ["bf16", "fp32"]}, entry(), ""),
        (WRONG | {"precision_class": ["bf16"]}, entry("incorrect", "row"), ""),
    ],
)
def test_wrong_adversarial_verdicts_are_complaints(meta, given, complaint):
    check_complaint(case(**meta), given, complaint)


@pytest.mark.parametrize(
    "meta, given, complaint",
    [
        ({}, entry(), ""),
        ({"class": "fp32"}, entry(), ""),
        ({"class": ["tf32", "bf16"]}, entry(), "class fp32 instead of tf32 or bf16"),
        ({"class": "fp32"}, entry("incorrect", "rel_l2"), "false reject: wrong: relative L2 error"),
        ({}, entry("timeout", "timeout"), "false reject: timed out"),
        ({"labels": ["static_output"]}, entry(), "label static_output is missing"),
    ],
)
def test_wrong_honest_verdicts_are_complaints(meta, given, complaint):
    check_complaint(case("honest", **meta), given, complaint)


def test_two_complaints_are_both_reported():
    found = self_test.complaints(
        case("honest", labels=["autotuned"]), Verdict.model_validate(entry("error", "exception"))
    )
    assert len(found) == 2


# -- through the command line

SEED = 20251121
SELF_TEST = ("evaluate", "--self-test", *CPU)


def drawn() -> list[str]:
    """Two cases of each suite, by a fixed seed, among those that take seconds on the CPU; none of the cheats that may
    be called correct."""
    quick = [c for c in SHIPPED if c.header.problem == "L1_36" and not c.skipped(engine())
             and not c.header.timing and c.header.timeout_s is None
             and "correct" not in c.header.expect.verdict]  # fmt: skip
    chance = random.Random(SEED)
    chosen = [chance.sample([c for c in quick if c.suite == suite], 2) for suite in self_test.SUITES]
    return [c.file.name for pair in chosen for c in pair]


def cases_of(tool: Tool) -> dict[str, Json]:
    return {found["case"]: found for found in tool.json()["cases"]}


@pytest.mark.slow
def test_a_few_cases_are_as_they_must_be(judge_tool):
    """Exit 0, a complete bundle, every case with its verdict in the JSON and in the report; drawn again from disk."""
    names = drawn()
    done = judge_tool(*SELF_TEST, *names, "--json", "out.json")
    done.succeeded()
    found = cases_of(judge_tool)
    assert {name.rpartition("/")[2] for name in found} == {name.removesuffix(".py") for name in names}
    assert not [complaint for one in found.values() for complaint in one["complaints"]]
    for one in found.values():
        assert (one["verdict"] == "correct") == one["case"].startswith("honest/")
    assert "4 cases: 2 caught, 2 accepted, 0 wrong" in done.out.splitlines()[-1]
    (bundle,) = judge_tool.bundles()
    assert manifest(bundle)["status"] == "complete" and list(rows(bundle)) == manifest(bundle)["plan"]
    again = judge_tool.within("report", bundle)
    assert again.code == 0 and "4 cases: 2 caught, 2 accepted, 0 wrong" in again.out, again.err
    assert not judge_tool.processes() and not list(judge_tool.tmp.glob("repro-*"))


class Told(Engine):
    """Answers with these verdicts, by case."""

    name, device = "local", "cpu"

    def __init__(self, verdicts: dict[str, Json]) -> None:
        self.verdicts, self.description = verdicts, {"engine": "local", "isolation": "none"}

    def capacity(self) -> Slots:
        return Slots()

    def _attempt(self, jobs: list[Job], timeout_s: float, progress: Any) -> Attempt:
        for job in jobs:
            told = [self.verdicts[name] | {"solution": name} for name, _, _ in job.solutions]
            yield Outcome(job.id, "done", {"results": told})
        return ""


NONE = 'expect.reasons = ["not_finite"]'
# Case -> a further line of its header, its verdict, and the complaint.
JUDGED = {
    "adversarial/B07_none": (NONE, entry("incorrect", "wrong_structure"), "reason wrong_structure"),
    "adversarial/B07_tuple": ("", entry("incorrect", "wrong_structure"), ""),
    "adversarial/B99_right": ("", entry(), "false accept: correct"),
    "honest/fp32_rms_norm": ("", entry(), ""),
    "honest/zeros": ("", entry("incorrect", "rel_l2"), "false reject: wrong: relative L2 error"),
}


@pytest.mark.slow
def test_a_judge_that_is_wrong_about_a_case_is_exit_2(tree, judge_tool, monkeypatch):
    """Each wrong case is printed with what is wrong about it; right ones are not."""
    for name, (line, _, _) in JUDGED.items():
        expected = f"{EXPECT}#: {line}\n" if name.startswith("adversarial") else ""
        (tree / f"{name}.py").write_text(HEAD + expected + "class ModelNew: ...\n")
    engine = Told({name: verdict for name, (_, verdict, _) in JUDGED.items()})
    monkeypatch.setattr(arguments, "choose", lambda *_, **__: engine)
    done = judge_tool.within(*SELF_TEST, "--json", "out.json")
    assert done.code == 2, done.err
    found = cases_of(judge_tool)
    for name, (_, _, complaint) in JUDGED.items():
        assert [each.startswith(complaint) for each in found[name]["complaints"]] == [True] * bool(complaint), found
        assert (name in done.out) == bool(complaint), done.out
    assert "5 cases: 1 caught, 1 accepted, 3 wrong" in done.out.splitlines()[-1], done.out
    assert manifest(judge_tool.bundles()[-1])["status"] == "complete", "every case was judged"


def named_modules(text: str) -> Iterator[str]:
    """Ends of module names that an attack looks for among ours: in `endswith`, in rot13, or as keys of TARGETS."""
    yield from re.findall(r'__module__\.endswith\("([\w.]+)"\)', text)
    for word in re.findall(r'plain\("(erceb\.[\w.]+)"\)', text):
        yield codecs.decode(word, "rot13")
    if '"erceb."' in text:
        yield from re.findall(r'^    "([a-z_.]+)": \{', text, re.MULTILINE)
    yield from re.findall(r"^import (repro[\w.]+)", text, re.MULTILINE)


def test_every_module_of_ours_that_an_attack_patches_exists():
    """An attack on a module that was renamed would miss, and its case would prove nothing."""
    package = config.PACKAGE
    ours = {
        ".".join(["repro", *file.relative_to(package).with_suffix("").parts]).removesuffix(".__init__")
        for file in package.rglob("*.py")
    }
    attacks = [each for each in SHIPPED if each.suite == "adversarial"]
    named = {(each.id, name) for each in attacks for name in named_modules(each.source().decode())}
    assert len(named) >= 12
    lost = {
        (file, name)
        for file, name in named
        if not any(f".{module}".endswith(f".{name.lstrip('.')}") for module in ours)
    }
    assert lost == set()
