"""Compares a worker's output with the fp64 reference, in chunks that come through its poisoned staging buffer."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import random
import secrets
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from repro.errors import SolutionRejected
from repro.judge.correctness import output_checks
from repro.judge.correctness.distance import Distances, Values, score
from repro.judge.correctness.expected import Expected
from repro.judge.correctness.input_cases import Trial
from repro.judge.correctness.tolerances import CLASSES, Missed, by_rounding, class_of
from repro.judge.correctness.workers import Workers
from repro.judge.gpu import commitment
from repro.judge.gpu.commitment_check import Seal
from repro.judge.implementation import Implementation
from repro.judge.processes.wire import Json
from repro.problems.meta import Place, leaves
from repro.problems.plan import Rows
from repro.records.fixture import Fixture

# Chunks that a screening compares.
_FEW = 2
# Reads of a lane for each state of a digest.
_DIGEST_TURNS = 32


def meets(values: Values, fixture: Fixture, kind: str, klass: str) -> bool:
    """Return whether distances are within a class's limits on a trial; a probe may have none for a class."""
    limits = fixture.trials[kind].limits[klass]
    return not limits or score(values, limits) <= 1


@dataclass
class Comparison:
    """Compares outputs, and digests them. shares: of a screening, where its few chunks lie, as shares of all."""

    fixture: Fixture
    expected: Expected
    workers: Workers

    def __post_init__(self) -> None:
        self.shares: list[float] = []
        self._digest_key = secrets.token_bytes(commitment.KEY_BYTES)

    def choose(self, *, few: bool) -> None:
        """Compare all chunks of each output from now on, or a few secret ones, the same for all solutions."""
        self.shares = [random.SystemRandom().random() for _ in range(_FEW)] if few else []

    def check(self, answer: Json) -> None:
        """Compare the description of the output in a worker's answer with the expected one. Raises SolutionRejected."""
        device, aliases = self.expected.device.type, self.expected.shape.plan.problem.aliases_input
        output_checks.check(answer.get("output"), self.expected.shape.spec, device, aliases=aliases)

    def compare(
        self, implementation: Implementation, answer: Json, only: Rows = None, *, whole: bool = True,
        bound: Seal | None = None,
    ) -> tuple[Distances, list[int]]:  # fmt: skip
        """Return the distances of the worker's kept outputs from the reference, and digests of their bytes.

        answer: the worker's, which describes them. only: rows to compare if not `whole`. bound: a seal that the bytes
        must match; then there are no digests. Raises SolutionRejected.
        """
        if not implementation.trusted:
            self.check(answer)
        if bound is not None:
            bound.open(leaves(self.expected.shape.spec), answer.get("output"))
        slots, digests = self.workers.slots, list[int]()
        distances = self.expected.shape.distances(f"{self.expected.used} {slots.stress}")
        for part, outputs in self._chunks(implementation, self._parts() if whole else [only], bound, digests):
            expected, wholes = self.expected.outputs(part, slots), self.expected.reference.wholes
            distances.add(outputs, expected, wholes, self.expected.outputs_before_edit(part, slots))
        for place, distance in enumerate(distances.outputs):
            distance.settle()
            if not distance.finite:
                where = self.fixture.output_name(place)
                detail = f"{where or 'the output'} is not finite where the reference is, or was not written"
                raise SolutionRejected("not_finite", detail)
        return distances, digests

    def digests(self, implementation: Implementation, *, whole: bool = False) -> list[int]:
        """Return digests of the worker's kept output, of the same rows each as `compare`, without a reference.

        whole: of all chunks, also in a screening.
        """
        digests: list[int] = []
        for window, _ in self._windows(self.expected.shape.parts() if whole else self._parts()):
            deque(self._fetched(implementation, window, None, digests), 0)
        return digests

    def take(self, implementation: Implementation, answer: Json, part: Rows, bound: Seal) -> None:
        """Fetch rows of the worker's kept output as `compare` does, without comparing them."""
        bound.open(leaves(self.expected.shape.spec), answer.get("output"))
        deque(self._fetched(implementation, part, bound), 0)

    def pairs(self, implementation: Implementation) -> Iterator[tuple[int, Rows, torch.Tensor, torch.Tensor]]:
        """Yield the place of each output, a chunk's rows, and these of the worker's kept output and the reference."""
        for part, outputs in self._chunks(implementation, self.expected.shape.parts()):
            expected = self.expected.outputs(part, self.workers.slots)
            for place, (reference, output) in enumerate(zip(expected, outputs, strict=True)):
                yield place, part, output, reference

    def nonfinite(self, implementation: Implementation) -> tuple[int, int, int]:
        """Return how many elements of the reference are not finite, how many of these are finite in the output, and how
        many others are not."""
        counts = torch.zeros(3, dtype=torch.int64, device=self.expected.device)
        for _, _, output, reference in self.pairs(implementation):
            ours, due = torch.isfinite(output), torch.isfinite(reference).reshape(output.shape)
            counts += torch.stack([(~due).sum(), (ours & ~due).sum(), (~ours & due).sum()])
        infinite, hidden, others = counts.tolist()
        return infinite, hidden, others

    # -- classes --------------------------------------------------------------------------------------------------

    def classes(self) -> tuple[str, ...]:
        """Return the classes that the fixture has limits for."""
        limits = next(iter(self.fixture.trials.values())).limits
        return tuple(klass for klass in CLASSES[self.fixture.dtype] if klass in limits)

    def meets_any(self, distances: Distances, kind: str) -> bool:
        """Return whether a distance is within some class's limits on a trial."""
        return any(meets(distances.values(), self.fixture, kind, klass) for klass in self.classes())

    def decided_by_rounding(self, trial: Trial, missed: Missed) -> bool:
        """Return whether rounding explains that a solution is over a class's limits on a draw."""
        return by_rounding(missed, self.expected.honest(trial, missed.klass))

    def class_of_call(self, implementation: Implementation, variant: str, kind: str, timeout_s: float) -> str:
        """Run a trusted variant on the inputs in the buffers and return its precision class.

        Raises SolutionRejected (`baseline_incorrect`) if it meets no class.
        """
        answer = self.workers.call(implementation, variant, timeout_s)
        values = self.compare(implementation, answer)[0].values()
        self.workers.release(implementation)
        klass = class_of({kind: [values]}, self.fixture, refused=True, trusted=True)
        if klass is None:
            raise SolutionRejected("baseline_incorrect", f"rel_l2 {values['rel_l2']:.2g}")
        return klass

    # -- rows of an output ----------------------------------------------------------------------------------------

    def _parts(self) -> list[Rows]:
        """Return the chunks to compare: all, or in a screening a few of them."""
        parts = self.expected.shape.parts()
        if not self.shares or len(parts) <= _FEW:
            return parts
        return [parts[int(share * len(parts))] for share in self.shares]

    def _windows(self, parts: list[Rows]) -> Iterator[tuple[Rows, list[Rows]]]:
        """Yield chunks in groups that are fetched at once: those of one output that follow each other and fit.

        Each fetch costs half a millisecond, whatever its size.
        """
        specs = leaves(self.expected.shape.spec)
        rows, most = list(filter(None, parts)), 1
        if rows and len(specs) == 1 and all(a.stop == b.start for a, b in itertools.pairwise(rows)):
            (shape,) = self.expected.shape.sizes(rows[0])
            nbytes = math.prod(shape) * getattr(torch, specs[0][1]["dtype"]).itemsize
            most = max(1, self.workers.slots.staging_bytes // nbytes)
        for start in range(0, len(parts), most):
            group = parts[start : start + most]
            first, last = group[0], group[-1]
            yield (slice(first.start, last.stop) if first is not None and last is not None else None), group

    def _chunks(
        self,
        implementation: Implementation,
        parts: list[Rows],
        bound: Seal | None = None,
        digests: list[int] | None = None,
    ) -> Iterator[tuple[Rows, Iterator[torch.Tensor]]]:
        """Yield each chunk, and an iterator that fetches its rows of each output."""
        for window, inside in self._windows(parts):
            fetched = self._fetched(implementation, window, bound, digests)
            if len(inside) == 1:
                yield inside[0], fetched
                continue
            held = next(fetched)
            for part in inside:
                assert window is not None and part is not None
                yield part, iter([held[part.start - window.start : part.stop - window.start]])

    def _fetched(
        self,
        implementation: Implementation,
        part: Rows,
        bound: Seal | None = None,
        digests: list[int] | None = None,
    ) -> Iterator[torch.Tensor]:
        """Fetch the rows `part` of each output through the poisoned staging buffer, and yield them.

        bound: check the bytes against this seal, and yield a copy that the worker cannot change. digests: without a
        seal, a digest of the bytes of each output is added.
        """
        shape = self.expected.shape
        for position, ((path, leaf), size) in enumerate(zip(leaves(shape.spec), shape.sizes(part), strict=True)):
            elements = functools.partial(self.elements, implementation, path, getattr(torch, leaf["dtype"]))
            if bound is not None:
                yield bound.rows(position, part, elements).reshape(size)
                continue
            count = math.prod(size)
            first = part.start * (count // max(1, part.stop - part.start)) if part is not None else 0
            output = elements(first, count).view(size)
            if digests is not None:
                digests.append(self._digest(output))
            yield output

    def elements(
        self, implementation: Implementation, path: Place, dtype: torch.dtype, start: int, count: int,
        order: list[int] | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Fetch elements of one tensor of a worker's output as flat shared memory. path: its place in the output."""
        staging = implementation.staging
        assert staging is not None
        staging.poison()
        self.workers.slots.synchronize()
        message = {"op": "fetch", "path": list(path), "start": start, "count": count, "order": order}
        self.workers.ask(implementation, message)
        return staging.view(dtype, (count,))

    def _digest(self, output: torch.Tensor) -> int:
        """Return a digest of an output's bytes, to be compared with those of the same solution alone."""
        flat = output.contiguous().view(-1).view(torch.uint8)
        states = commitment.states(flat, _DIGEST_TURNS, 0, self._digest_key)
        return int.from_bytes(hashlib.sha256(states).digest()[:8])
