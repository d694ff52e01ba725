"""Attempts at one agent's job: which failures are retried, how often, and the record that a bundle keeps.

Failures of the infrastructure or the provider are retried a bounded number of times, with growing waits. An agent's own
failure is a result: retrying until it succeeds would bias the study.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from repro import config
from repro.bundle.write import Bundle
from repro.engines.agent import GATEWAY_JSON, JOURNAL, METER, RECORDING, SOLUTIONS, AgentOutcome
from repro.errors import BundleError, EngineGone, ReproError
from repro.records import reading
from repro.records.agent import AgentAttempt, AgentRecord
from repro.studies.agent import sittings
from repro.studies.agent.design import Design, Unit
from repro.studies.agent.sittings import Verdict
from repro.system import jsonio, stopwatch

RECORD = "job.json"
# Longest wait between two attempts, s.
LONGEST_S = 600.0


def secrets(design: Design, unit: Unit) -> dict[str, str]:
    """Return the keys that a unit's gateway needs, and no others."""
    names = {"anthropic": ["ANTHROPIC_API_KEY"], "bedrock": ["AWS_BEARER_TOKEN_BEDROCK"]}.get(design.upstream, [])
    if design.knowledge(unit.arm) == "leeroopedia":
        names.append("LEEROOPEDIA_API_KEY")
    return {name: config.secret(name) for name in names}


def read(bundle: Bundle, unit: Unit) -> AgentRecord | None:
    """Return the record of a unit, or None if the bundle has none that can be read."""
    name = f"{unit.folder}/{RECORD}"
    try:
        return reading.agent_record((bundle.path / name).read_bytes(), name)
    except (OSError, BundleError):
        return None


def finished(bundle: Bundle, unit: Unit) -> AgentRecord | None:
    """Return the record of a unit with a finished agent and all of its solutions, else None."""
    found = read(bundle, unit)
    if found is None or not found.finished:
        return None
    return found if all((bundle.path / place).is_file() for place in found.solutions.values()) else None


class Attempts:
    """The attempts of one unit, written into the bundle one by one."""

    def __init__(self, bundle: Bundle, unit: Unit, design: Design, write: Callable[[str, bytes], None]) -> None:
        self.unit, self.design, self.write = unit, design, write
        before = read(bundle, unit)
        self.made = list(before.attempts) if before else []

    def run(
        self,
        attempt: Callable[[], AgentOutcome],
        retries: int,
        wait_s: float,
        pause: Callable[[float], bool],
        say: Callable[[str], None],
    ) -> AgentRecord:
        """Attempt until the agent is finished, at most `retries` times more; return the record.

        wait_s: before the second attempt, doubled each time. pause: waits, and returns whether the run is being
        stopped. Raises EngineGone, and ReproError if a prerequisite is missing.
        """
        waited, number = 0.0, 0
        while True:
            started = stopwatch.utc()
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
            record = self._keep(left, verdict, started, time.monotonic() - begin, waited)
            number += 1
            if verdict.klass in ("agent", "interrupted") or number > retries:
                return record
            waited = min(wait_s * 2 ** (number - 1), LONGEST_S)
            say(f"{self.unit.id}: {verdict.klass} failure, again in {waited:g} s: {verdict.detail}")
            if pause(waited):
                return record

    def _keep(self, left: AgentOutcome, verdict: Verdict, started: str, wall_s: float, waited: float) -> AgentRecord:
        place = f"{self.unit.folder}/attempt-{len(self.made) + 1}"
        for name, content in {**left.agent_files, **left.gateway_files}.items():
            self.write(f"{place}/{name}", content)
        meter = verdict.meter
        self.made.append(AgentAttempt(
            attempt=len(self.made) + 1, started=started, wall_s=round(wall_s, 1), waited_s=waited,
            status=verdict.status, klass=verdict.klass, detail=verdict.detail,
            turns=meter.turns, usd=meter.usd, tokens=meter.tokens,
        ))  # fmt: skip
        handed_in = sittings.solutions(left)
        record = AgentRecord(
            schema_version=1,
            job=self.unit.id,
            arm=self.unit.arm,
            problems=list(self.unit.problems),
            repeat=self.unit.repeat,
            agent=self.design.agent,
            model=self.design.model,
            knowledge=self.design.knowledge(self.unit.arm),
            scripted=self.design.scripted,
            finished=verdict.final,
            status=verdict.status,
            klass=verdict.klass,
            detail=verdict.detail,
            attempts=self.made,
            folder=place,
            solutions={name: f"{place}/{SOLUTIONS}/{name}" for name in sorted(handed_in)},
            meter=meter,
            consulted=sittings.consulted(left.gateway_files.get(JOURNAL, b"")),
            outcome=verdict.outcome,
            isolation=left.isolation,
            cut=left.cut,
            evidence=sorted(n for n in (JOURNAL, METER, RECORDING, GATEWAY_JSON) if n in left.gateway_files),
        )
        self.write(f"{self.unit.folder}/{RECORD}", jsonio.render(record.to_json()))
        return record
