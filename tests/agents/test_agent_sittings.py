"""Sittings of a scripted study: real Inspect, the local sandbox, and a judge that answers at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from agent_study import DONE, IDS, Stub, bash, consult, fixtures, go, plan, solve
from conftest import rows
from inspect_ai.log import read_eval_log

from repro import config
from repro.analysis import records
from repro.bundle import verify
from repro.bundle.write import Bundle
from repro.records.row import Sitting
from repro.report import markdown, study
from repro.runs.schedule import Interrupted
from repro.studies.agent import controls, design
from repro.studies.agent.design import Budgets
from repro.system.jsonio import Json

# Inspect leaves streams to the garbage collector.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]
ONE = ["L1_36"]
FAILS = {"fail": "529 overloaded", "content": ""}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixtures(tmp_path_factory.mktemp("stub"))


def record(bundle: Bundle, name: str) -> Json:
    return dict(json.loads((bundle.path / "agents" / name / "job.json").read_text()))


def studied(bundle: Bundle) -> Any:
    """What a report says of the study."""
    return study.build(records.source(bundle, "A"))


def check_whole(bundle: Bundle) -> None:
    """Check what must not depend on when a run was interrupted: it is complete, and all four rows are correct."""
    found = [[e["verdict"] for e in bundle.rows[name]["result"]["results"]] for name in bundle.manifest["plan"]]
    assert bundle.manifest["status"] == "complete" and found == [["correct"]] * 4


def test_three_arms_are_sat_judged_logged_and_reported(results):
    chosen = plan(lambda unit: [consult("tiles of a reduction"), solve(*unit.problems), DONE] if unit.arm != "baseline"
                  else [solve(*unit.problems), DONE], arms=("baseline", "with_kb", "placebo"))  # fmt: skip
    engine = Stub()
    bundle = go(engine, results, chosen, controls=[controls.EVERY["tf32"]])
    order = [unit.id for unit in design.units(chosen, IDS)]
    assert engine.judged == [*order, "L1_36/tf32/0", "L1_82/tf32/0"], "ABBA, and the controls last"
    assert bundle.manifest["status"] == "complete" and set(verify.verify(bundle.path).failed) <= {"fingerprints"}
    for name in order:
        made = record(bundle, name)
        assert made["finished"] and made["status"] == "completed" and made["meter"]["turns"] >= 2, made
        assert made["tools"] == ([] if "baseline" in name else sorted(
            ["search_knowledge", "build_plan", "review_plan", "verify_code_math", "diagnose_failure",
             "propose_hypothesis", "query_hyperparameter_priors", "get_page"]))  # fmt: skip
        assert made["meter"]["kb"]["calls"] == (0 if "baseline" in name else 1)
    (call,) = (bundle.path / "agents/L1_36/with_kb/0/attempt-1/knowledge.jsonl").read_text().splitlines()
    assert json.loads(call)["tool"] == "search_knowledge" and json.loads(call)["hits"]
    told = studied(bundle)
    assert list(told.arms) == ["baseline", "with_kb", "placebo"] and told.controls["tf32"].verdicts["correct"] == 2
    assert told.arms["baseline"].usd == pytest.approx(2 * 2 * (100 * 5 + 10 * 25) / 1e6)
    assert "2 search_knowledge" in "".join(map(markdown.section, study.sections([records.source(bundle, "A")])))
    (log,) = (bundle.path / "logs").glob("*.eval")
    read = read_eval_log(str(log))
    assert read.status == "success" and len(read.samples or []) == 6
    assert [sample.scores["judged"].value for sample in read.samples or [] if sample.scores] == [1.0] * 6


SPENT = {"usage": {"input_tokens": 400_000, "output_tokens": 0}}  # 2 USD
ENDINGS = {
    "ends without a solution": ([DONE], Budgets(), "gave_up", "agent"),
    "refuses": ([DONE | {"stop_reason": "refusal"}], Budgets(), "refused", "agent"),
    "turns": ([bash("true")] * 9, Budgets(turns=3), "budget", "agent"),
    "money": ([bash("true", **SPENT)] * 9, Budgets(usd=3.0), "budget", "agent"),
    "tokens": ([bash("true", **SPENT), bash("sleep 3"), DONE], Budgets(tokens=1000, usd=None), "budget", "agent"),
    "time": ([bash("sleep 30"), DONE], Budgets(wall_s=2.0), "timeout", "agent"),
    "the provider fails": ([bash("true"), FAILS], Budgets(), "provider_error", "provider"),
    "the script ends": ([bash("true")], Budgets(), "provider_error", "provider"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDINGS)
def test_an_ending_is_laid_at_the_right_door(name, results):
    lines, budgets, status, klass = ENDINGS[name]
    chosen = plan(lambda unit: lines, ONE, arms=("baseline",), budgets=budgets)
    bundle = go(Stub(), results, chosen, ONE, retries=1)
    made = record(bundle, "L1_36/baseline/0")
    assert (made["status"], made["class"]) == (status, klass), made
    assert len(made["attempts"]) == (1 if klass == "agent" else 2), "an agent's own failure is not tried again"
    if name == "money":
        assert made["meter"]["turns"] == 2 and made["meter"]["usd"] == 4.0, "within one call of the budget"
    row = bundle.record("L1_36/baseline/0")
    if klass == "agent":
        assert row.judged and row.judged.results[0].verdict == "error"
        assert row.agent == Sitting(job="L1_36/baseline/0", status=status, detail=made["detail"], solution=False,
                                    record="agents/L1_36/baseline/0/job.json")  # fmt: skip
    else:
        assert row.status == "failed" and "provider failure in each of 2 attempts" in row.error
        assert bundle.manifest["status"] == "incomplete" and studied(bundle).unfinished == ["L1_36/baseline/0"]
        again = go(Stub(), results, plan(None, ONE, arms=("baseline",), budgets=budgets), ONE, resume=True)
        assert again.path != bundle.path or again.manifest["status"] == "complete"


def test_one_budget_of_the_run_starts_no_sitting_that_it_cannot_pay(results):
    chosen = plan(lambda unit: [solve(*unit.problems) | SPENT, DONE], budgets=Budgets(usd=5.0))
    engine = Stub()
    bundle = go(engine, results, chosen, jobs=3, run_usd=8.0)
    late = [row for row in rows(bundle.path).values() if row["status"] == "unmet"]
    assert len(engine.judged) == 2 and len(late) == 2, "two sittings of 2 USD leave less than a third may cost"
    assert "of 8.00 USD" in late[0]["error"]
    again = Stub()
    go(again, results, chosen, resume=True, run_usd=8.0)
    assert not again.judged, "what was spent before counts"
    whole = go(again, results, chosen, resume=True, run_usd=40.0)
    assert len(again.judged) == 2 and {row["status"] for row in rows(whole.path).values()} == {"done"}


@pytest.mark.parametrize("stage", ["agent", "judge"])
def test_interrupted_at_any_stage_and_resumed_the_verdicts_are_the_same(stage, tmp_path):
    """Ctrl-C while the third sitting is with its agent, or with the judge."""
    results, third = fixtures(tmp_path), design.units(plan(), IDS)[2]
    kill = f"kill -INT {os.getpid()}; sleep 20"

    def lines(unit: design.Unit) -> list[Json]:
        stop = [bash(kill)] if stage == "agent" and unit == third else []
        return [*stop, solve(*unit.problems), DONE]

    chosen = plan(lines)
    engine = Stub()

    def judging(row: str) -> None:
        if stage == "judge" and row == third.id:
            os.kill(os.getpid(), signal.SIGINT)
            engine.halted.wait(10)

    engine.judging = judging
    with pytest.raises(Interrupted) as caught:
        go(engine, results, chosen)
    if stage == "agent":
        assert f"unfinished: {third.id}" in str(caught.value) and "2 of 4 rows" in str(caught.value)
    well = Stub()
    calm = plan(None)
    again = go(well, results, calm, resume=True)
    assert len(well.judged) == (2 if stage == "agent" else 1), "what was done was not done again"
    check_whole(again)


def _study_that_kills_itself(results: Path) -> None:
    """Run a study whose third agent kills the process of the study."""
    third = design.units(plan(), IDS)[2]
    kill = bash(f"kill -KILL {os.getpid()}")
    go(Stub(), results, plan(lambda unit: [*[kill] * (unit == third), solve(*unit.problems), DONE]))


def test_killed_without_warning_a_run_keeps_what_was_judged_and_goes_on(tmp_path):
    results = fixtures(tmp_path)
    process = multiprocessing.get_context("spawn").Process(target=_study_that_kills_itself, args=(results,))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    well = Stub()
    again = go(well, results, plan(), resume=True)
    assert well.judged == [unit.id for unit in design.units(plan(), IDS)][2:], "what was done was not done again"
    check_whole(again)
    assert set(verify.verify(again.path).failed) <= {"fingerprints"}


def test_a_suites_sitting_gives_a_row_a_problem_and_jobs_run_side_by_side(results):
    chosen = plan(lambda unit: [bash("sleep 4"), *map(solve, unit.problems), DONE], mode="suite")
    bundle = go(Stub(), results, chosen, jobs=2)
    assert set(bundle.rows) == {f"{p}/{a}/0" for p in IDS for a in ("baseline", "with_kb")}
    attempts = [record(bundle, f"suite/{arm}/0")["attempts"][0] for arm in ("baseline", "with_kb")]
    first, second = (datetime.fromisoformat(each["started"]) for each in attempts)
    assert abs((second - first).total_seconds()) < min(each["wall_s"] for each in attempts) - 1, "whole seconds"


def test_what_a_local_agent_sees_and_leaves(results, monkeypatch):
    """No key, no arm, no page; and nothing that it started or wrote elsewhere stays."""
    for name in config.SECRETS:
        monkeypatch.setenv(name, f"planted-{name}")
    look = "env; cat /proc/self/environ; ls -R ..; cat ../home/.profile ../bin/repro; repro optimize; echo looked"
    late = "(trap '' TERM INT HUP; exec -a linger sleep 300) >/dev/null 2>&1 & "
    late += "mkfifo solutions/fifo.py; ln -s /etc/passwd solutions/l.py"
    chosen = plan(lambda unit: [bash(look), bash(late), solve(*unit.problems), DONE], ONE, arms=("with_kb",))
    bundle = go(Stub(), results, chosen, ONE)
    made = record(bundle, "L1_36/with_kb/0")
    assert made["status"] == "completed" and list(made["solutions"]) == ["L1_36_RMSNorm.py"]
    assert {"fifo.py", "l.py"} <= set(made["cut"]) and made["isolation"] == {"isolation": "processes"}
    (log,) = (bundle.path / "logs").glob("*.eval")
    (sample,) = read_eval_log(str(log)).samples or []
    text = "\n".join(message.text for message in sample.messages if message.role == "tool")
    assert "looked" in text and "optimize is off in this study" in text
    assert "planted" not in text and "with_kb" not in text and "placebo" not in text
    running = [place.read_bytes() for place in Path("/proc").glob("[0-9]*/cmdline") if os.access(place, os.R_OK)]
    assert not [line for line in running if line.startswith(b"linger")]


def test_calls_beyond_the_budget_of_knowledge_are_refused_and_counted(results):
    asks = [consult("a"), consult("b"), consult("c")]
    chosen = plan(
        lambda unit: [*asks, solve(*unit.problems), DONE], ONE, arms=("placebo",), budgets=Budgets(kb_calls=2)
    )
    bundle = go(Stub(), results, chosen, ONE)
    kb = record(bundle, "L1_36/placebo/0")["meter"]["kb"]
    shown = "".join(map(markdown.section, study.sections([records.source(bundle, "A")])))
    assert (kb["calls"], kb["denied"]) == (2, 1) and "over budget" in shown
