"""Attempts at one agent's job: which failures are retried, how often, and the record that a bundle keeps.

Failures of the infrastructure or the provider are retried a bounded number of times, with growing waits. An agent's own
failure is a result: retrying until it succeeds would bias the study.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from repro import config
from repro.bundle.write import Bundle
from repro.engines.agent import GATEWAY_JSON, JOURNAL, METER, RECORDING, SOLUTIONS, AgentOutcome
from repro.errors import EngineGone, ReproError
from repro.studies.agent import sittings
from repro.studies.agent.design import Design, Unit
from repro.studies.agent.sittings import Verdict
from repro.system import jsonio

RECORD = "job.json"
SCHEMA_VERSION = 1
# Longest wait between two attempts, s.
LONGEST_S = 600.0


def secrets(design: Design, unit: Unit) -> dict[str, str]:
    """Return the keys that a unit's gateway needs, and no others."""
    names = {"anthropic": ["ANTHROPIC_API_KEY"], "bedrock": ["AWS_BEARER_TOKEN_BEDROCK"]}.get(design.upstream, [])
    if design.knowledge(unit.arm) == "leeroopedia":
        names.append("LEEROOPEDIA_API_KEY")
    return {name: config.secret(name) for name in names}


def read(bundle: Bundle, unit: Unit) -> dict[str, Any] | None:
    """Return the record of a unit, or None if the bundle has none."""
    file = bundle.path / unit.folder / RECORD
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return found


def finished(bundle: Bundle, unit: Unit) -> dict[str, Any] | None:
    """Return the record of a unit with a finished agent and all of its solutions, else None."""
    found = read(bundle, unit)
    if found is None or not found["finished"]:
        return None
    return found if all((bundle.path / place).is_file() for place in found["solutions"].values()) else None


class Attempts:
    """The attempts of one unit, written into the bundle one by one."""

    def __init__(self, bundle: Bundle, unit: Unit, design: Design, write: Callable[[str, bytes], None]) -> None:
        self.unit, self.design, self.write = unit, design, write
        before = read(bundle, unit) or {"attempts": []}
        self.made: list[dict[str, Any]] = list(before["attempts"])
        self.record: dict[str, Any] = {}

    def run(
        self,
        attempt: Callable[[], AgentOutcome],
        retries: int,
        wait_s: float,
        pause: Callable[[float], bool],
        say: Callable[[str], None],
    ) -> dict[str, Any]:
        """Attempt until the agent is finished, at most `retries` times more; return the record.

        wait_s: before the second attempt, doubled each time. pause: waits, and returns whether the run is being
        stopped. Raises EngineGone, and ReproError if a prerequisite is missing.
        """
        waited = 0.0
        for number in range(retries + 1):
            if number:
                waited = min(wait_s * 2 ** (number - 1), LONGEST_S)
                last = self.made[-1]
                say(f"{self.unit.id}: {last['class']} failure, again in {waited:g} s: {last['detail']}")
                if pause(waited):
                    break
            started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            begin = time.monotonic()
            try:
                left = attempt()
            except EngineGone:
                raise
            except ReproError as error:
                if error.exit_code == 1:
                    raise
                left = AgentOutcome(self.unit.id, str(error), "infrastructure", str(error))
            verdict = sittings.judge(left)
            if pause(0.0) and not verdict.final:
                verdict = Verdict("interrupted", verdict.detail, "interrupted", verdict.meter, verdict.outcome)
            self._keep(left, verdict, started, time.monotonic() - begin, waited)
            if verdict.klass in ("agent", "interrupted"):
                break
        return self.record

    def _keep(self, left: AgentOutcome, verdict: Verdict, started: str, wall_s: float, waited: float) -> None:
        place = f"{self.unit.folder}/attempt-{len(self.made) + 1}"
        for name, content in {**left.agent_files, **left.gateway_files}.items():
            self.write(f"{place}/{name}", content)
        meter = verdict.meter
        self.made.append({
            "attempt": len(self.made) + 1, "started": started, "wall_s": round(wall_s, 1), "waited_s": waited,
            "status": verdict.status, "class": verdict.klass, "detail": verdict.detail,
            "turns": meter.get("turns", 0), "usd": meter.get("usd"), "tokens": meter.get("tokens", {}),
        })  # fmt: skip
        handed_in = sittings.solutions(left)
        self.record = {
            "schema_version": SCHEMA_VERSION,
            "job": self.unit.id,
            "arm": self.unit.arm,
            "problems": list(self.unit.problems),
            "repeat": self.unit.repeat,
            "agent": self.design.agent,
            "model": self.design.model,
            "knowledge": self.design.knowledge(self.unit.arm),
            "scripted": self.design.scripted,
            "finished": verdict.final,
            "status": verdict.status,
            "class": verdict.klass,
            "detail": verdict.detail,
            "attempts": self.made,
            "folder": place,
            "solutions": {name: f"{place}/{SOLUTIONS}/{name}" for name in sorted(handed_in)},
            "meter": meter,
            "consulted": sittings.consulted(left.gateway_files.get(JOURNAL, b"")),
            "outcome": verdict.outcome,
            "isolation": left.isolation,
            "cut": left.cut,
            "evidence": sorted(n for n in (JOURNAL, METER, RECORDING, GATEWAY_JSON) if n in left.gateway_files),
        }
        self.write(f"{self.unit.folder}/{RECORD}", jsonio.render(self.record))
