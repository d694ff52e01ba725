"""The agent study: its order, its statistics against known answers, whose fault a failure is, resume, command line."""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Tool, manifest, rows, strict_json

from repro import config
from repro.analysis import claims as verdicts
from repro.analysis import published as claims
from repro.analysis import statistics
from repro.analysis.statistics import Observation
from repro.bundle import verify
from repro.bundle.write import Bundle
from repro.engines import agent as files
from repro.engines.agent import AgentJob, AgentOutcome
from repro.engines.base import Engine
from repro.engines.local import LocalEngine
from repro.engines.resources import Lease
from repro.errors import EngineError
from repro.fixtures import store
from repro.problems import catalogue
from repro.records.agent import MeterRecord
from repro.records.job import Job, Outcome
from repro.records.row import Sitting
from repro.report import document, markdown, model, study
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.runs.schedule import Interrupted
from repro.studies.agent import controls, design, runner, sittings
from repro.studies.agent.attempts import Attempts, secrets
from repro.studies.agent.design import Budgets, Design
from repro.studies.agent.purse import Purse, Spent, cost_usd
from repro.system import jsonio

IDS = ["L1_36", "L1_82", "L1_97", "L2_34"]
SCRIPTS = ROOT / "tests" / "agent_scripts"


def plan(**changes: Any) -> Design:
    """A scripted study of both arms without prices."""
    told: dict[str, Any] = {"agent": "sdk", "model": "claude-opus-4-5-20251101", "upstream": "replay"}
    told |= {"budgets": Budgets(usd=None), "prices": {"as_of": "2026-01-01", "models": {}}} | changes
    order = design.units(Design(**told), IDS)
    return Design(**{**told, "scripts": {unit.id: b"{}\n" for unit in order}})


# -- the order


@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_abba_lets_each_arm_come_first_as_often_as_it_can(repeats: int) -> None:
    order = design.units(plan(repeats=repeats), IDS)
    firsts = [order[at].arm for at in range(0, len(order), 2)]
    assert abs(firsts.count("baseline") - firsts.count("with_kb")) <= len(IDS) * repeats % 2
    assert len({unit.id for unit in order}) == len(order) == 2 * len(IDS) * repeats
    late = design.balance(order)
    assert abs(late["baseline"] - late["with_kb"]) < 0.02


def test_a_problems_arms_start_one_after_the_other_and_never_arm_by_arm() -> None:
    """Published, one whole arm came after the other."""
    for kind in design.ORDERS:
        order = design.units(plan(order=kind, repeats=2), IDS)
        for at in range(0, len(order), 2):
            assert (order[at].name, order[at].repeat) == (order[at + 1].name, order[at + 1].repeat)
            assert {order[at].arm, order[at + 1].arm} == {"baseline", "with_kb"}


def test_a_random_order_is_reproducible() -> None:
    first, again, other = (design.units(plan(order="random", seed=seed, repeats=3), IDS) for seed in (7, 7, 8))
    assert first == again != other


def test_a_suite_is_one_sitting_of_all_problems() -> None:
    order = design.units(plan(mode="suite", repeats=2), IDS)
    assert [unit.id for unit in order] == ["suite/baseline/0", "suite/with_kb/0", "suite/with_kb/1", "suite/baseline/1"]
    assert all(unit.problems == tuple(IDS) for unit in order)


# -- statistics


def published() -> list[Observation]:
    found = [c for c in claims.load() if c.study == "agent" and c.measure == "speedup"]
    return [Observation(c.problem, c.variant, 0, c.value) for c in found]


def test_the_published_table_gives_its_own_numbers() -> None:
    """1.80x and 2.11x, ratio 1.17, 95 % interval 0.94 to 1.47 by Student's t, sign-flip p 0.145; counted apart."""
    seen = published()
    assert statistics.arm(seen, "baseline")["fail_is_1"] == pytest.approx(1.803, abs=5e-4)
    assert statistics.arm(seen, "with_kb")["fail_is_1"] == pytest.approx(2.114, abs=5e-4)
    found = statistics.paired(seen, "baseline", "with_kb")
    assert found is not None and found["n"] == 10
    assert found["ratio"] == pytest.approx(1.172, abs=5e-4)
    assert found["t_ci95"] == [pytest.approx(0.94, abs=5e-3), pytest.approx(1.47, abs=6e-3)]
    assert found["sign_flip"] == {"p": pytest.approx(0.145, abs=1e-3), "exact": True}
    assert found["ci95"] == [pytest.approx(0.94, abs=0.03), pytest.approx(1.47, abs=0.03)]
    assert found["needed"] == {"1.10": pytest.approx(84, abs=1), "1.17": pytest.approx(31, abs=1)}


def simulated(generator: np.random.Generator, gain: float, n: int, repeats: int) -> list[Observation]:
    """A study whose true gain is known: problems differ in it by 0.3, sittings by 0.15, as logs."""
    found = []
    for at in range(n):
        base, more = generator.normal(0.5, 0.4), generator.normal(math.log(gain), 0.3)
        for repeat in range(repeats):
            for arm, mean in (("baseline", base), ("with_kb", base + more)):
                found.append(Observation(f"p{at}", arm, repeat, math.exp(generator.normal(mean, 0.15))))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("n", "repeats"), [(10, 1), (6, 3)])
def test_intervals_hold_the_true_gain_as_often_as_they_say(n: int, repeats: int) -> None:
    """95 % of 200 simulated studies, within what 200 can tell: 2 standard deviations are 3 %."""
    generator = np.random.default_rng(1)
    held = {"ci95": 0, "t_ci95": 0}
    for _ in range(200):
        found = statistics.paired(simulated(generator, 1.3, n, repeats), "baseline", "with_kb")
        assert found is not None
        for name in held:
            held[name] += found[name][0] <= 1.3 <= found[name][1]
    assert all(0.91 <= count / 200 <= 0.99 for count in held.values()), held


@pytest.mark.slow
def test_detectable_gains_are_found_in_four_of_five_studies() -> None:
    generator = np.random.default_rng(2)
    spread = math.sqrt(0.3**2 + 2 * 0.15**2)
    gain, found = statistics.detectable(spread, 10), 0
    for _ in range(400):
        told = statistics.paired(simulated(generator, gain, 10, 1), "baseline", "with_kb")
        assert told is not None
        found += told["t_ci95"][0] > 1
    assert found / 400 == pytest.approx(0.8, abs=0.06)


def test_without_a_gain_the_sign_flip_is_significant_as_often_as_chance() -> None:
    generator = np.random.default_rng(3)
    values = [statistics.sign_flip(list(generator.normal(0, 0.3, 8)))["p"] for _ in range(400)]
    assert np.mean(np.asarray(values) <= 0.05) == pytest.approx(0.05, abs=0.03)


def test_sign_flips_are_counted_one_by_one_and_sampled_alike() -> None:
    assert statistics.sign_flip([0.1, 0.2, 0.4]) == {"p": 0.25, "exact": True}
    assert statistics.sign_flip([0.3, -0.3])["p"] == 1.0
    values = list(np.random.default_rng(4).normal(0.15, 0.3, 12))
    exact = statistics.sign_flip(values)
    sampled = statistics.sign_flip([*values, 0.0])  # a thirteenth that changes nothing
    assert exact["exact"] and not sampled["exact"]
    assert sampled["p"] == pytest.approx(exact["p"], abs=0.005)


def test_failures_stay_in_the_denominator() -> None:
    """One of two repeats failed: 4x and nothing are 2x where a failure is 1x, 4x among the correct, half in fast_p."""
    seen = [Observation("a", "x", 0, 4.0), Observation("a", "x", 1, None), Observation("b", "x", 0, None)]
    found = statistics.arm(seen, "x")
    assert found["problems"]["a"] == {
        "fail_is_1": pytest.approx(2.0), "correct_only": pytest.approx(4.0), "correct": 1, "n": 2
    }  # fmt: skip
    assert found["problems"]["b"]["fail_is_1"] == 1.0 and found["problems"]["b"]["correct_only"] is None
    assert found["fail_is_1"] == pytest.approx(math.sqrt(2))
    assert found["fast_p"] == {"1": 0.25, "1.5": 0.25, "2": 0.25}
    assert (found["correct"], found["n"]) == (1, 3)


def test_repeats_are_no_further_problems() -> None:
    """Ten times the repeats of the same two problems: the interval stays that of two problems."""
    seen = [Observation(p, arm, r, v) for p, base, v_ in (("a", 1.0, 2.0), ("b", 1.0, 1.0)) for r in range(10)
            for arm, v in (("baseline", base), ("with_kb", v_))]  # fmt: skip
    found = statistics.paired(seen, "baseline", "with_kb")
    assert found is not None and found["n"] == 2 and found["t_ci95"][0] < 0.1


# -- who caused an end


def left(told: dict[str, Any] | None, meter: dict[str, Any] | None = None, **facts: Any) -> AgentOutcome:
    outcome = AgentOutcome("job", **facts)
    if told is not None:
        outcome.agent_files[files.OUTCOME] = json.dumps(told).encode()
    outcome.gateway_files[files.METER] = json.dumps(meter or {}).encode()
    return outcome


ENDINGS = {
    "completed": (left({"status": "completed"}), "completed", "agent"),
    "gave up": (left({"status": "gave_up"}), "gave_up", "agent"),
    "budget, whatever the agent calls it": (
        left({"status": "provider_error"}, {"stopped": "budget:usd", "provider_errors": {"429": 1}}), "budget", "agent"
    ),
    "wall": (left({"status": "infra_error"}, {"stopped": "budget:wall"}), "timeout", "agent"),
    "done within the budget that it spent": (
        left({"status": "completed"}, {"stopped": "budget:turns"}), "completed", "agent"
    ),
    "provider": (
        left({"status": "provider_error"}, {"provider_errors": {"http_529": 9}}), "provider_error", "provider"
    ),
    "a provider error that was not seen": (left({"status": "provider_error"}), "agent_error", "agent"),
    "a provider that failed and recovered": (
        left({"status": "provider_error"}, {"turns": 3, "provider_errors": {"529": 1}, "failing": ""}), "agent_error",
        "agent",
    ),
    "a provider that fails at the end": (
        left({"status": "provider_error"}, {"turns": 3, "provider_errors": {"529": 9}, "failing": "529"}),
        "provider_error", "provider",
    ),
    "broken before the first reply": (
        left({"status": "infra_error"}, {"turns": 0}), "infra_error", "infrastructure"
    ),
    "broken by itself at work": (left(None, {"turns": 2}, ending="exit code 2"), "agent_error", "agent"),
    "killed from outside at work": (
        left(None, {"turns": 2}, ending="killed", cause="infrastructure"), "infra_error", "infrastructure"
    ),
    "a forged interruption": (left({"status": "interrupted"}, {"turns": 2}), "agent_error", "agent"),
    "no outcome": (left(None, ending="killed", cause="infrastructure"), "infra_error", "infrastructure"),
    "an outcome that is no JSON": (AgentOutcome("c", agent_files={files.OUTCOME: b"{"}), "infra_error",
                                   "infrastructure"),
    "the gateway died": (
        left({"status": "completed"}, gateway_ending="exit code 137"), "infra_error", "infrastructure"
    ),
    "out of memory": (left(None, ending="memory", cause="memory"), "agent_error", "agent"),
    "killed at the wall": (left(None, ending="late", cause="timeout"), "timeout", "agent"),
    "a session that its own programs end": (
        left({"status": "infra_error", "detail": "ended by SIGTERM"}, {"turns": 1}), "agent_error", "agent"
    ),
    "stopped": (left({"status": "infra_error"}, cause="stopped", ending="stopped"), "interrupted", "interrupted"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDINGS)
def test_an_ending_is_laid_at_the_right_door(name: str) -> None:
    outcome, status, klass = ENDINGS[name]
    found = sittings.judge(outcome)
    assert (found.status, found.klass) == (status, klass), found


# -- what an agent gets


def test_an_agents_fixture_judges_and_holds_nothing_else(smoke_results: Path) -> None:
    """Limits and sizes alone: no seed, checksum, sketch, distance of a cheat, or time."""
    problem = catalogue.load("L1_82", size="smoke")
    whole = store.load(store.path(smoke_results, problem, "cpu"), problem).to_json()
    whole["refused_classes"] = {"bf16": "a cheat passes every trial"}
    given = sittings.slim(whole)
    assert given["refused_classes"] == whole["refused_classes"], "else an agent reads `correct` for them"
    text = json.dumps(given)
    for word in ("seed", "checksum64", "sha256_head", "sketch", "cheats", "honest", "eager_ms", "sensitivity"):
        assert f'"{word}"' in json.dumps(whole) and f'"{word}"' not in text, word
    assert {k: v["limits"] for k, v in whole["trials"].items()} == {k: v["limits"] for k, v in given["trials"].items()}


@pytest.mark.slow
def test_a_solution_is_judged_the_same_with_the_fixture_of_an_agent(judge_tool: Tool) -> None:
    file = judge_tool.results / "fixtures" / "smoke-cpu" / "L1_36.json"
    jsonio.write(file, sittings.slim(strict_json(file.read_text())))
    solution = config.ORACLE_DIR / "L1_36_RMSNorm.py"
    done = judge_tool("evaluate", solution, "--engine", "local", "--device", "cpu", "--size", "smoke", "--no-timing",
                      "--json", "out.json")  # fmt: skip
    assert done.code == 0, done.err
    assert strict_json((judge_tool.folder / "out.json").read_text())["results"][0]["verdict"] == "correct"


def test_a_gateway_gets_the_keys_that_it_needs_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in config.SECRETS:
        monkeypatch.setenv(name, f"value of {name}")
    for upstream, kb, arm, names in (
        ("anthropic", "local", "with_kb", ["ANTHROPIC_API_KEY"]),
        ("bedrock", "leeroopedia", "baseline", ["AWS_BEARER_TOKEN_BEDROCK"]),
        ("bedrock", "leeroopedia", "with_kb", ["AWS_BEARER_TOKEN_BEDROCK", "LEEROOPEDIA_API_KEY"]),
        ("replay", "local", "with_kb", []),
    ):
        chosen = plan(upstream=upstream, kb=kb)
        unit = next(u for u in design.units(chosen, IDS) if u.arm == arm)
        assert list(secrets(chosen, unit)) == names


def test_no_file_of_a_job_names_the_other_arm_or_a_key(smoke_results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-planted")
    engine = Stub()
    chosen = plan(upstream="anthropic")
    for unit in design.units(chosen, ["L1_36"]):
        job = sittings.build(chosen, unit, "smoke", smoke_results, engine, share=1.0)
        other = {"baseline": "with_kb", "with_kb": "baseline"}[unit.arm]
        told = jsonio.render(job.agent) + jsonio.render(job.gateway)
        assert other.encode() not in told and b"with_kb" not in b"".join(job.files.values())
        assert b"sk-planted" not in told + b"".join(job.files.values())
        assert not [name for name in job.files if not name.startswith(("problems/", "fixtures/", "docs/"))]


@pytest.mark.parametrize("allowed", [False, True])
def test_the_search_is_given_to_every_arm_or_to_none(smoke_results: Path, *, allowed: bool) -> None:
    chosen = plan(upstream="anthropic", optimize=allowed)
    jobs = [sittings.build(chosen, unit, "smoke", smoke_results, Stub(), share=1.0)
            for unit in design.units(chosen, ["L1_36"])]  # fmt: skip
    assert [job.agent["optimize"] for job in jobs] == [allowed, allowed]
    assert design.Design("sdk", "m").optimize is False


# -- a campaign


class Stub(Engine):
    """An engine whose agents and judge answer at once as a test says; what it ran is noted."""

    name, device = "local", "cpu"

    def __init__(self, answers: Callable[[str, int], AgentOutcome] | None = None) -> None:
        self.answers = answers or (lambda job, attempt: handed_in(job))
        self.ran: list[str] = []
        self.judged: list[str] = []
        self.together, self.most = 0, 0
        self.judging: Callable[[str], None] = lambda row: None
        self._lock = threading.Lock()
        self.description = {"engine": "local", "isolation": "none"}

    def run_agent(self, job: AgentJob, secrets: dict[str, str], progress: Callable[[str], None]) -> AgentOutcome:
        with self._lock:
            self.ran.append(job.id)
            attempt = self.ran.count(job.id)
            self.together += 1
            self.most = max(self.most, self.together)
        try:
            time.sleep(0.01)
            return self.answers(job.id, attempt)
        finally:
            with self._lock:
                self.together -= 1

    def _attempt(self, wanted: list[Job], timeout_s: float, progress: Callable[[str], None]) -> Any:
        self.judging(wanted[0].id)
        self.judged.append(wanted[0].id)
        source = next(v for k, v in wanted[0].files.items() if k.startswith("solution"))
        verdict = "error" if source == runner.MISSING else "correct"
        entry = {"problem": wanted[0].problem, "solution": "s", "verdict": verdict, "precision_class": "fp32",
                 "rel_l2": 1e-7, "time_ms": None, "measurement": False, "speedup": {}, "trust": "audited", "labels": [],
                 "reasons": [{"code": "no_entry", "detail": "no ModelNew"}] if verdict == "error" else []}  # fmt: skip
        yield Outcome(wanted[0].id, "done", {"results": [entry]})
        return ""


def handed_in(job: str, status: str = "completed", **meter: Any) -> AgentOutcome:
    """What an agent leaves that solved every problem of its job with a text of its own."""
    found = left({"status": status}, {"turns": 3, "usd": 0.5} | meter)
    for problem in IDS if job.startswith("suite") else [job.split("/")[0]]:
        name = catalogue.load(problem).path.name
        found.agent_files[f"{files.SOLUTIONS}/{name}"] = f"# {job}\nclass ModelNew: ...\n".encode()
    return found


@pytest.fixture(scope="module")
def stub_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fixtures that load, of problems that no judge here looks at."""
    folder = tmp_path_factory.mktemp("stub")
    for each in IDS:
        problem = catalogue.load(each, size="smoke")
        whole = {
            "schema_version": store.SCHEMA_VERSION, "problem": each, "trials": {}, "refused": "",
            "weights_sha256": "0" * 64, "dtype": "", "margin": 0,
            "problem_sha256": hashlib.sha256(problem.path.read_bytes()).hexdigest(),
        }  # fmt: skip
        jsonio.write(store.path(folder, problem, "cpu"), whole)
    return folder


def go(engine: Stub, results: Path, chosen: Design, only: list[str] = IDS, *, resume: bool = False, jobs: int = 1,
       retries: int = 2, run_usd: float | None = None) -> Bundle:  # fmt: skip
    run = Run(engine, results, Progress(), size="smoke", resume=resume)
    return runner.run(run, chosen, only, runner.Pace(jobs, retries, 0.0, run_usd))


def studied(bundle: Bundle) -> Any:
    """What a report says of the study."""
    return study.build(bundle, list(bundle.records().values()))


def table(bundle: Bundle) -> list[Any]:
    """What must not depend on when a run was interrupted."""
    return [(row["row"], row["content"], row["agent"], [e["verdict"] for e in row["result"]["results"]])
            for row in (bundle.rows[name] for name in bundle.manifest["plan"])]  # fmt: skip


def test_cells_start_in_the_order_of_the_design_and_every_problem_is_a_row(stub_results: Path) -> None:
    chosen = plan(repeats=2)
    engine = Stub()
    bundle = go(engine, stub_results, chosen)
    assert engine.ran == [unit.id for unit in design.units(chosen, IDS)] == engine.judged
    assert manifest(bundle.path)["status"] == "complete"
    assert manifest(bundle.path)["parameters"]["study"]["order_of_cells"] == engine.ran
    assert set(rows(bundle.path)) == {f"{p}/{a}/{r}" for p in IDS for a in ("baseline", "with_kb") for r in (0, 1)}


def test_a_suites_sitting_gives_a_row_a_problem(stub_results: Path) -> None:
    engine = Stub()
    bundle = go(engine, stub_results, plan(mode="suite"))
    assert engine.ran == ["suite/baseline/0", "suite/with_kb/0"] and len(bundle.rows) == 2 * len(IDS)


def test_one_budget_of_the_run_starts_no_sitting_that_it_cannot_pay(stub_results: Path) -> None:
    engine = Stub(lambda job, attempt: handed_in(job, usd=2.0))
    chosen = plan(budgets=Budgets(usd=5.0))
    bundle = go(engine, stub_results, chosen, jobs=3, run_usd=14.0)
    assert len(engine.ran) == 5 and engine.most <= 2, "two sittings of 5 USD at once leave less than a third one"
    late = [row for row in rows(bundle.path).values() if row["status"] == "unmet"]
    assert len(late) == 2 * len(IDS) - 5 and "10.00 of 14.00 USD" in late[0]["error"]
    again = Stub(lambda job, attempt: handed_in(job, usd=0.1))
    go(again, stub_results, chosen, resume=True, run_usd=14.0)
    assert not again.ran, "what was spent before counts"
    go(again, stub_results, chosen, resume=True, run_usd=40.0)
    assert len(again.ran) == 2 * len(IDS) - 5
    assert {row["status"] for row in rows(bundle.path).values()} == {"done"}


def test_a_sitting_whose_cost_is_unknown_counts_in_full() -> None:
    assert cost_usd(MeterRecord(usd=1.5), 5.0) == 1.5
    assert cost_usd(MeterRecord(turns=2), 5.0) == 5.0 and cost_usd(MeterRecord(), 5.0) == 0.0
    purse = Purse(12.0, 5.0)
    for outcome, spent in ((AgentOutcome("a", cause="timeout"), 5.0), (AgentOutcome("a", cause="infrastructure"), 5.0)):
        with purse.sitting(lambda seconds: False) as settle:
            settle(outcome)
        assert purse.spent_usd == spent
    with pytest.raises(RuntimeError), purse.sitting(lambda seconds: False):
        raise RuntimeError
    assert purse.spent_usd == 10.0
    with pytest.raises(Spent), purse.sitting(lambda seconds: False):
        pass


def test_no_solution_is_a_row_with_a_verdict(stub_results: Path) -> None:
    engine = Stub(lambda job, attempt: left({"status": "gave_up", "detail": "nothing"}, {"turns": 2}))
    bundle = go(engine, stub_results, plan(), ["L1_36"])
    assert len(engine.ran) == 2, "an agent's failure is not tried again"
    for name, row in bundle.records().items():
        assert row.judged and row.judged.results[0].verdict == "error"
        assert row.agent == Sitting(job=name, status="gave_up", detail="nothing", solution=False,
                                    record=f"agents/{name}/job.json")  # fmt: skip
    assert bundle.manifest["status"] == "complete"


def test_infrastructure_and_provider_failures_are_tried_again_and_recorded(stub_results: Path) -> None:
    def answers(job: str, attempt: int) -> AgentOutcome:
        if attempt == 1 and "baseline" in job:
            raise EngineError("the Docker engine refused a job", "no space")
        if attempt < 3:
            meter = {"provider_errors": {"529": 9}, "failing": "529", "turns": 1, "usd": 0.25}
            return left({"status": "provider_error"}, meter)
        return handed_in(job)

    engine = Stub(answers)
    bundle = go(engine, stub_results, plan(), ["L1_36"])
    record = json.loads((bundle.path / "agents/L1_36/baseline/0/job.json").read_text())
    assert [a["class"] for a in record["attempts"]] == ["infrastructure", "provider", "agent"]
    assert record["finished"] and engine.ran.count("L1_36/baseline/0") == 3
    assert "schema of the study" not in verify.verify(bundle.path).failed
    told = studied(bundle)
    assert len(told.retries) == 4
    assert told.arms["with_kb"].discarded_usd == 0.5 and told.arms["with_kb"].usd == 0.5
    text = markdown.section(study.section(told))
    assert "3 provider" in text and "1 infrastructure" in text and "no space" in text


def test_a_failure_that_stays_leaves_its_row_unmeasured_and_resume_tries_it_alone(stub_results: Path) -> None:
    broken = Stub(lambda job, attempt: left(None, cause="infrastructure", ending="no gateway")
                  if "with_kb" in job else handed_in(job))  # fmt: skip
    bundle = go(broken, stub_results, plan(seed=11), ["L1_36"], retries=1)
    row = bundle.record("L1_36/with_kb/0")
    assert broken.ran.count(row.row) == 2 and row.status == "failed"
    assert "infrastructure failure in each of 2 attempts: no gateway" in row.error
    assert bundle.manifest["status"] == "incomplete"
    told = studied(bundle)
    assert told.unfinished == ["L1_36/with_kb/0"]
    well = Stub()
    again = go(well, stub_results, plan(seed=11), ["L1_36"], resume=True)
    assert again.path == bundle.path and well.ran == well.judged == ["L1_36/with_kb/0"]
    assert again.manifest["status"] == "complete"


@pytest.mark.parametrize("stage", ["agent", "judge"])
def test_interrupted_at_any_stage_and_resumed_the_table_is_the_same(stage: str, stub_results: Path) -> None:
    """Ctrl-C while the third job is with its agent, or with the judge."""
    chosen = plan(seed=21 if stage == "agent" else 22, repeats=2)
    whole = table(go(Stub(), stub_results, chosen))
    halted = threading.Event()

    def slow(job: str) -> None:
        if len(engine.ran) == 3:
            os.kill(os.getpid(), signal.SIGINT)
            halted.wait(10)

    def answers(job: str, attempt: int) -> AgentOutcome:
        slow(job)
        return left(None, cause="stopped", ending="stopped") if halted.is_set() else handed_in(job)

    engine = Stub(answers if stage == "agent" else None)
    engine.judging = slow if stage == "judge" else engine.judging
    engine.close = lambda **_: halted.set()  # type: ignore[method-assign]

    with pytest.raises(Interrupted) as caught:
        go(engine, stub_results, chosen)
    third = [unit.id for unit in design.units(chosen, IDS)][2]
    if stage == "agent":
        assert f"unfinished: {third}" in str(caught.value) and "2 of 16 rows" in str(caught.value)
    well = Stub()
    again = go(well, stub_results, chosen, resume=True)
    assert table(again) == whole
    assert len(well.ran) == (14 if stage == "agent" else 13), "what was done was not done again"
    assert again.manifest["status"] == "complete"


def test_a_changed_plan_does_not_resume(stub_results: Path) -> None:
    first = go(Stub(), stub_results, plan(seed=31), ["L1_36"])
    other = go(Stub(), stub_results, plan(seed=31, budgets=Budgets(turns=7, usd=None)), ["L1_36"], resume=True)
    assert other.path != first.path


def test_jobs_run_side_by_side_and_no_more_than_asked(stub_results: Path) -> None:
    engine = Stub()
    bundle = go(engine, stub_results, plan(repeats=3), jobs=4)
    assert 2 <= engine.most <= 4
    for name, row in bundle.records().items():
        kept = next(given.kept for given in row.inputs or [] if given.kept)
        assert name in (bundle.path / kept).read_text(), "every row was judged from its own agent's solution"


def test_an_agents_failure_is_never_tried_again(stub_results: Path, tmp_path: Path) -> None:
    unit = design.units(plan(), ["L1_36"])[0]
    for status in ("completed", "budget", "refused", "gave_up", "agent_error", "timeout"):
        kept: dict[str, bytes] = {}
        bundle = Bundle(tmp_path, {})
        tries = Attempts(bundle, unit, plan(), kept.__setitem__)
        record = tries.run(lambda status=status: handed_in(unit.id, status), 5, 0.0, lambda s: False, print)  # type: ignore[misc]
        assert len(record.attempts) == 1 and record.finished, status


def test_a_campaign_judges_controls_after_its_agents(stub_results: Path) -> None:
    engine = Stub()
    run, chosen = Run(engine, stub_results, Progress(), size="smoke"), plan(seed=71)
    bundle = runner.run(run, chosen, ["L1_36", "L1_82"], runner.Pace(), controls=[controls.Tf32()])
    assert engine.judged[-2:] == ["L1_36/tf32/0", "L1_82/tf32/0"] and len(engine.ran) == 4
    assert bundle.manifest["parameters"]["arms"]["tf32"] == controls.LABEL
    assert [row.torch_control for row in bundle.records().values()] == [False] * 4 + [True] * 2
    assert bundle.manifest["status"] == "complete"
    told = studied(bundle)
    assert list(told.arms) == ["baseline", "with_kb"]
    assert told.controls["tf32"].judged_correct == 2


# -- one GPU


@pytest.mark.slow
def test_one_agent_at_a_time_holds_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub_results: Path) -> None:
    """Three agents as real processes on a machine whose one GPU is a stand-in: their sittings do not overlap."""
    monkeypatch.setenv("REPRO_STATE", str(tmp_path / "state"))
    engine = LocalEngine(gpus="none", device="cpu")
    engine.gpus = [Lease("stand-in")]
    log = tmp_path / "log"
    command = f"echo start $$ >> {log}; sleep 0.7; echo end $$ >> {log}"
    call = {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": command}}
    script = (json.dumps({"content": [call], "stop_reason": "tool_use"}) + "\n").encode()
    chosen = plan(agent="replay", arms=("baseline",), repeats=3)
    order = design.units(chosen, ["L1_36"])
    chosen.scripts.update({unit.id: script for unit in order})
    outcomes: list[AgentOutcome] = []

    def sit(unit: design.Unit) -> None:
        job = sittings.build(chosen, unit, "smoke", stub_results, engine, share=1.0)
        outcomes.append(engine.run_agent(job, {}, lambda line: None))

    threads = [threading.Thread(target=sit, args=(unit,)) for unit in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [sittings.judge(outcome).status for outcome in outcomes] == ["gave_up"] * 3, [o.ending for o in outcomes]
    words = [line.split()[0] for line in log.read_text().splitlines()]
    assert words == ["start", "end"] * 3


# -- the report


def measured_bundle(folder: Path, *, upstream: str) -> Bundle:
    """Rows of a real run on a GPU, relabelled as two arms: the second is half as fast on one problem and failed one."""
    source = Bundle.open(next((ROOT / "artifacts/results/h200-pinned").glob("*-run")))
    real = [row for row in source.rows.values() if row["arm"] == "oracle"]
    chosen = plan(upstream=upstream)
    ids = [row["problem"] for row in real]
    order = design.units(chosen, ids)
    parameters = source.manifest["parameters"] | {
        "agent": "sdk", "arms": {arm: chosen.label(arm) for arm in chosen.arms},
        "study": chosen.to_json() | {"order_of_cells": [u.id for u in order], "balance": design.balance(order)},
    }  # fmt: skip
    names = [f"{p}/{a}/0" for p in ids for a in chosen.arms]
    bundle = Bundle.create(folder, "run", names, parameters)
    for row in real:
        for arm in chosen.arms:
            text = json.loads(json.dumps(row))
            entry = text["result"]["results"][0]
            if arm == "with_kb" and row["problem"] == "L1_36":
                told = entry["speedup"]["eager"]
                told |= {"ratio": told["ratio"] / 2, "ci95": [edge / 2 for edge in told["ci95"]]}
            if arm == "with_kb" and row["problem"] == "L1_82":
                entry |= {"verdict": "incorrect", "speedup": {}, "time_ms": None, "precision_class": None,
                          "reasons": [{"code": "wrong", "detail": "it is"}]}  # fmt: skip
            bundle.add(text | {"row": f"{row['problem']}/{arm}/0", "arm": arm, "control": False})
    for unit in order:
        Attempts(bundle, unit, chosen, bundle.file).run(
            lambda unit=unit: handed_in(unit.id, tokens={"input": 10, "output": 5}), 0, 0.0, lambda s: False, print  # type: ignore[misc]
        )  # fmt: skip
    bundle.finish("complete")
    return bundle


def test_the_report_tells_arms_uncertainty_costs_and_the_published_table(tmp_path: Path) -> None:
    bundle = measured_bundle(tmp_path, upstream="anthropic")
    report = model.build(bundle).to_json()
    told = report["study"]
    base, other = told["arms"]["baseline"], told["arms"]["with_kb"]
    lost = base["problems"]["L1_82"]["fail_is_1"]
    assert other["problems"]["L1_82"] == {"fail_is_1": 1.0, "correct_only": None, "correct": 0, "n": 1}
    assert base["fail_is_1"] / other["fail_is_1"] == pytest.approx((2 * lost) ** (1 / 10))
    (found,) = told["comparisons"]
    assert found["ratio"] == pytest.approx(other["fail_is_1"] / base["fail_is_1"]) and found["down"] == 2
    assert base["usd"] == pytest.approx(5.0) and base["tokens"]["input"] == 100
    text = markdown.render(document.build([bundle]))
    for words in ("<summary>Agent study<", "Published (1x NVIDIA L4, another machine", "Threat that remains", "fast_p",
                  "sign-flip p", "agent sdk, model claude-opus-4-5-20251101"):  # fmt: skip
        assert words in text, words
    assert "Scripted" not in text
    assert strict_json(jsonio.dumps(report))["study"]["published"]["comparison"]["n"] == 10


def test_a_scripted_study_says_so_and_tests_no_claim(tmp_path: Path) -> None:
    from repro.analysis import records

    bundle = measured_bundle(tmp_path, upstream="replay")
    text = markdown.render(document.build([bundle]))
    assert "Scripted: replies come from a file" in text and "no model was paid" in text
    assert "scripted replies, not an agent's result" in text
    found = verdicts.judge(claims.load(), [records.read(bundle)])
    assert not any(verdicts.tried(outcome) for _, outcome in found.pairs())


def test_an_unknown_cost_is_empty_and_never_zero(tmp_path: Path, stub_results: Path) -> None:
    engine = Stub(lambda job, attempt: handed_in(job, usd=None))
    bundle = go(engine, stub_results, plan(seed=41), ["L1_36"])
    told = studied(bundle)
    assert told.arms["baseline"].usd is None


# -- the command line

NO_KEYS = {name: "" for name in (*config.SECRETS, "ANTHROPIC_MODEL", "CLAUDE_CODE_USE_BEDROCK", "AWS_REGION")}
REPLAY = ["--agent", "sdk", "--upstream", f"replay:{SCRIPTS}"]
SMOKE = ("--engine", "local", "--device", "cpu", "--size", "smoke", "--problem", "L1_36")
WRONG = {
    "no key": (["--agent", "sdk"], "ANTHROPIC_API_KEY is not set"),
    "published flags, no key": (["--baseline"], "ANTHROPIC_API_KEY is not set"),
    "bedrock": (["--with-kb", "--bedrock"], "AWS_BEARER_TOKEN_BEDROCK is not set"),
    "leeroopedia": ([*REPLAY, "--kb", "leeroopedia"],
                    "LEEROOPEDIA_API_KEY is not set"),
    "arm": (["--agent", "sdk", "--arms", "baseline kb"], "no arm kb"),
    "arms twice": (["--agent", "sdk", "--arms", "baseline", "--with-kb"], "name arms twice"),
    "upstream": (["--agent", "sdk", "--upstream", "openai"], "no upstream 'openai'"),
    "replay without a path": (["--agent", "sdk", "--upstream", "replay"], "Use replay:PATH"),
    "no such script": (["--agent", "sdk", "--upstream", "replay:/nowhere"], "no such script or folder: /nowhere"),
    "no script of an arm": ([*REPLAY, "--arms", "placebo"],
                            "no script for L1_36/placebo/0"),
    "recording": (["--agent", "replay"], "which recording?"),
    "price": ([*REPLAY, "--model", "claude-unheard-of"],
              "the price of claude-unheard-of is unknown"),
    "budget": ([*REPLAY, "--budget-usd", "-1"], "--budget-usd -1.0 is no"),
    "jobs": ([*REPLAY, "--jobs", "0"], "--jobs must be at least 1"),
    "trust": ([*REPLAY, "--trust", "dev"], "judged with --trust audited"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_reported_before_anything_starts(name: str, tool: Tool) -> None:
    arguments, words = WRONG[name]
    done = tool.within("run", *SMOKE, *arguments, **NO_KEYS)
    assert done.code == 1 and words in done.complaint, done.err
    assert not tool.bundles() and not tool.processes()


def test_defaults_are_the_published_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    from repro.cli import main
    from repro.studies.agent import options

    for name, value in NO_KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-planted")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "planted")

    def built(*words: str) -> Design:
        return options.build(main.parser().parse_args(["run", *words]), "smoke")

    both = built("--agent", "claude-code")
    assert (both.model, both.arms, both.upstream) == (config.API_MODEL, ("baseline", "with_kb"), "anthropic")
    assert built("--baseline").arms == ("baseline",) and built("--with-kb").agent == "claude-code"
    assert built("--baseline", "--with-kb").arms == ("baseline", "with_kb")
    bedrock = built("--bedrock")
    assert (bedrock.model, bedrock.upstream, bedrock.region) == (config.BEDROCK_MODEL, "bedrock", "us-east-1")
    monkeypatch.setenv("ANTHROPIC_MODEL", "us.anthropic.claude-sonnet-4-6-v1")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert (built("--bedrock").model, built("--bedrock").region) == ("us.anthropic.claude-sonnet-4-6-v1", "eu-west-1")
    assert built("--agent", "sdk").model == config.API_MODEL, "as published, the variable is of Bedrock"
    monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "1")
    assert built("--agent", "sdk").upstream == "bedrock"
    assert built("--agent", "sdk", "--budget-usd", "0", "--model", "claude-unheard-of").prices["models"] == {}


@pytest.mark.slow
def test_oracle_runs_as_before_and_generate_ends_after_the_fixtures(tool: Tool) -> None:
    done = tool("run", *SMOKE, "--generate", **NO_KEYS)
    assert done.code == 0, done.err
    assert [bundle.name.split("-", 1)[1] for bundle in tool.bundles()] == ["fixtures"]
    done = tool("run", *SMOKE, "--no-timing", **NO_KEYS)
    assert done.code == 0, done.err
    told = manifest(tool.bundles()[-1])["parameters"]
    assert told["agent"] == "oracle" and "study" not in told and "not an agent's" in told["arms"]["oracle"]
