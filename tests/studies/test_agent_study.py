"""The agent study: its order, its statistics against known answers, whose fault a failure is, resume, command line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, manifest
from test_artifact_study import Batches

from repro import config
from repro.analysis import claims as verdicts
from repro.analysis import published as claims
from repro.analysis import records, statistics
from repro.analysis.statistics import Observation
from repro.bundle.write import Bundle
from repro.cli import arguments
from repro.records.agent import AgentRecord
from repro.report import document, markdown, study
from repro.studies.agent import design, prices
from repro.studies.agent.design import Budgets, Design
from repro.system import jsonio

IDS = ["L1_36", "L1_82", "L1_97", "L2_34"]
SCRIPTS = ROOT / "tests" / "agent_scripts"


def plan(**changes: Any) -> Design:
    """A scripted study of both arms without prices."""
    told = {"agent": "sdk", "model": "claude-opus-4-5-20251101", "upstream": "replay"}
    told |= {"budgets": Budgets(usd=None), "prices": {"as_of": "2026-01-01", "models": {}}} | changes
    order = design.units(Design(**told), IDS)
    return Design(**{**told, "scripts": {unit.id: b"{}\n" for unit in order}})


# -- the order


@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_abba_lets_each_arm_come_first_as_often_as_it_can(repeats):
    order = design.units(plan(repeats=repeats), IDS)
    firsts = [order[at].arm for at in range(0, len(order), 2)]
    assert abs(firsts.count("baseline") - firsts.count("with_kb")) <= len(IDS) * repeats % 2
    assert len({unit.id for unit in order}) == len(order) == 2 * len(IDS) * repeats
    late = design.balance(order)
    assert abs(late["baseline"] - late["with_kb"]) < 0.02


def test_a_problems_arms_start_one_after_the_other_and_never_arm_by_arm():
    """Published, one whole arm came after the other."""
    order = design.units(plan(repeats=2), IDS)
    for at in range(0, len(order), 2):
        assert (order[at].name, order[at].repeat) == (order[at + 1].name, order[at + 1].repeat)
        assert {order[at].arm, order[at + 1].arm} == {"baseline", "with_kb"}


def test_every_price_is_known_in_full():
    classes = {"input", "output", "cache_read", "cache_write"}
    assert all(rates.keys() == classes and min(rates.values()) > 0 for rates in prices.MODELS.values())
    assert prices.of_model("us.anthropic.claude-opus-4-8-v1:0") == prices.MODELS["claude-opus-4-8"]
    assert prices.of_model("anthropic/claude-opus-4-8") and prices.of_model("claude-unheard-of") is None


def test_a_suite_is_one_sitting_of_all_problems():
    order = design.units(plan(mode="suite", repeats=2), IDS)
    assert [unit.id for unit in order] == ["suite/baseline/0", "suite/with_kb/0", "suite/with_kb/1", "suite/baseline/1"]
    assert all(unit.problems == tuple(IDS) for unit in order)


# -- statistics


def published() -> list[Observation]:
    found = [c for c in claims.load() if c.study == "agent" and c.measure == "speedup"]
    return [Observation(c.problem, c.variant, 0, c.value) for c in found]


def test_the_published_table_gives_its_own_numbers():
    """1.80x and 2.11x, ratio 1.17, 95 % interval 0.94 to 1.47 by Student's t, sign-flip p 0.145; counted apart."""
    seen = published()
    assert statistics.arm(seen, "baseline").overall.fail_is_1 == pytest.approx(1.803, abs=5e-4)
    assert statistics.arm(seen, "with_kb").overall.fail_is_1 == pytest.approx(2.114, abs=5e-4)
    found = statistics.paired(seen, "baseline", "with_kb")
    assert found is not None and found.n == 10
    assert found.ratio == pytest.approx(1.172, abs=5e-4)
    assert found.ci95 == [pytest.approx(0.94, abs=5e-3), pytest.approx(1.47, abs=6e-3)]
    assert found.sign_flip == pytest.approx(0.145, abs=1e-3)


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
def test_intervals_hold_the_true_gain_as_often_as_they_say(n, repeats):
    """95 % of 200 simulated studies, within what 200 can tell: 2 standard deviations are 3 %."""
    generator = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        found = statistics.paired(simulated(generator, 1.3, n, repeats), "baseline", "with_kb")
        assert found is not None and found.ci95 is not None
        held += found.ci95[0] <= 1.3 <= found.ci95[1]
    assert 0.91 <= held / 200 <= 0.99, held


@pytest.mark.slow
def test_detectable_gains_are_found_in_four_of_five_studies():
    generator = np.random.default_rng(2)
    spread = math.sqrt(0.3**2 + 2 * 0.15**2)
    gain, found = statistics.detectable(spread, 10), 0
    for _ in range(400):
        told = statistics.paired(simulated(generator, gain, 10, 1), "baseline", "with_kb")
        assert told is not None
        assert told.ci95 is not None
        found += told.ci95[0] > 1
    assert found / 400 == pytest.approx(0.8, abs=0.06)


def test_without_a_gain_the_sign_flip_is_significant_as_often_as_chance():
    generator = np.random.default_rng(3)
    values = [statistics.sign_flip(list(generator.normal(0, 0.3, 8))) for _ in range(400)]
    assert np.mean(np.asarray(values) <= 0.05) == pytest.approx(0.05, abs=0.03)


def test_sign_flips_are_counted_one_by_one_and_sampled_alike():
    assert statistics.sign_flip([0.1, 0.2, 0.4]) == 0.25
    assert statistics.sign_flip([0.3, -0.3]) == 1.0
    values = list(np.random.default_rng(4).normal(0.15, 0.3, 12))
    exact = statistics.sign_flip(values)
    sampled = statistics.sign_flip([*values, *[0.0] * 5])  # five more that change nothing
    assert sampled != exact and sampled == pytest.approx(exact, abs=0.005)


def test_failures_stay_in_the_denominator():
    """One of two repeats failed: 4x and nothing are 2x where a failure is 1x, 4x among the correct, half in fast_p."""
    seen = [Observation("a", "x", 0, 4.0), Observation("a", "x", 1, None), Observation("b", "x", 0, None)]
    found = statistics.arm(seen, "x")
    assert found.problems["a"] == (pytest.approx(2.0), pytest.approx(4.0), 1, 2)
    assert found.problems["b"] == (1.0, None, 0, 1)
    assert found.overall.fail_is_1 == pytest.approx(math.sqrt(2))
    assert found.fast_p == {1.0: 0.25, 1.5: 0.25, 2.0: 0.25}
    assert (found.overall.correct, found.overall.n) == (1, 3)


def test_repeats_are_no_further_problems():
    """Ten times the repeats of the same two problems: the interval stays that of two problems."""
    seen = [Observation(p, arm, r, v) for p, base, v_ in (("a", 1.0, 2.0), ("b", 1.0, 1.0)) for r in range(10)
            for arm, v in (("baseline", base), ("with_kb", v_))]  # fmt: skip
    found = statistics.paired(seen, "baseline", "with_kb")
    assert found is not None and found.n == 2 and found.ci95 is not None and found.ci95[0] < 0.1


# -- the report


def sat(unit: design.Unit, chosen: Design) -> AgentRecord:
    """The record of a sitting that cost half a dollar."""
    attempt = {"attempt": 1, "started": "2026-11-21T12:00:00Z", "wall_s": 3.0, "waited_s": 0.0, "status": "completed",
               "class": "agent", "detail": "", "turns": 3, "usd": 0.5, "tokens": {"input": 10}}  # fmt: skip
    return AgentRecord.written({
        "schema_version": 1, "job": unit.id, "arm": unit.arm, "problems": list(unit.problems), "repeat": unit.repeat,
        "agent": chosen.agent, "model": chosen.model, "knowledge": chosen.knowledge(unit.arm), "finished": True,
        "scripted": chosen.scripted, "status": "completed", "class": "agent", "detail": "", "attempts": [attempt],
        "folder": f"{unit.folder}/attempt-1", "solutions": {}, "isolation": {}, "cut": [],
        "agent_version": "", "tools": [],
        "meter": {"turns": 3, "usd": 0.5, "tokens": {"input": 10, "output": 5}}, "consulted": {},
    })  # fmt: skip


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
        bundle.file(f"{unit.folder}/job.json", jsonio.render(sat(unit, chosen).to_json()))
    bundle.finish("complete")
    return bundle


def test_the_report_tells_arms_uncertainty_costs_and_the_published_table(tmp_path):
    bundle = measured_bundle(tmp_path, upstream="anthropic")
    told = study.build(records.source(bundle, "A"))
    assert told is not None
    base, other = (told.arms[name].speeds for name in ("baseline", "with_kb"))
    lost = base.problems["L1_82"].fail_is_1
    assert other.problems["L1_82"] == (1.0, None, 0, 1)
    assert base.overall.fail_is_1 / other.overall.fail_is_1 == pytest.approx((2 * lost) ** (1 / 10))
    (found,) = told.comparisons
    assert found.ratio == pytest.approx(other.overall.fail_is_1 / base.overall.fail_is_1) and found.down == 2
    assert told.arms["baseline"].usd == pytest.approx(5.0)
    text = markdown.render(document.build([bundle]))
    for words in ("<summary>Agent study<", "Threat that remains", "fast_p",
                  "sign-flip p", "agent sdk, model claude-opus-4-5-20251101"):  # fmt: skip
        assert words in text, words
    assert "Scripted" not in text
    assert "with_kb over baseline, published" in text


def test_a_scripted_study_says_so_and_tests_no_claim(tmp_path):
    bundle = measured_bundle(tmp_path, upstream="replay")
    text = markdown.render(document.build([bundle]))
    assert "Scripted: replies come from a file" in text and "no model was paid" in text
    assert "scripted replies, not an agent's result" in text
    found = verdicts.judge(claims.load(), [records.read(bundle)])
    assert not any(verdicts.tried(outcome) for _, outcome in found.pairs())


# -- the command line

NO_KEYS = {name: "" for name in (*config.SECRETS, "ANTHROPIC_MODEL", "CLAUDE_CODE_USE_BEDROCK", "AWS_REGION")}
REPLAY = ["--agent", "sdk", "--upstream", f"replay:{SCRIPTS}"]
SMOKE = ("--engine", "local", "--device", "cpu", "--size", "smoke", "--problem", "L1_36")
WRONG = {
    "no key": (["--agent", "sdk"], "ANTHROPIC_API_KEY is not set"),
    "bedrock": (["--upstream", "bedrock"], "AWS_BEARER_TOKEN_BEDROCK is not set"),
    "leeroopedia": ([*REPLAY, "--kb", "leeroopedia"],
                    "LEEROOPEDIA_API_KEY is not set"),
    "arm": (["--agent", "sdk", "--arms", "baseline kb"], "no arm kb"),
    "upstream": (["--agent", "sdk", "--upstream", "openai"], "no upstream 'openai'"),
    "replay without a path": (["--agent", "sdk", "--upstream", "replay"], "Use replay:PATH"),
    "no such script": (["--agent", "sdk", "--upstream", "replay:/nowhere"], "no such script or folder: /nowhere"),
    "no script of an arm": ([*REPLAY, "--arms", "placebo"],
                            "no script for L1_36/placebo/0"),
    "knowledge base": ([*REPLAY, "--kb", "books"], "no knowledge base books"),
    "price": ([*REPLAY, "--model", "claude-unheard-of"],
              "the price of claude-unheard-of is unknown"),
    "budget": ([*REPLAY, "--budget", "usd=-1"], "--budget usd=-1 is not"),
    "jobs": ([*REPLAY, "--jobs", "0"], "--jobs must be at least 1"),
    "trust": ([*REPLAY, "--trust", "dev"], "judged with --trust audited"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_reported_before_anything_starts(name, tool):
    arguments, words = WRONG[name]
    done = tool.within("run", *SMOKE, *arguments, **NO_KEYS)
    assert done.code == 1 and words in done.complaint, done.err
    assert not tool.bundles() and not tool.processes()


def test_defaults_are_the_published_ones(monkeypatch):
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
    assert built("--agent", "sdk", "--arms", "baseline").arms == ("baseline",)
    assert built("--upstream", "bedrock").agent == "claude-code"
    bedrock = built("--upstream", "bedrock")
    assert (bedrock.model, bedrock.upstream, bedrock.region) == (config.BEDROCK_MODEL, "bedrock", "us-east-1")
    monkeypatch.setenv("ANTHROPIC_MODEL", "us.anthropic.claude-sonnet-4-6-v1")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    bedrock = built("--upstream", "bedrock")
    assert (bedrock.model, bedrock.region) == ("us.anthropic.claude-sonnet-4-6-v1", "eu-west-1")
    assert built("--agent", "sdk").model == config.API_MODEL, "as published, the variable is of Bedrock"
    monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "1")
    assert built("--agent", "sdk").upstream == "bedrock"
    assert built("--agent", "sdk", "--budget", "usd=0", "--model", "claude-unheard-of").prices["models"] == {}


def test_the_oracle_is_no_agent(tool, monkeypatch):
    """An engine that runs nothing is enough for what the manifest says."""
    monkeypatch.setattr(arguments, "choose", lambda *_, **__: Batches())
    tool.within("run", *SMOKE, "--no-timing", **NO_KEYS)
    told = manifest(tool.bundles()[-1])["parameters"]
    assert told["agent"] == "oracle" and "study" not in told and "not an agent's" in told["arms"]["oracle"]
