"""Runs planned rows through an engine into a bundle, with resume and progress; Ctrl-C loses nothing."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro import config
from repro.bundle.write import Bundle
from repro.engines.base import Engine
from repro.errors import EngineError, ReproError
from repro.problems import catalogue
from repro.records import wording
from repro.records.job import Job, Outcome
from repro.runs.progress import Progress
from repro.system import jsonio, signals

TELEMETRY = "telemetry"
# Rows of shipped solutions that share a process: starting one with its judge takes 4 to 8 s.
ROWS_A_PROCESS = 32


@dataclass(frozen=True)
class Row:
    """One planned row.

    job: None if a prerequisite is missing; then `error` says which. columns: descriptive columns. withheld: why the
    judged texts must not be kept in the bundle, or "". grouped: it may share a process with other such rows.
    """

    id: str
    job: Job | None
    columns: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    withheld: str = ""
    grouped: bool = False

    @property
    def content(self) -> str:
        """Return a hash of the judged texts, so that a row of an edited solution does not count as measured.

        The fixture is left out, because measuring it again changes no verdict.
        """
        files = {n: f for n, f in self.job.files.items() if n != self.job.fixture} if self.job is not None else {}
        parts = [name.encode() + hashlib.sha256(files[name]).digest() for name in sorted(files)]
        return hashlib.sha256(b"".join(parts)).hexdigest()[:16]

    def inputs(self, keep: Callable[[str, bytes], str]) -> list[dict[str, Any]]:
        """Return every text of the row: name, sha256, and where `keep` put it or why it is not kept."""
        if self.job is None:
            return []
        called = {file: f"{name}.py" for name, file, _ in self.job.solutions}
        found = []
        for name, text in sorted(self.job.files.items()):
            entry: dict[str, Any] = {"name": name, "sha256": hashlib.sha256(text).hexdigest()}
            if name == self.job.fixture:
                entry["not_kept"] = "a fixture: the bundle of `repro fixtures` holds it"
            elif self.withheld:
                entry |= {"not_kept": self.withheld, "withheld": True}
            else:
                entry["kept"] = keep(called.get(name, name), text)
            found.append(entry)
        if self.job.problem and self.job.problem not in self.job.files:
            path = catalogue.load(self.job.problem).path
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found.append({"name": f"problems/{path.name}", "sha256": digest, "not_kept": "shipped with repro"})
        return found


class Interrupted(ReproError):
    """The run was ended by Ctrl-C; measured rows are kept."""

    exit_code = 130


TEST_CLAIMS = ("run", "benchmark")


def open_bundle(
    results: Path, verb: str, rows: list[Row], parameters: dict[str, Any], progress: Progress, *, resume: bool
) -> Bundle:
    """Return a new bundle, or with `resume` the newest unfinished one of the same plan; say if there is none.

    Verbs that test claims store the claims in the bundle before its first row.
    """
    plan = [row.id for row in rows]
    found = Bundle.resume(results, verb, plan, parameters) if resume else None
    if found is not None:
        return found
    if resume:
        progress.say(f"nothing to resume: {results} holds no unfinished bundle of this plan; starting a new one")
    bundle = Bundle.create(results, verb, plan, parameters)
    if verb in TEST_CLAIMS:
        bundle.declare((config.ARTIFACTS_DIR / "claims.toml").read_bytes())
    return bundle


def execute(
    rows: list[Row],
    engine: Engine,
    bundle: Bundle,
    progress: Progress,
    summarise: Callable[[dict[str, Any]], str],
    *,
    together: int = 1,
) -> list[dict[str, Any]]:
    """Run every row that the bundle does not hold yet; return all rows in plan order.

    together: how many rows share a process or container. summarise: returns one line for a finished row. Raises
    Interrupted, EngineError (the engine is gone) or BundleError; the bundle then says so and keeps its rows.
    """
    bundle.manifest["engine"] = engine.describe() | {"device": engine.device}
    todo = [row for row in rows if not bundle.done(row.id, row.content)]
    if len(todo) < len(rows):
        progress.say(f"resuming {bundle.path}: {len(rows) - len(todo)} of {len(rows)} rows are there")
    batches = list(_batches(todo, together))
    number = len(rows) - len(todo)
    lost = ""
    try:
        with progress.live():
            for batch in batches:
                by_job = {row.job.id: row for row in batch if row.job is not None}
                for row in batch:
                    if row.job is None:
                        number += 1
                        progress.at(number, len(rows))
                        keep(bundle, row, Outcome(row.id, "unmet", error=row.error), progress, summarise)
                jobs = [row.job for row in batch if row.job is not None]
                progress.at(number + 1, len(rows))
                with contextlib.closing(_outcomes(engine, jobs, progress)) as outcomes:
                    for outcome in outcomes:
                        number += 1
                        progress.at(number, len(rows))
                        keep(bundle, by_job[outcome.job], outcome, progress, summarise)
                        progress.at(min(number + 1, len(rows)), len(rows))
                        lost = lost or (outcome.error if outcome.status == "lost" else "")
                if lost:
                    break
    except KeyboardInterrupt:
        bundle.finish("interrupted")
        kept = sum(bundle.done(row.id) for row in rows)
        raise Interrupted(
            "interrupted", f"{kept} of {len(rows)} rows are in {bundle.path}", "Repeat with --resume to go on."
        ) from None
    except ReproError as error:
        bundle.finish("failed", error=str(error))
        raise
    if lost:
        bundle.finish("incomplete", error=lost)
        raise EngineError(lost.rstrip("."), f"the rows measured before are in {bundle.path}")
    return [bundle.rows[row.id] for row in rows if row.id in bundle.rows]


def _batches(rows: list[Row], together: int) -> Iterator[list[Row]]:
    """Yield the rows that share a process: at most `together`, or of neighbours that are grouped ROWS_A_PROCESS."""
    for grouped, some in itertools.groupby(rows, lambda row: row.grouped):
        left, most = list(some), ROWS_A_PROCESS if grouped else together
        yield from (left[at : at + most] for at in range(0, len(left), most))


def _outcomes(engine: Engine, jobs: list[Job], progress: Progress) -> Generator[Outcome]:
    """Yield the engine's outcomes. If it refuses a job, the jobs without an outcome fail, but not the run."""
    seen = set()
    try:
        with contextlib.closing(engine.run(jobs, progress.step)) as outcomes:
            for outcome in outcomes:
                seen.add(outcome.job)
                yield outcome
    except EngineError as error:
        for job in jobs:
            if job.id not in seen:
                yield Outcome(job.id, "failed", error=str(error))


def _result(bundle: Bundle, row: Row, outcome: Outcome) -> dict[str, Any] | None:
    """Return the outcome's result, with the sampler's series moved to a file that the row names."""
    telemetry = (outcome.result or {}).get("telemetry")
    if outcome.result is None or not telemetry or "series" not in telemetry:
        return outcome.result
    digest = hashlib.sha256(row.id.encode()).hexdigest()[:8]
    name = f"{TELEMETRY}/{re.sub(r'[^A-Za-z0-9._-]+', '_', row.id)[-80:]}-{digest}.json"
    bundle.file(name, (jsonio.dumps(telemetry["series"]) + "\n").encode())
    told = {key: value for key, value in telemetry.items() if key != "series"} | {"file": name}
    return {**outcome.result, "telemetry": told}


def keep(
    bundle: Bundle, row: Row, outcome: Outcome, progress: Progress, summarise: Callable[[dict[str, Any]], str]
) -> None:
    """Write a row's outcome into the bundle and report it; Ctrl-C waits meanwhile.

    Not safe to call from two threads.
    """
    with signals.held():
        entry = {
            "row": row.id,
            **row.columns,
            "content": row.content,
            "inputs": row.inputs(bundle.keep),
            "status": outcome.status,
            "error": outcome.error,
            "wall_s": outcome.wall_s,
            "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "fingerprint_id": bundle.fingerprint(outcome.fingerprint),
            "result": _result(bundle, row, outcome),
        }
        bundle.add(entry)
    kept = bundle.rows[row.id]
    why = wording.reason({"code": outcome.status, "detail": outcome.error})
    progress.done(f"{row.id}: {summarise(kept) if outcome.status == 'done' else why}")
