"""Tests of an agent's records: its configuration in a manifest, and the record of a sitting."""

from __future__ import annotations

import pytest

from repro.errors import BundleError
from repro.records import reading
from repro.records.agent import AgentRecord
from repro.studies.agent import design
from repro.studies.agent.design import Design
from repro.system import jsonio

ATTEMPT = {
    "attempt": 1, "started": "2026-11-21T12:00:00Z", "wall_s": 3.0, "waited_s": 0.0, "status": "completed",
    "class": "agent", "detail": "", "turns": 3, "usd": None, "tokens": {"input": 5},
}  # fmt: skip
SITTING = {
    "schema_version": 1, "job": "L1_36/baseline/0", "arm": "baseline", "problems": ["L1_36"], "repeat": 0,
    "agent": "sdk", "model": "m", "knowledge": "none", "scripted": False, "finished": True, "status": "completed",
    "class": "agent", "detail": "", "attempts": [ATTEMPT], "folder": "agents/L1_36/baseline/0/attempt-1",
    "solutions": {}, "meter": {"turns": 3, "usd": 0.5}, "consulted": {}, "agent_version": "", "tools": [],
    "isolation": {}, "cut": [],
}  # fmt: skip


def test_a_configuration_is_the_design_with_its_order():
    plan = Design("sdk", "m", prices={"as_of": "2026-01-01", "models": {}})
    order = design.units(plan, ["L1_36", "L1_77"])
    told = {"order_of_cells": [unit.id for unit in order], "balance": design.balance(order)}
    found = design.config(plan, order)
    assert jsonio.dumps(found.to_json()) == jsonio.dumps(plan.to_json() | told), "the digest of a plan depends on it"
    assert reading.agent_config(found.to_json()) == found


def test_a_sitting_is_read_again_as_it_was_written():
    found = AgentRecord.written(SITTING)
    assert jsonio.dumps(found.to_json()) == jsonio.dumps(SITTING)
    assert reading.agent_record(jsonio.render(SITTING), "job.json") == found
    assert (found.klass, found.meter.turns, found.meter.kb.calls, found.attempts[0].klass) == ("agent", 3, 0, "agent")


@pytest.mark.parametrize("content", [b"{", b"[]", jsonio.render(SITTING | {"finished": "yes"})])
def test_a_damaged_sitting_names_its_file(content):
    with pytest.raises(BundleError, match="agents/a/job.json is damaged"):
        reading.agent_record(content, "agents/a/job.json")
