"""A scripted study for tests: real sittings by Inspect in the local sandbox, and a judge that answers at once."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repro.agents import runner
from repro.agents.study import MISSING
from repro.bundle.write import Bundle
from repro.engines.base import Engine
from repro.fixtures import store
from repro.problems import catalogue
from repro.records.job import Job, Outcome
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.studies.agent import design
from repro.studies.agent.design import Budgets, Design, Pace
from repro.system import jsonio
from repro.system.jsonio import Json

IDS = ["L1_36", "L1_82"]
MODEL = "claude-opus-4-5-20251101"
RATES = {"input": 5.0, "output": 25.0, "cache_read": 0.5, "cache_write": 6.25}
PRICES = {"as_of": "2026-01-01", "models": {MODEL: RATES}}
DONE = {"content": "Scripted reply: done.", "usage": {"input_tokens": 100, "output_tokens": 10}}


def bash(command: str, **more: Any) -> Json:
    """A reply that calls the agent's shell."""
    block = {"type": "tool_use", "name": "bash", "input": {"command": command}}
    return {"content": [block], "usage": {"input_tokens": 100, "output_tokens": 10}} | more


def consult(query: str) -> Json:
    """A reply that asks the knowledge base."""
    return bash("") | {"content": [{"type": "tool_use", "name": "search_knowledge", "input": {"query": query}}]}


def solve(problem: str) -> Json:
    """A reply that writes a solution."""
    name = catalogue.load(problem).path.name
    return bash(f"printf '# mine\\nclass ModelNew: ...\\n' > solutions/{name}")


def script(*lines: Json) -> bytes:
    """A script of these replies."""
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def plan(lines: Callable[[design.Unit], list[Json]] | None = None, ids: list[str] = IDS, **changes: Any) -> Design:
    """A scripted study of both arms. lines: of a unit; by default it writes a solution of every problem."""
    told = {"agent": "sdk", "model": MODEL, "upstream": "replay", "prices": PRICES} | changes
    told.setdefault("budgets", Budgets())
    lines = lines or (lambda unit: [*map(solve, unit.problems), DONE])
    return Design(**told, scripts={unit.id: script(*lines(unit)) for unit in design.units(Design(**told), ids)})


class Stub(Engine):
    """An engine without containers whose judge answers at once; what it judged is noted."""

    name, device, description = "local", "cpu", {"engine": "local", "isolation": "none"}

    def __init__(self) -> None:
        self.gpus = []
        self.judged = []
        self.judging = lambda row: None
        self.halted = threading.Event()

    def close(self, *, now: bool = False) -> None:
        self.halted.set()

    def _attempt(self, wanted: list[Job], timeout_s: float, progress: Callable[[str], None]) -> Any:
        self.judging(wanted[0].id)
        self.judged.append(wanted[0].id)
        source = next(v for k, v in wanted[0].files.items() if k.startswith("solution"))
        verdict = "error" if source == MISSING else "correct"
        entry = {"problem": wanted[0].problem, "solution": "s", "verdict": verdict, "precision_class": "fp32",
                 "rel_l2": 1e-7, "time_ms": None, "measurement": False, "speedup": {}, "trust": "audited", "labels": [],
                 "reasons": [{"code": "no_entry", "detail": "no ModelNew"}] if verdict == "error" else []}  # fmt: skip
        yield Outcome.from_json({"job": wanted[0].id, "status": "done", "result": {"results": [entry]}})
        return ""


def fixtures(folder: Path) -> Path:
    """Fixtures that load, of problems that no judge here looks at."""
    for name in IDS:
        problem = catalogue.load(name, size="smoke")
        whole = {
            "schema_version": store.SCHEMA_VERSION, "problem": name, "trials": {}, "refused": "",
            "weights_sha256": "0" * 64, "dtype": "", "margin": 0,
            "problem_sha256": hashlib.sha256(problem.path.read_bytes()).hexdigest(),
        }  # fmt: skip
        jsonio.write(store.path(folder, problem, "cpu"), whole)
    return folder


def go(
    engine: Engine, results: Path, chosen: Design, only: list[str] = IDS, *, resume: bool = False, jobs: int = 1,
    retries: int = 2, run_usd: float | None = None, controls: Any = (),
) -> Bundle:  # fmt: skip
    """Run a study."""
    run = Run(engine, results, Progress(quiet=True), size="smoke", resume=resume)
    return runner.run(run, chosen, only, Pace(jobs, retries, 0.0, run_usd), controls=controls)
