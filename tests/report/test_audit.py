"""The table of an audit, from the fixtures in a bundle."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from repro.bundle.write import Bundle
from repro.records.fixture import FixtureRecord, TrialLimits
from repro.records.row import Row
from repro.report import audit, terminal
from repro.system.screen import Screen

FIXTURE = {
    "problem": "L1_01", "margins": {"fp32": 40.0, "bf16": 0.5}, "margin": 40.0, "best_cheat": "constant",
    "refused": "", "refused_classes": {"bf16": "the cheat 'constant' passes every trial"},
    "trials": {"native": TrialLimits.model_construct(
        sensitivity=0.5, cheats={"zeros": {"legacy": {"allclose_1e-2": True, "allclose_1e-4": False}}}),
        "stress": TrialLimits.model_construct(limits={"fp32": {"rel_l2": 0.02, "max": 1.0}}),
        "heavy": TrialLimits.model_construct(limits={"fp32": {}})},
}  # fmt: skip
CONSTANT = FIXTURE | {
    "problem": "L2_80",
    "margin": 0.0,
    "refused": "the cheat 'constant' passes every trial",
    "refused_classes": dict.fromkeys(("fp32", "bf16"), "x"),
    "degenerate": {"kind": "constant", "proof": "16 runs | 0"},
}


def bundle() -> Bundle:
    rows = {
        "a": Row.model_construct(result=FixtureRecord.model_construct(**FIXTURE)),
        "b": Row.model_construct(result=FixtureRecord.model_construct(**CONSTANT)),
        "c": Row.model_construct(error="Model of x.py\nfails", problem="L3_33", result=None),
    }
    manifest = {"plan": ["a", "b", "c", "d"], "parameters": {"suite": "kernelbench", "size": "smoke", "device": "cpu"}}
    return cast(Bundle, SimpleNamespace(records=lambda: rows, manifest=manifest, path=Path("x-fixtures")))


def test_every_planned_problem_has_a_line_with_its_verdict_and_reason():
    found = audit.rows(bundle())
    assert [entry.verdict for entry in found] == ["judged", "unjudgeable", "not measured", "not measured"]
    assert found[0].classes == ["fp32"] and found[1].classes == []
    counted = audit.counted(found)
    assert counted.startswith("4 problems: 0 judged in every class, 1 in some, 1 unjudgeable, 2 not measured")
    assert counted.endswith("zeros pass allclose at 1e-2 on 2")


@pytest.mark.parametrize("width", [80, 100])
def test_a_terminal_shows_ids_verdicts_and_reasons(width):
    console = Console(file=io.StringIO(), width=width, record=True)
    terminal.table(audit.table(audit.rows(bundle())), Screen(console=console))
    (line,) = (line for line in console.export_text().splitlines() if line.startswith("L2_80"))
    assert "unjudgeable" in line and "constant; 16 runs" in line


def test_the_page_says_how_it_was_measured_and_has_a_line_for_each_problem():
    whole = bundle()
    page = audit.page(whole, audit.rows(whole))
    assert "at smoke size on cpu" in page and "`x-fixtures`" in page
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len(table) == 6
    assert [cell.strip() for cell in table[2].strip("|").split("|")] == [
        "L1_01", "judged", "fp32", "0.5", "constant", "40", "1e-2", "stress 0.02, heavy none",
        "bf16: the cheat 'constant' passes every trial",
    ]  # fmt: skip
