"""`repro optimize` on the CPU with the real judge, as a user starts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import CPU, ROOT, Tool

from repro.optimize import journal

ADVERSARIAL = ROOT / "tests" / "adversarial"


@pytest.mark.slow
def test_a_search_replays_and_exports_what_lint_accepts(judge_tool: Tool) -> None:
    common = ("--dtype", "float32", "--rounds", 1, "--screen", 3, "--finalists", 1, "--json", "out.json")
    done = judge_tool("optimize", "L1_36", *CPU, *common)
    assert done.code == 0, done.err
    assert "not a measurement" in done.out
    told = json.loads((judge_tool.folder / "out.json").read_text())
    assert told["programs"][0]["verdict"] == "correct" and told["measurement"] is False
    assert any(p["verdict"] == "correct" for p in told["programs"][1:])
    run = Path(told["folder"])
    again = judge_tool("optimize", "--replay", run, "--results", judge_tool.folder / "again")
    assert again.code == 0, again.err
    (copy,) = (judge_tool.folder / "again").glob(f"*/{journal.FILE}")
    assert copy.read_bytes() == (run / journal.FILE).read_bytes()
    exported = list(run.glob("36_*"))
    if exported:
        assert judge_tool("artifacts", "lint", exported[0]).code == 0
        assert told["confirmed"]["best"]["verdict"] == "correct"


@pytest.mark.slow
def test_attacks_in_the_inbox_never_become_parents(judge_tool: Tool) -> None:
    inbox = judge_tool.folder / "inbox"
    inbox.mkdir()
    names = ("A03_patch_event_assign", "B02_drop_a_tap", "B07_none", "C15_exit_in_call", "A04_frame_walk",
             "B22_all_nan", "B01_sparse_zeros", "C02_patch_builtins")  # fmt: skip
    for name in names:
        (inbox / f"{name}.py").write_bytes((ADVERSARIAL / f"{name}.py").read_bytes())
    done = judge_tool("optimize", "L1_82", *CPU, "--dtype", "float32", "--proposer", "inbox", "--inbox", inbox,
                      "--rounds", 1, "--screen", len(names), "--json",
                      "out.json")  # fmt: skip
    assert done.code == 0, done.err
    told = json.loads((judge_tool.folder / "out.json").read_text())
    found = {p["strategy"]: p for p in told["programs"][1:]}
    assert set(found) == set(names)
    assert all(p["verdict"] != "correct" and p["reason"] and not p["accepted"] for p in found.values()), found
    assert told["best"] == "input"


def test_wrong_use_is_one_line(tool: Tool) -> None:
    for words, what in (
        (("optimize",), "no problem"),
        (("optimize", "L1_36", "--proposer", "oracle"), "no proposer 'oracle'"),
        (("optimize", "L1_36", "--proposer", "inbox"), "need each other"),
        (("optimize", "L1_36", "--rounds", "0"), "--rounds must be at least 1"),
        (("optimize", "L2_37"), "no input kernel ships"),
        (("optimize", "--replay", str(tool.folder)), "no journal"),
    ):
        done = tool.within(*words)
        assert done.code in (1, 2) and what in done.complaint, (words, done.err)
