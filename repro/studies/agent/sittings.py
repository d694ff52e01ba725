"""An agent's job: its input files, and what is read from the files that it leaves."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from repro import config
from repro.agents.events import STATUSES
from repro.engines.agent import METER, OUTCOME, SOLUTIONS, AgentJob, AgentOutcome, printable
from repro.engines.base import Engine
from repro.errors import UsageError
from repro.fixtures import store
from repro.problems import catalogue
from repro.problems.catalogue import Problem
from repro.records.agent import AgentReport, Ending, FailureClass, KnowledgeUse, MeterRecord
from repro.records.fixture import Fixture
from repro.studies.agent.design import Design, Unit
from repro.system import jsonio

SCHEMA_VERSION = 1
DOCS = ("judging.md",)
# Fields of a fixture that judging reads. Checksums and sketches of outputs, seeds, cheats and times are withheld.
FIXTURE_KEYS = (*Fixture.model_fields, "schema_version", "problem", "size", "generator", "device", "output",
                "best_cheat")  # fmt: skip
# status -> who caused it. An agent's own failure is a result and is never retried.
CLASSES: dict[Ending, FailureClass] = {
    "completed": "agent", "budget": "agent", "refused": "agent", "gave_up": "agent", "agent_error": "agent",
    "timeout": "agent", "provider_error": "provider", "infra_error": "infrastructure", "interrupted": "interrupted",
}  # fmt: skip

MOST_ENTRIES, LARGEST_NUMBER = 64, 1e15


def loaded(unit: Unit, size: str) -> list[Problem]:
    """Return the problems of a unit."""
    return [catalogue.load(each, size=size) for each in unit.problems]


def slim(fixture: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a fixture that an agent receives: limits, sizes, and how inputs are changed.

    The final judge draws secret seeds, so a whole fixture would not reveal its inputs. Unneeded fields are withheld
    anyway.
    """
    kept = {name: fixture[name] for name in FIXTURE_KEYS if name in fixture}
    trials = {
        kind: {name: trial[name] for name in ("stress", "limits") if name in trial}
        for kind, trial in fixture["trials"].items()
    }
    neighbour = {name: fixture.get("neighbour", {}).get(name) for name in ("limits", "overrides", "reason")}
    return kept | {"trials": trials, "neighbour": {k: v for k, v in neighbour.items() if v is not None}}


def files(unit: Unit, size: str, device: str, results: Path) -> dict[str, bytes]:
    """Return the files in an agent's folder before it starts. Raises PrerequisiteError if a fixture is missing."""
    found = {}
    for problem in loaded(unit, size):
        found[f"problems/{problem.path.name}"] = problem.path.read_bytes()
        whole = store.load(store.path(results, problem, device), problem)
        place = store.path(Path(), problem, device).relative_to("fixtures")
        found[f"fixtures/{place}"] = jsonio.render(slim(whole.to_json()))
    for name in DOCS:
        if (file := config.ROOT / "docs" / name).exists():
            found[f"docs/{name}"] = file.read_bytes()
    return found


def build(design: Design, unit: Unit, size: str, results: Path, engine: Engine, *, share: float) -> AgentJob:
    """Return a unit as an engine's job.

    Raises PrerequisiteError if a fixture is missing, UsageError without a script.
    """
    knowledge = design.knowledge(unit.arm)
    budgets = design.budgets.to_json()
    script = design.scripts.get(unit.id, b"")
    if design.scripted and not script:
        raise UsageError(f"no script for {unit.id}", "without one nothing answers this cell")
    replayed = design.upstream == "replay"
    gateway = {
        "schema_version": SCHEMA_VERSION,
        "job": unit.id,
        "arm": unit.arm,
        "model": design.model,
        "upstream": {"kind": design.upstream, "base_url": design.base_url, "region": design.region,
                     "script": "replay.jsonl" if replayed else "", "record": not replayed},
        "knowledge": {"kind": knowledge, "url": design.kb_url if knowledge == "leeroopedia" else ""},
        "budgets": budgets,
        "prices": design.prices,
    }  # fmt: skip
    agent = {
        "schema_version": SCHEMA_VERSION,
        "job": unit.id,
        "agent": design.agent,
        "arm": unit.arm,
        "model": design.model,
        "problems": list(unit.problems),
        "size": size,
        "device": engine.device,
        "mode": design.mode,
        "optimize": design.optimize,
        "budgets": budgets,
        "knowledge": knowledge,
        "relay_port": 8080,
        "expect_tools": tool_names() if knowledge != "none" else [],
        "isolation": "container" if engine.contained else "processes",
    }
    inside = files(unit, size, engine.device, results)
    if design.agent == "replay":
        inside["replay.jsonl"] = script
    online = not (replayed and knowledge != "leeroopedia")
    return AgentJob(unit.id, gateway, agent, inside, script if replayed else b"", online,
                     design.budgets.wall_s or 24 * 3600.0, share)  # fmt: skip


def tool_names() -> list[str]:
    """Return the names of the eight knowledge tools."""
    from repro.knowledge import tools

    return [tool.name for tool in tools.TOOLS]


@dataclass
class Verdict:
    """Result of one attempt. status: a key of CLASSES. klass: agent, provider, infrastructure or interrupted."""

    status: Ending
    detail: str
    klass: FailureClass
    meter: MeterRecord = field(default_factory=MeterRecord)
    outcome: AgentReport = field(default_factory=AgentReport)

    @property
    def final(self) -> bool:
        """Return whether the result counts: the agent itself caused it, good or bad."""
        return self.klass == "agent"


def judge(left: AgentOutcome) -> Verdict:
    """Return who caused an attempt to end.

    The gateway's meter is trusted before the agent's own record, which the agent's programs could write. A stop by
    budget counts as such whatever the agent reports, and a provider's failure must be the last thing that the gateway
    saw. Once a reply has come, the agent could have broken its own container. Then a failure that neither engine nor
    gateway saw counts as the agent's; otherwise it could gain another attempt.
    """
    outcome, meter = told_of(left.agent_files.get(OUTCOME)), metered(left)
    at_work = bool(meter.turns)

    def verdict(status: Ending, detail: str) -> Verdict:
        return Verdict(status, printable(detail, 500), CLASSES[status], meter, outcome)

    if left.cause == "stopped":
        return verdict("interrupted", left.ending)
    if left.gateway_ending:
        return verdict("infra_error", left.gateway_ending)
    told, detail, stopped = outcome.status, outcome.detail, meter.stopped
    if stopped.startswith("budget:") and told != "completed":
        return verdict("timeout" if stopped == "budget:wall" else "budget", f"{stopped}. {detail}")
    if left.cause == "timeout":
        return verdict("timeout", left.ending)
    if left.cause == "memory":
        return verdict("agent_error", left.ending)
    if told not in STATUSES or told == "infra_error":
        ended = at_work or detail.startswith("ended by SIG")  # the study sent no signal
        ours = left.cause == "infrastructure" or not ended
        return verdict("infra_error" if ours else "agent_error", detail or left.ending or "the agent left no outcome")
    if told == "provider_error" and not (meter.failing if at_work else meter.provider_errors):
        return verdict("agent_error", f"the agent reports a provider error that the gateway did not see: {detail}")
    return verdict(cast("Ending", told), detail)


def solutions(left: AgentOutcome) -> dict[str, bytes]:
    """Return file name -> text of the submitted solutions."""
    return {name.rpartition("/")[2]: content for name, content in left.agent_files.items()
            if name.startswith(f"{SOLUTIONS}/")}  # fmt: skip


def metered(left: AgentOutcome) -> MeterRecord:
    """Return what the gateway counted; an empty record without a meter, or with one that cannot be read."""
    try:
        return MeterRecord.model_validate_json(left.gateway_files.get(METER, b"{}"))
    except ValueError:
        return MeterRecord()


def consulted(journal: bytes) -> dict[str, KnowledgeUse]:
    """Return the knowledge calls of a journal by tool.

    A refused call counts as denied only, as in the meter. Lines that are no object are left out.
    """
    found: dict[str, dict[str, int]] = {}
    for line in journal.splitlines():
        entry = _object(line)
        tool = entry.get("tool") or (entry.get("kb") or {}).get("tool") if isinstance(entry, dict) else None
        if tool:
            told = entry["kb"] if isinstance(entry.get("kb"), dict) else entry
            one = found.setdefault(str(tool), {"calls": 0, "hits": 0, "errors": 0, "denied": 0})
            if told.get("decision") == "denied":
                one["denied"] += 1
                continue
            one["calls"] += 1
            hits = told.get("hits") or 0
            one["hits"] += hits if isinstance(hits, int) else len(hits)
            one["errors"] += bool(told.get("error"))
    return {tool: KnowledgeUse.model_validate(counts) for tool, counts in found.items()}


def told_of(content: bytes | None) -> AgentReport:
    """Return agent-outcome.json, reduced to known fields of their types, short and flat.

    Programs of the agent may have written any part of it, and all of it goes into records and reports.
    """
    told, found = _object(content), dict[str, Any]()
    for name in AgentReport.model_fields.keys() & told.keys():
        value = told[name]
        with contextlib.suppress(ValidationError):
            AgentReport.model_validate({name: value})
            if isinstance(value, str):
                found[name] = printable(value, 600)
            elif isinstance(value, dict):
                few = list(value.items())[:MOST_ENTRIES]
                found[name] = {printable(key, 80): plain for key, each in few if (plain := _plain(each)) is not None}
            elif abs(value) < LARGEST_NUMBER:
                found[name] = value
    return AgentReport(**found)


def _plain(value: Any) -> Any:
    """Return a number, a short text or a short list of short texts; None for other values."""
    if isinstance(value, list):
        return [printable(each, 80) for each in value[:MOST_ENTRIES] if isinstance(each, str)]
    if isinstance(value, str):
        return printable(value, 200)
    return value if isinstance(value, int | float) and abs(value) < LARGEST_NUMBER else None


def _object(content: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
