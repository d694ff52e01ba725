"""A planned row, and how the outcome of its job becomes a line of the bundle."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from repro.bundle import seal
from repro.bundle.write import Bundle
from repro.problems import catalogue
from repro.records import row as record
from repro.records.job import Job, Outcome
from repro.system import jsonio, stopwatch


@dataclass(frozen=True)
class Row:
    """One planned row.

    job: None if a prerequisite is missing; then `error` says which. withheld: why the judged texts must not be kept in
    the bundle, or "". group: neighbouring rows of one group may share a process.
    """

    plan: record.Planned
    job: Job | None
    error: str = ""
    withheld: str = ""
    group: str = ""

    @property
    def id(self) -> str:
        """Return its id in the manifest's plan."""
        return self.plan.row

    @property
    def content(self) -> str:
        """Return a hash of the judged texts, so that a row of an edited solution does not count as measured.

        The fixture is left out, because measuring it again changes no verdict.
        """
        files = {n: f for n, f in self.job.files.items() if n != self.job.fixture} if self.job is not None else {}
        return seal.content((name, seal.sha256(text)) for name, text in files.items())

    def inputs(self, keep: Callable[[str, bytes], str]) -> list[record.Input]:
        """Return every text of the row. keep: stores one, and returns its name in the bundle."""
        if self.job is None:
            return []
        called = {file: f"{name}.py" for name, file, _ in self.job.solutions}
        texts = []
        for name, text in sorted(self.job.files.items()):
            if name == self.job.fixture:
                how: dict[str, Any] = {"not_kept": "a fixture: the bundle of `repro fixtures` holds it"}
            elif self.withheld:
                how = {"not_kept": self.withheld, "withheld": True}
            else:
                how = {"kept": keep(called.get(name, name), text)}
            texts.append(record.Input(name=name, sha256=seal.sha256(text), **how))
        if self.job.problem and self.job.problem not in self.job.files:
            shipped = catalogue.load(self.job.problem)
            name, digest = f"problems/{shipped.path.name}", seal.sha256(shipped.source)
            texts.append(record.Input(name=name, sha256=digest, not_kept="shipped with repro"))
        return texts


def ended(bundle: Bundle, row: Row) -> bool:
    """Return whether nothing of a row is left to measure."""
    return bundle.done(row.id, row.content) and not bundle.record(row.id).due


def keep(bundle: Bundle, row: Row, outcome: Outcome) -> record.Row:
    """Write a row's outcome and everything that it names into the bundle; return the row as the bundle holds it.

    A row that is done stays as it is, if its job was run twice or could not be measured again.
    """
    with bundle.lock:
        again = []
        if bundle.done(row.id, row.content):
            last = bundle.record(row.id)
            if outcome.status != "done" or not last.due:
                return last
            again = [*last.measured_again, last.due]
        gpu = outcome.fingerprint.value("gpu_uuid_hash") if outcome.fingerprint else None
        known = {
            **{name: getattr(row.plan, name) for name in row.plan.model_fields_set},
            # Two GPUs of one kind have the same fingerprint id, which leaves identities out.
            **({"gpu_uuid_hash": gpu} if gpu else {}),
            **({"node": outcome.node} if outcome.node else {}),
            **({"measured_again": again} if again else {}),
        }
        done = record.Row(
            **known, content=row.content, inputs=row.inputs(bundle.keep), status=outcome.status, error=outcome.error,
            wall_s=outcome.wall_s, ended=stopwatch.utc(), fingerprint_id=bundle.fingerprint(outcome.fingerprint),
            result=_result(bundle, f"{row.id} {len(again)}" if again else row.id, outcome),
        )  # fmt: skip
        bundle.add(done.to_json())
        return bundle.record(row.id)


def _result(bundle: Bundle, row: str, outcome: Outcome) -> record.Result | None:
    """Return the outcome's result, with the sampler's series moved to a file that the row names."""
    result = outcome.result
    if result is None or not result.telemetry or "series" not in result.telemetry:
        return result
    digest = seal.sha256(row)[:8]
    name = f"telemetry/{re.sub(r'[^A-Za-z0-9._-]+', '_', row)[-80:]}-{digest}.json"
    bundle.file(name, jsonio.lines([result.telemetry["series"]]))
    kept = {key: value for key, value in result.telemetry.items() if key != "series"} | {"file": name}
    return result.model_copy(update={"telemetry": kept})
