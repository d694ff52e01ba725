"""An implementation: one solution under judgement, or the torch baselines, with the worker that runs it."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from repro.errors import JudgeError, SolutionError, SolutionRejected
from repro.judge import baselines
from repro.judge.gpu.shared_memory import Gate, SharedBuffer
from repro.judge.processes.client import WorkerProcess
from repro.judge.processes.wire import Json
from repro.judge.worker.in_process import InProcess
from repro.records.options import Options as Options
from repro.records.verdict import Reason, VerdictWord
from repro.records.where import Where

Progress = Callable[[str], None]
Asked = WorkerProcess | InProcess
# Attributes that trials set.
_NOTED = ("distances", "trials", "legacy", "reasons", "failed", "observed", "findings")


@dataclass
class Implementation:
    """One solution under judgement, or a trusted torch baseline (source None). control: the A/A control.

    bits: digests of the whole output of a screening's one call; equal outputs of one screening have equal ones.
    distances, trials: of each draw, by kind of input case, its distances and its `input_cases.Trial`. trace, said: of
    its first error, and what it had printed. where: where a wrong output is wrong. classes: precision classes of a
    baseline's variants, as the worker that runs now computed them. made: for each variant that this worker compiled,
    how many graphs it did not take from an earlier compilation.
    """

    name: str
    source: Path | None
    entry: str
    variants: list[str]
    control: bool = False
    worker: Asked | None = None
    staging: SharedBuffer | None = None
    gate: Gate | None = None
    hello: Json = field(default_factory=dict)
    distances: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    trials: dict[str, list[Any]] = field(default_factory=dict)
    legacy: dict[str, dict[str, bool]] = field(default_factory=dict)
    reasons: list[Reason] = field(default_factory=list)
    failed: VerdictWord | Literal[""] = ""
    call_bytes: int | None = None
    bits: list[int] = field(default_factory=list)
    observed: set[str] = field(default_factory=set)
    findings: list[Reason] = field(default_factory=list)
    profile: Json = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    trace: str = ""
    said: str = ""
    where: Where | None = None

    @property
    def trusted(self) -> bool:
        return self.source is None

    @property
    def compiles(self) -> bool:
        """Return whether the judge may ask its worker to run torch.compile."""
        return self.trusted and not self.control

    @property
    def text(self) -> str | None:
        """Return the source as it is sent to a worker (base64), or None."""
        return base64.b64encode(self.source.read_bytes()).decode() if self.source is not None else None

    def ask(self, message: Mapping[str, object], timeout_s: float) -> Json:
        """Send one request to its worker and return the answer. Raises SolutionError."""
        assert self.worker is not None
        return self.worker.ask(message, timeout_s)

    def fail(self, error: SolutionError, trial: str) -> None:
        """Record the error in this solution's verdict. The first error decides the verdict."""
        self.failed = self.failed or error.verdict
        self.trace = self.trace or error.trace
        self.printed()
        self.reasons.append(Reason(code=error.code, trial=trial, detail=error.detail))

    def printed(self) -> str:
        """Return the end of what its worker printed, or of what it had printed when it ended."""
        if self.worker is not None:
            self.said = self.worker.printed()
        return self.said

    def check_modes(self, variant: str, reported: Any) -> None:
        """Check the global modes (grad, TF32) before and after a call.

        A trusted variant's modes must equal those of its precision, else JudgeError. Raises SolutionRejected for a
        malformed record.
        """
        if not isinstance(reported, list) or not all(isinstance(m, dict) for m in reported):
            raise SolutionRejected("protocol_tampered", "the answer to a call lacks the modes that it ran with")
        if self.trusted:
            cudnn, matmul = baselines.FLAGS[baselines.split(variant)[1]]
            due = {"grad": False, "cudnn_tf32": cudnn, "matmul_tf32": matmul}
            for modes in reported:
                wrong = {name: modes[name] for name, value in due.items() if modes[name] != value}
                if wrong:
                    raise JudgeError(f"{variant} ran with wrong modes", str(wrong))

    def noted(self) -> dict[str, object]:
        """Return a copy of what trials found so far, for `forget`."""
        return copy.deepcopy({name: getattr(self, name) for name in _NOTED})

    def forget(self, before: dict[str, object]) -> None:
        """Restore what trials had found at `before`."""
        vars(self).update(copy.deepcopy(before))


class Restless(SolutionRejected):
    """A stopped solution was not seen at rest. The reason says what of it ran."""

    def __init__(self, implementation: Implementation) -> None:
        why = implementation.worker.unrest if implementation.worker is not None else ""
        super().__init__("background_work", f"the solution keeps running while the judge has it stopped: {why}")


def moved(implementations: Iterable[Implementation]) -> list[Implementation]:
    """Return the stopped implementations with a process that runs, or that ran since it was first seen at rest."""

    def still(worker: Asked) -> bool:
        try:
            return worker.rest() and worker.rested()
        except SolutionError:
            return False

    return [
        implementation
        for implementation in implementations
        if implementation.worker is not None and not still(implementation.worker)
    ]
