"""The proposer with a model: Inspect with scripted replies, and the loop around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_loop import KERNEL, ToldJudge, options, search, unasked

from repro.artifacts import lint
from repro.optimize import export, journal
from repro.optimize.calls import DIRECTIONS, REFLEXION, Calls, NoAnswer, Unreadable, kernel_of, parsed
from repro.optimize.journal import Journal
from repro.optimize.loop import Search as Loop
from repro.optimize.proposers.model import Model
from repro.optimize.proposers.replay import Recorded
from repro.optimize.proposers.search import Search
from repro.optimize.state import INPUT
from repro.problems import catalogue
from repro.records.search import PROPOSED
from repro.system.jsonio import Json

# Inspect uses a deprecated option of another package.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
MODEL = "claude-opus-4-5-20251101"
PROBLEM = catalogue.load("L1_82", size="smoke", dtype="bfloat16")
REFLECTED = {"was_diagnosis_correct": True, "was_fix_effective": False, "lessons": ["blocks of 64 are too small"]}


def direction(summary: str) -> Json:
    return {"category": "memory", "summary": summary, "reasoning": "loads repeat", "root_causes": [{"cause": "reuse"}],
            "recommended_fixes": [{"fix": f"do {summary}", "rationale": "fewer bytes"}]}  # fmt: skip


def line(contains: str, text: str, turn: int = 0, stop: str = "end_turn", **more: Any) -> Json:
    return {"match": {"turn": turn, "contains": contains}, "content": [{"type": "text", "text": text}],
            "stop_reason": stop, **more}  # fmt: skip


def code(text: str) -> str:
    return f"I changed the block.\n```python\n{text}```\n"


def calls(folder: Path, lines: list[Json], **more: Any) -> Calls:
    script = folder / "script.jsonl"
    script.write_text("".join(json.dumps(each) + "\n" for each in lines))
    (folder / "run").mkdir(exist_ok=True)
    return Calls(folder / "run", MODEL, "replay", script, **more)


@pytest.mark.slow
def test_every_kind_of_reply_is_handled_and_recorded(tmp_path):
    good = json.dumps([direction("one")])
    model = calls(tmp_path, [
        line("question bare", good),
        line("question fenced", f"Here it is:\n```json\n{good}\n```\n"),
        line("question malformed", '[{"category": "memory", ]'), line("malformed", good, 1),
        line("question lacking", '[{"category": "memory", "summary": "x"}]'), line("recommended_fixes", "no", 1),
        line("question empty", ""), line("it is empty", good, 1),
        line("question cut", good[:40], stop="max_tokens"), line("it was cut off", good, 1),
        line("question refused", "I will not.", stop="refusal"),
        line("question down", good, fail="529 overloaded"),
    ])  # fmt: skip
    outcomes = {
        "bare": ["ok"], "fenced": ["ok"], "malformed": ["malformed", "ok"], "lacking": ["malformed", "malformed"],
        "empty": ["empty", "ok"], "cut": ["truncated", "ok"], "refused": ["refused"], "down": ["provider_error"],
    }  # fmt: skip
    for name, wanted in outcomes.items():
        try:
            (found,), _ = model.ask(name, f"question {name}", lambda text: parsed(text, DIRECTIONS))
            assert found.summary == "one" and wanted[-1] == "ok"
        except NoAnswer as error:
            assert str(error).startswith(wanted[-1]) and wanted[-1] != "ok"
    lines = model.take()
    assert [(each["purpose"], each["outcome"]) for each in lines] == [
        (name, outcome) for name, wanted in outcomes.items() for outcome in wanted]  # fmt: skip
    assert all(len(each["request_sha256"]) == 64 for each in lines)
    assert model.spent["usd"] > 0 and model.spent["tokens"] > 0
    again = Calls(model.run, MODEL, model.upstream)
    assert again.spent == model.spent, "a resumed run continues what was spent"


def variant(block: int) -> str:
    return KERNEL.replace("block = 256", f"block = {block}")


def script(*, rounds: int = 3) -> list[Json]:
    """Two directions for each program: the first candidate is wrong and is mended."""
    wrong = variant(64) + "\nwrong = 1\n"
    return [
        line("Say what it teaches", json.dumps(REFLECTED)),
        line("Mend it", code(variant(128))),
        line("wide blocks: do wide blocks", code(wrong)),
        line("few loads: do few loads", code(variant(512))),
        line("You analyse", json.dumps([direction("wide blocks"), direction("few loads")])),
    ]


def run(folder: Path, model: Calls, **changed: Any) -> tuple[Any, Loop]:
    judge = ToldJudge()
    chosen = options(proposers=("model",), model=MODEL, **changed)
    proposer = Model(PROBLEM, model)
    loop = search(Journal.new(folder), lambda: judge, proposer, chosen=chosen)
    return loop.run(), loop


def made_calls(model: Calls) -> list[dict[str, object]]:
    """The calls in the journal of a run."""
    proposed = [each.result for each in journal.read(model.run) if each.kind == "proposed"]
    return [call for each in proposed for call in PROPOSED.validate_python(each).calls]


def test_a_model_analyses_rewrites_mends_and_reflects(tmp_path):
    model = calls(tmp_path, script())
    state, _ = run(model.run, model, rounds=2)
    made = {p.strategy: p for p in state.programs.values() if p.verdict == "correct" and p.id != INPUT}
    assert set(made) == {"wide_blocks", "few_loads"}
    failed = state.programs[made["wide_blocks"].mends]
    assert failed.verdict == "incorrect" and failed.round == made["wide_blocks"].round == 1
    assert state.spent["usd"] > 0 and state.spent["tokens"] > 0
    purposes = [str(c["purpose"]).split()[0] for c in made_calls(model)]
    assert purposes[:4] == ["analyse", "rewrite", "rewrite", "repair"] and "reflect" in purposes
    lessons = [p for p in state.programs.values() if "reflexion.txt" in p.transcript]
    assert lessons and parsed(lessons[0].transcript["reflexion.txt"], REFLEXION).lessons == REFLECTED["lessons"]
    again = search(Journal.replay(model.run, tmp_path / "again"), unasked, Recorded("model"),
                   chosen=options(proposers=("model",), model=MODEL, rounds=2))  # fmt: skip
    assert again.run().best == state.best
    assert (tmp_path / "again" / journal.FILE).read_bytes() == (model.run / journal.FILE).read_bytes()
    root = export.export(state, PROBLEM.path, "82_x", tmp_path, measured=False, counters=None, fingerprint=None,
                         confirmed=None, journal_sha256="0")  # fmt: skip
    assert root is not None and lint.lint(root).errors == 0
    assert {p.name for p in root.glob("optimization_trace/round_1/*")} >= {"opt_prompt.txt", "opt_reply.txt",
                                                                           "bottleneck_response.txt"}  # fmt: skip


def test_a_budget_of_one_dollar_stops_within_one_call_of_it(tmp_path):
    price = {"usage": {"input_tokens": 40_000, "output_tokens": 4_000}}  # 0.30 USD
    model = calls(tmp_path, [each | price for each in script()], usd=1.0)
    state, loop = run(model.run, model, rounds=8, patience=8, usd=1.0)
    assert 1.0 <= state.spent["usd"] <= 1.31
    assert "budget" in loop.stopped
    made = made_calls(model)
    assert sum(c["outcome"] == "ok" for c in made) == 4 and made[-1]["outcome"] in ("ok", "budget")


@pytest.mark.slow
def test_search_goes_on_beside_a_model_that_refuses(tmp_path):
    model = calls(tmp_path, [line("You analyse", "No.", stop="refusal")])
    proposer, judge = Model(PROBLEM, model), ToldJudge()
    loop = search(Journal.new(model.run), lambda: judge, Search(), proposer,
                  chosen=options(proposers=("search", "model"), rounds=1))  # fmt: skip
    state = loop.run()
    assert len(state.programs) > 5 and {p.proposer for p in state.programs.values()} == {"", "search"}
    told = [c["outcome"] for c in made_calls(model)]
    assert set(told) == {"refused"} and len(told) <= 4


def test_replies_without_a_kernel_are_unreadable():
    for text in ("", "no code", "```python\na\n```\n```python\nb\n```\n"):
        with pytest.raises(Unreadable):
            kernel_of(text)
