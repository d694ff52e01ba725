"""`repro optimize` on the CPU with the real judge, as a user starts it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from conftest import CPU, WHOLE

from repro import config
from repro.engines import choose
from repro.optimize import journal, judging
from repro.optimize.journal import Journal
from repro.optimize.loop import Search
from repro.optimize.proposers.inbox import Inbox
from repro.optimize.state import INPUT, NO_WINNER, NOT_JUDGED
from repro.problems import catalogue
from repro.records.search import Options
from repro.runs.progress import Progress
from repro.studies import self_test
from repro.system.digest import sha256

ORACLE = {"_".join(path.stem.split("_")[:2]): path for path in sorted(config.ORACLE_DIR.glob("*.py"))}


@pytest.mark.slow
def test_a_search_replays_and_exports_what_lint_accepts(judge_tool):
    """Of sizes that the interpreter is quick at; in test-all of the shipped problem."""
    words = ["L1_36"]
    if not WHOLE:
        text = config.PROBLEMS_DIR.joinpath("L1_36_RMSNorm.py").read_text()
        for name, size in (("batch_size", 2), ("features", 16), ("dim1", 6), ("dim2", 10)):
            text = re.sub(rf"^{name} = .*", f"{name} = {size}", text, flags=re.MULTILINE)
        (judge_tool.folder / "36_RMSNorm.py").write_text(text)
        words = ["36_RMSNorm.py", "--from", next(config.ARTIFACTS_DIR.glob("36_*/input_kernel.py"))]
    done = judge_tool("optimize", *words, *CPU, "--dtype", "float32", "--rounds", 1, "--json", "out.json")
    done.succeeded()
    assert done.out.splitlines()[-1].startswith(NO_WINNER) and "◀ best" not in done.out
    assert all("x the input" not in line or "(not a measurement)" in line for line in done.out.splitlines())
    told = judge_tool.json()
    assert told["programs"][0]["verdict"] == "correct" and told["measurement"] is False
    assert any(p["verdict"] == "correct" for p in told["programs"][1:])
    run = Path(told["folder"])
    again = judge_tool.within("optimize", "--replay", run, "--results", judge_tool.folder / "again")
    again.succeeded()
    (copy,) = (judge_tool.folder / "again").glob(f"*/{journal.FILE}")
    assert copy.read_bytes() == (run / journal.FILE).read_bytes()
    exported = list(run.glob("36_*"))
    if exported:
        assert judge_tool.within("verify", exported[0]).code == 0
        assert told["confirmed"]["best"]["verdict"] == "correct"


def attacks() -> dict[str, list[Path]]:
    """By problem, the files of the adversarial suite that a CPU finds wrong without timing."""
    found = {}
    for case in self_test.cases(["adversarial"], []):
        header = case.header
        wrong = "correct" not in header.expect.verdict and not header.timing and header.problem in ORACLE
        if wrong and header.device != ["cuda"] and not (header.needs or header.engine or header.timeout_s):
            found.setdefault(header.problem, []).append(case.file)
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("problem", ["L2_37"] + ["L1_36", "L1_82", "L1_97", "L2_34", "L2_84", "L2_99"] * WHOLE)
def test_no_attack_in_the_inbox_becomes_a_parent(problem, judge_tool):
    files = attacks()[problem]
    inbox = judge_tool.folder / "inbox"
    inbox.mkdir()
    for file in files:
        (inbox / file.name).write_bytes(file.read_bytes())
        os.utime(inbox / file.name, (1, 1))
    chosen = catalogue.resolve(problem, size="smoke", dtype="float32")
    source = ORACLE[problem].read_text()
    engine = choose("local", gpus="none", device="cpu", say=lambda _: None)
    judge = judging.EngineJudge(chosen, judge_tool.results, engine, Progress(quiet=True), trust="audited")
    judge.ensure_fixture()
    options = Options(problem, "smoke", "float32", "cpu", sha256(source), ("inbox",), rounds=1, screen=len(files),
                      finalists=len(files), minutes=None)  # fmt: skip
    try:
        loop = Search(options, source, "ModelNew", Journal.new(judge_tool.folder / "run"), lambda: judge,
                      [Inbox(inbox)], Progress(quiet=True))  # fmt: skip
        state = loop.run()
    finally:
        judge.close()
    found = {p.strategy: p for p in state.programs.values() if p.id != INPUT}
    assert set(found) == {file.stem for file in files}
    good = [p.strategy for p in found.values() if p.correct or not p.reason or p.accepted or p.verdict == NOT_JUDGED]
    assert good == []
    assert state.best == INPUT and {p.parent for p in found.values()} == {INPUT}


def test_wrong_use_is_one_line(tool):
    for words, what in (
        (("optimize",), "no problem"),
        (("optimize", "L1_36", "--proposer", "oracle"), "no proposer 'oracle'"),
        (("optimize", "L1_36", "--proposer", "inbox"), "Write inbox=DIR"),
        (("optimize", "L1_36", "--proposer", "model", "--upstream", "oracle"), "no upstream 'oracle'"),
        (("optimize", "L1_36", "--rounds", "0"), "--rounds must be at least 1"),
        (("optimize", "L2_37"), "no input kernel ships"),
        (("optimize", "l1_36"), "no problem 'l1_36'"),
        (("optimize", "L1_36@bf16", "--dtype", "float32"), "is bfloat16, --dtype says float32"),
        (("optimize", "L1_36", "--output", "tree.txt"), "neither .html nor .svg"),
        (("optimize", "L1_36", "--output", "/dev/null/tree.html"), "cannot write"),
        (("optimize", "L1_36", "--json", str(tool.folder)), "it is a folder"),
        (("optimize", "L1_36", "--proposer", "inbox=none"), "no such folder"),
        (("optimize", "--replay", str(tool.folder)), "no journal"),
        (("optimize", "--replay", "none.tar.xz"), "no such file"),
        (
            ("optimize", "L1_36", "--replay", str(next(config.ARTIFACTS_DIR.glob("82*/search.tar.xz")))),
            "is a search of L1_82, not of L1_36",
        ),
    ):
        done = tool.within(*words)
        assert done.code in (1, 2) and what in done.complaint, (words, done.err)
