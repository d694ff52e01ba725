"""Correctness: runs every planned trial of every implementation; compares outputs with the fp64 reference in chunks."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import math
import random
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import torch

from repro.errors import JudgeError, SolutionDied, SolutionError, SolutionRejected
from repro.inputs import stress as stresses
from repro.inputs.stress import Stress
from repro.judge.correctness import distance as metric
from repro.judge.correctness import input_cases, output_checks
from repro.judge.correctness.distance import Distance, score
from repro.judge.correctness.reference import Reference, Shape, chunks, most_rows, rows_per_chunk
from repro.judge.correctness.tolerances import CLASSES, class_of
from repro.judge.gpu import commitment, memory
from repro.judge.gpu.commitment_check import Seal
from repro.judge.gpu.input_buffers import Slots
from repro.judge.gpu.shared_memory import Gate
from repro.judge.implementation import Implementation, Options, Progress, Restless, moved
from repro.judge.processes import pool as spare
from repro.judge.processes.client import GpuUse, WorkerProcess
from repro.judge.processes.wire import Json
from repro.judge.worker.in_process import InProcess
from repro.problems import plan as inputs_module
from repro.problems.catalogue import Problem
from repro.problems.meta import leaves, output_spec
from repro.problems.plan import Plan, Weights
from repro.records.fixture import Fixture
from repro.records.verdict import Reason
from repro.records.wording import CASES
from repro.system.stopwatch import Clock

# Calls on the same inputs in every trial; one that differs from the first is judged like it. A kernel that is wrong at
# half of its calls, by chance, passes all of them with a probability of 2 ** -(REPEATS * trials) before timing.
REPEATS = 3
# Chunks that a screening compares; bytes of the reference's outputs that are kept for the next solution.
FEW, KEPT_BYTES = 2, 4 << 30
# Draws of the one NaN until it reaches the reference's output: of a pooling with gaps it reaches none now and then.
NAN_DRAWS = 16
# How long a first call beside others may take on a GPU, with its compilation.
FIRST_CALL_S = 20.0
# Reads of a lane for each state of a digest.
DIGEST_TURNS = 32


def meets(values: dict[str, float], fixture: Fixture, kind: str, klass: str) -> bool:
    """Return whether distances are within a class's limits on a trial; a probe may have none for a class."""
    limits = fixture.trials[kind].limits[klass]
    return not limits or score(values, limits) <= 1


def _rows(held: torch.Tensor, window: slice | None, part: slice | None) -> torch.Tensor:
    """Return the rows `part` of an output of which `held` has the rows `window`."""
    assert window is not None and part is not None
    return held[part.start - window.start : part.stop - window.start]


class Evaluation:
    """The judge's state for one problem: plan, buffers, reference, and the solutions that are judged now."""

    def __init__(
        self, problem: Problem, fixture: Fixture, options: Options, progress: Progress, mark: Progress
    ) -> None:
        self.problem, self.fixture, self.options = problem, fixture, options
        self.progress, self.mark = progress, mark
        self.device = torch.device(options.device)
        plan = inputs_module.plan(problem)
        self.native = inputs_module.weights(problem, plan.module)
        if self.native.sha256 != fixture.weights_sha256:
            what = f"the weights of {problem.key} differ from the fixture's"
            why = "another torch version may initialise differently"
            raise JudgeError(what, why, "Run `repro fixtures` again on this stack.")
        self.implementations: list[Implementation] = []
        spec = output_spec(plan, self.native)
        self.shape = self.own = Shape(plan, spec, most_rows(plan, spec, self.device))
        self.slots = Slots(plan, spec, self.own.rows, self.device)
        self.loaded: dict[str, str] = {}
        self.spent_s: dict[str, float] = {}
        self.parts = Clock()
        self.gpu = GpuUse()
        self.restless: set[str] = set()  # solutions that were not seen at rest once
        self.perturbed: Weights | None = None
        self.repeats = REPEATS
        self.screening: list[float] = []  # where the chunks of a screening lie, as shares of all
        self.kept: dict[str, list[torch.Tensor]] = {}  # the reference's outputs by chunk, for the inputs of `kept_of`
        self.kept_of: tuple[Any, ...] = ()
        self.sharing = False  # several solutions are verified on a GPU: the next one needs what is kept
        self.neighbouring: Shape | None = None
        self.digest_key = secrets.token_bytes(commitment.KEY_BYTES)
        self.noted: Callable[[], None] = lambda: None  # called after each recorded distance of a solution

    def refer(self) -> None:
        """Build the fp64 reference. Workers may start before: on a GPU its first call takes a second or two."""
        self.reference = Reference(self.plan, self.native, self.device)
        self.reference_of = "native"
        self.own.rows = rows_per_chunk(self.plan, self.reference, self.own.spec)

    @property
    def plan(self) -> Plan:
        """Return the plan of the problem at its own shape."""
        return self.own.plan

    # -- workers and weights --------------------------------------------------------------------------------------

    def seat(self, *implementations: Implementation) -> None:
        """Give a worker process, a staging buffer and a gate to each implementation without a worker."""
        for implementation in implementations:
            if implementation.worker is not None:
                continue
            implementation.staging = self.slots.staging()
            implementation.gate = Gate(self.device)
            buffers = self.slots.buffers | {"staging": implementation.staging, "gate": implementation.gate}
            if self.options.trust == "dev":
                implementation.worker = InProcess(self.device, buffers)
            else:
                compiles = implementation.compiles and len(self.options.modes) > 1
                kind, gpu = (spare.COMPILES, self.gpu) if compiles else (spare.PLAIN, None)
                implementation.worker = WorkerProcess(
                    implementation.name, self.device, buffers, trusted=implementation.trusted, kind=kind, gpu=gpu
                )

    def start(self, *implementations: Implementation) -> None:
        """Start workers side by side, and have each import its file. A fault becomes the implementation's."""
        self.seat(*implementations)
        problem = asdict(self.problem.message())

        def define(implementation: Implementation) -> SolutionError | None:
            try:
                assert implementation.worker is not None
                implementation.hello = implementation.worker.start()
                message = {
                    "op": "define",
                    "source": implementation.text,
                    "entry": implementation.entry,
                    "problem": problem,
                }
                implementation.ask(message | {"inputs": len(self.plan.spec)}, self.options.timeout_s)
            except SolutionError as error:
                return error
            return None

        if self.options.trust == "dev" or not implementations:
            faults = [define(implementation) for implementation in implementations]
        else:
            with ThreadPoolExecutor(len(implementations)) as pool:
                faults = list(pool.map(define, implementations))
        for implementation, error in zip(implementations, faults, strict=True):
            if error is not None:
                implementation.fail(error, "import")
                self.end(implementation)

    def pass_on(self, old: Implementation, new: Implementation) -> None:
        """Give the worker of a solution to another one, which it then defines in its place."""
        new.worker, new.staging, new.gate = old.worker, old.staging, old.gate
        old.worker = old.staging = old.gate = None
        self.loaded.pop(old.name, None)
        old.classes.clear()

    def end(self, *implementations: Implementation) -> None:
        """End workers that are no longer needed, which frees their GPU memory."""
        if len(implementations) > 1:  # destroying a CUDA context takes a while, so several end side by side
            for implementation in implementations:
                if implementation.worker is not None:
                    implementation.worker.doom()
        for implementation in implementations:
            if implementation.worker is not None:
                implementation.worker.close()
                implementation.worker = None
                self.loaded.pop(implementation.name, None)
                implementation.classes.clear()
            for buffer in (implementation.staging, implementation.gate):
                if buffer is not None:
                    buffer.close()
            implementation.staging = implementation.gate = None

    def weights(self, perturbed: bool) -> tuple[str, Weights]:
        """Return the name of the native or the perturbed weights, and the weights."""
        if not perturbed:
            return "native", self.native
        if self.perturbed is None:
            self.perturbed = input_cases.perturbed_weights(self.plan, self.native, self.device)
        return "perturbed", self.perturbed

    def use(self, perturbed: bool) -> tuple[str, Weights]:
        """Load the native or the perturbed weights into the fp64 reference; return their name and the weights."""
        name, state = self.weights(perturbed)
        if self.reference_of != name:
            self.reference.load(state)
            self.reference_of = name
        return name, state

    def load(self, implementation: Implementation, name: str, state: Weights, timeout_s: float = 0.0) -> None:
        """Send the weights to a worker in pieces through the staging buffer, and have it load them.

        timeout_s bounds the loading; 0 uses the usual limit.
        """
        if self.loaded.get(implementation.name) == name:
            return
        self._hand(implementation, state)
        message = {"op": "load", "init": state.init, "variants": implementation.variants}
        implementation.ask(message, timeout_s or self.options.timeout_s)
        self.loaded[implementation.name] = name

    def _hand(self, implementation: Implementation, state: Weights) -> None:
        staging = implementation.staging
        assert staging is not None
        for key, value in state.state.items():
            flat = value.contiguous().view(-1)
            step = staging.nbytes // value.element_size()
            dtype = str(value.dtype).removeprefix("torch.")
            for start in range(0, max(1, flat.numel()), step):
                part = flat[start : start + step]
                staging.view(value.dtype, (part.numel(),)).copy_(part)
                self.slots.synchronize()
                implementation.ask({"op": "piece", "name": key, "dtype": dtype, "shape": list(value.shape),
                             "start": start, "count": part.numel()}, self.options.timeout_s)  # fmt: skip

    def still(self, but: Implementation | None = None) -> None:
        """Stop every solution, or all but one, since all of them can access the slots."""
        for implementation in self.implementations:
            if implementation is not but and implementation.worker is not None:
                with contextlib.suppress(SolutionError):  # reported when its own turn comes
                    implementation.worker.stop()

    # -- outputs --------------------------------------------------------------------------------------------------

    def _fetched(
        self,
        implementation: Implementation,
        part: slice | None,
        shapes: list[tuple[int, ...]],
        bound: Seal | None = None,
    ) -> list[Callable[[], Any]]:
        """Return for each output a function that fetches the rows `part` through the poisoned staging buffer.

        bound: check the bytes against this seal, and return a copy that the worker cannot change.
        """
        staging = implementation.staging
        assert staging is not None
        found: list[Callable[[], Any]] = []
        for position, ((path, leaf), shape) in enumerate(zip(leaves(self.shape.spec), shapes, strict=True)):
            dtype, count = getattr(torch, leaf["dtype"]), math.prod(shape)
            first = part.start * (count // max(1, part.stop - part.start)) if part is not None else 0

            def fetch(start: int, count: int, order: Any = None, path: Any = path, dtype: Any = dtype) -> torch.Tensor:
                staging.poison()
                self.slots.synchronize()
                message = {"op": "fetch", "path": list(path), "start": start, "count": count, "order": order}
                implementation.ask(message, self.options.timeout_s)
                return staging.view(dtype, (count,))

            if bound is None:
                found.append(functools.partial(lambda f, n, m, s: f(n, m).view(s), fetch, first, count, shape))
            else:
                found.append(
                    functools.partial(lambda p, f, s: bound.rows(p, part, f).reshape(s), position, fetch, shape)
                )
        return found

    def compare(
        self, implementation: Implementation, described: Any, only: slice | None = None, *, whole: bool = True,
        bound: Seal | None = None,
    ) -> tuple[Distance, list[int]]:  # fmt: skip
        """Return the distance of the worker's kept output from the reference, and digests of its bytes.

        only: rows to compare if not `whole`. bound: a seal that the bytes must match; then there are no digests. Raises
        SolutionRejected.
        """
        if not implementation.trusted:
            self._gates(described)
        if bound is not None:
            bound.open(leaves(self.shape.spec), described)
        distance, bits = Distance(), []
        plan, slots = self.shape.plan, self.slots
        edited = stresses.parts(slots.stress)[0] == "edit"
        for window, parts in self._windows(self._parts() if whole else [only]):
            fetches = self._fetched(implementation, window, self._shapes(window), bound)
            held = fetches[0]() if len(parts) > 1 else None
            for part in parts:
                expected = self._expected(part)
                before = list[torch.Tensor]()
                if edited:
                    before = self.reference(plan.chunk(part, slots.seed, self.device, self._unedited()))
                for position, (fetch, reference) in enumerate(zip(fetches, expected, strict=True)):
                    output = fetch() if held is None else _rows(held, window, part)
                    if bound is None and held is None:
                        bits.append(self._digest(output))
                    distance.add(output, reference)
                    if edited:
                        distance.change.add(output, reference, before[position])
            if bound is None and held is not None:
                bits.append(self._digest(held))
        distance.settle()
        if not distance.finite:
            raise SolutionRejected("not_finite", "the output is not finite where the reference is, or was not written")
        return distance, bits

    def _parts(self) -> list[slice | None]:
        """Return the chunks to compare: all, or in a screening FEW of them, the same ones for all solutions."""
        found = list(chunks(self.shape.plan, self.shape.rows))
        if not self.screening or len(found) <= FEW:
            return found
        return [found[int(share * len(found))] for share in self.screening]

    def _windows(self, parts: list[slice | None]) -> Iterator[tuple[slice | None, list[slice | None]]]:
        """Yield chunks in groups that are fetched at once: those of one output that follow each other and fit.

        Each fetch costs half a millisecond, whatever its size.
        """
        specs = leaves(self.shape.spec)
        rows, most = [part for part in parts if part is not None], 1
        if rows and len(specs) == 1 and all(a.stop == b.start for a, b in itertools.pairwise(rows)):
            (shape,) = self._shapes(rows[0])
            nbytes = math.prod(shape) * getattr(torch, specs[0][1]["dtype"]).itemsize
            most = max(1, self.slots.staging_bytes // nbytes)
        for start in range(0, len(parts), most):
            group = parts[start : start + most]
            first, last = group[0], group[-1]
            yield (slice(first.start, last.stop) if first is not None and last is not None else None), group

    def _expected(self, part: slice | None) -> list[torch.Tensor]:
        """Return the reference's outputs of a chunk. Those of the latest inputs are kept while they are few bytes."""
        slots = self.slots
        now = (id(self.shape), slots.seed, str(slots.stress), self.reference_of)
        if now != self.kept_of:
            self.kept_of, self.kept = now, {}
        found = self.kept.get(str(part))
        if found is None:
            found = self.reference(self.shape.plan.chunk(part, slots.seed, self.device, slots.stress))
            held = sum(t.nbytes for each in self.kept.values() for t in each)
            if self.sharing and held + sum(t.nbytes for t in found) <= KEPT_BYTES:
                self.kept[str(part)] = [t.clone() for t in found]
        return found

    def _digest(self, output: torch.Tensor) -> int:
        """Return a digest of an output's bytes, to be compared with those of the same solution alone."""
        if self.device.type != "cuda":
            return metric.digest(output)
        flat = output.contiguous().view(-1).view(torch.uint8)
        found = commitment.states(flat, DIGEST_TURNS, 0, self.digest_key)
        return int.from_bytes(hashlib.sha256(found).digest()[:8])

    def _unedited(self) -> Stress | None:
        """Return the stress of the inputs before an edit."""
        return stresses.base(self.shape.plan.problem.stress)

    def bits(self, implementation: Implementation, *, whole: bool = False) -> list[int]:
        """Return digests of the worker's kept output, of the same rows each as `compare`, without a reference.

        whole: of all chunks, also in a screening.
        """
        parts = list(chunks(self.shape.plan, self.shape.rows)) if whole else self._parts()
        windows = [window for window, _ in self._windows(parts)]
        return [self._digest(fetch()) for w in windows for fetch in self._fetched(implementation, w, self._shapes(w))]

    def taken(self, implementation: Implementation, described: Any, part: slice | None, bound: Seal) -> None:
        """Fetch rows of the worker's kept output as `compare` does, without comparing them."""
        bound.open(leaves(self.shape.spec), described)
        for fetch in self._fetched(implementation, part, self._shapes(part), bound):
            fetch()

    def _shapes(self, part: slice | None) -> list[tuple[int, ...]]:
        """Return the shapes of the rows `part` of every output."""
        dims, specs = self.problem.batch_dims, [leaf["shape"] for _, leaf in leaves(self.shape.spec)]
        if part is None:
            return [tuple(shape) for shape in specs]
        return [(part.stop - part.start, *[1] * (dims - 1), *shape[dims:]) for shape in specs]

    def settled(self, implementation: Implementation, answered: Any) -> None:
        """Raise SolutionRejected if the output changed since its call ended."""
        now = implementation.ask({"op": "again"}, self.options.timeout_s).get("digest")
        if now is None or now != answered:
            raise SolutionRejected("deferred_write", "the output changed after its call had ended")

    # -- trials ---------------------------------------------------------------------------------------------------

    def trial(self, implementation: Implementation, trial: input_cases.Trial) -> None:
        """Run one trial of one solution; its faults become reasons.

        The trial is repeated if another solution ran meanwhile, since that one could have written to the inputs. The
        other one is rejected, and this one starts in a new worker.
        """
        before = implementation.noted()
        self._trial(implementation, trial)
        while self._somebody_ran(implementation, trial):
            implementation.forget(before)
            self.end(implementation)
            self.start(implementation)
            if implementation.worker is None:
                return
            self._trial(implementation, trial)

    def _somebody_ran(self, implementation: Implementation, trial: input_cases.Trial) -> bool:
        """Reject the other solutions that are not at rest, the second time. Return whether there are any.

        The first time they go on in new processes: a driver or a busy host can hold a thread in a system call.
        """
        found = moved(s for s in self.implementations if s is not implementation)
        again = [other for other in found if other.name not in self.restless]
        for other in found:
            if other in again:
                self.restless.add(other.name)
                self.progress(f"{self.problem.key}: {other.name} goes on in a new process: {Restless(other).detail}")
            else:
                other.fail(Restless(other), trial.kind)
        self.end(*found)
        if again:
            self.start(*again)
            self.still(but=implementation)
        return bool(found)

    def _trial(self, implementation: Implementation, trial: input_cases.Trial) -> None:
        part = self.parts.lap
        part()
        try:
            name, state = self.use(trial.perturbed)
            self.still(but=implementation)
            self._somebody_ran(implementation, trial)
            self.load(implementation, name, state)
            part("weights")
            self.slots.move()
            if stresses.parts(trial.stress)[0] == "edit":  # the call before, at the same addresses
                self.slots.fill(trial.seed, self._unedited())
                answer = self._called(implementation)
                self._gates(answer.get("output"))
            self.slots.fill(trial.seed, trial.stress)
            part("inputs")
            answer = self._called(implementation)
            part("calls" if implementation.distances else "first calls")
            if not trial.judged:
                self._gates(answer.get("output"))
                for _ in range(NAN_DRAWS if trial.kind == input_cases.NONFINITE else 0):
                    if self._propagates(implementation):
                        break
                    self.slots.fill(input_cases.secret_seed(), trial.stress)
                    self._gates(self._called(implementation).get("output"))
                return
            distance, bits = self.compare(implementation, answer.get("output"))
            part("comparing")
            self.settled(implementation, answer.get("digest"))
            part("digests")
            self._note(implementation, trial, distance)
            if self.screening:
                implementation.bits = self.bits(implementation, whole=True)
            for turn in range(self.repeats - 1):
                if turn:  # the same inputs at other addresses
                    self._intact()
                    self.slots.move()
                if turn or self.problem.writes_inputs:
                    self.slots.fill(trial.seed, trial.stress)
                answer = self._called(implementation)
                self._gates(answer.get("output"))
                if self.bits(implementation) != bits:
                    implementation.observed.add("nondeterministic")
                    distance, _ = self.compare(implementation, answer.get("output"))
                    if not any(meets(distance.values(), self.fixture, trial.kind, k) for k in self.classes()):
                        self._intact()
                        detail = f"a repeat on the same inputs has rel_l2 {distance.values()['rel_l2']:.2g}"
                        raise SolutionRejected("nondeterministic_wrong", detail)
                    self._note(implementation, trial, distance)
            part("repeats")
            for label, fact in (("static_output", "static"), ("reuses_output", "reused")):
                if answer.get(fact):
                    implementation.observed.add(label)
            self._intact()
            part("inputs again")
            implementation.ask({"op": "release"}, self.options.timeout_s)
        except SolutionError as error:
            if trial.kind == input_cases.NONFINITE and error.code != input_cases.NONFINITE:
                self._cannot(implementation, error)
                return
            implementation.fail(error, trial.kind)
            if implementation.failed != "incorrect":
                self.end(implementation)
        except torch.cuda.OutOfMemoryError as error:
            self.end(implementation)
            torch.cuda.empty_cache()
            implementation.fail(SolutionDied("judge_out_of_memory", f"it left no room on the GPU to judge it: {error}"),
                         trial.kind)  # fmt: skip

    def _called(self, implementation: Implementation) -> Json:
        """Return the answer to a call on the inputs in the slots."""
        memory.make_room(self.device)
        return implementation.ask(self._message(implementation), self.options.timeout_s)

    def _gates(self, described: Any) -> None:
        output_checks.check(described, self.shape.spec, self.device.type, aliases=self.problem.aliases_input)

    def _message(self, implementation: Implementation) -> Json:
        return {"op": "run", "variant": implementation.variants[0], "inputs": self.slots.told()}

    def _propagates(self, implementation: Implementation) -> bool:
        """Note a finding if the output is finite elsewhere than the reference is, for inputs with one NaN.

        It decides only where the options say so: then it raises SolutionRejected. Return whether the NaN told anything:
        no window of a pooling may look at it.
        """
        plan, counts = self.shape.plan, torch.zeros(3, dtype=torch.int64, device=self.device)
        for window, parts in self._windows(list(chunks(plan, self.shape.rows))):
            fetches = self._fetched(implementation, window, self._shapes(window))
            held = fetches[0]() if len(parts) > 1 else None
            for part in parts:
                expected = self.reference(plan.chunk(part, self.slots.seed, self.device, self.slots.stress))
                for fetch, reference in zip(fetches, expected, strict=True):
                    output = fetch() if held is None else _rows(held, window, part)
                    ours, due = torch.isfinite(output), torch.isfinite(reference).reshape(output.shape)
                    counts += torch.stack([(~due).sum(), (ours & ~due).sum(), (~ours & due).sum()])
        of, *wrong = counts.tolist()
        if not any(wrong):
            return bool(of)
        detail = f"{wrong[0]} of {of} elements hide a NaN of the inputs, {wrong[1]} others are not finite"
        if self.options.strict_nonfinite:
            raise SolutionRejected(input_cases.NONFINITE, detail)
        implementation.observed.add(input_cases.NONFINITE)
        implementation.findings.append(Reason(code=input_cases.NONFINITE, detail=detail))
        return True

    def _cannot(self, implementation: Implementation, error: SolutionError) -> None:
        """Note that a solution fails on a NaN, which decides nothing, and give it a new worker if it lost its own."""
        implementation.observed.add(input_cases.NONFINITE)
        detail = f"{error.code}: {error.detail}"
        implementation.findings.append(Reason(code=input_cases.NONFINITE, detail=detail))
        if error.verdict == "timeout" or not isinstance(error, SolutionRejected):
            self.end(implementation)
            self.start(implementation)

    def _intact(self) -> None:
        if not self.problem.writes_inputs and not self.slots.unchanged():
            raise SolutionRejected("input_modified", "the call changed its inputs")

    def classes(self) -> tuple[str, ...]:
        """Return the classes that the fixture has limits for."""
        limits = next(iter(self.fixture.trials.values())).limits
        return tuple(klass for klass in CLASSES[self.fixture.dtype] if klass in limits)

    def _note(self, implementation: Implementation, trial: input_cases.Trial, distance: Distance) -> None:
        implementation.distances.setdefault(trial.kind, []).append(distance.values())
        legacy = implementation.legacy.setdefault(trial.kind, dict(distance.legacy))
        for name, passed in distance.legacy.items():
            legacy[name] = legacy[name] and passed
        self.noted()

    def compile_all(self, implementations: list[Implementation], *, decides: bool) -> None:
        """Have solutions make their first call side by side, on inputs that any of them may change.

        On a GPU it may take FIRST_CALL_S, or a candidate that compiles for minutes would hold up all others. decides: a
        failure ends the worker and is the solution's verdict. Otherwise a solution that fails gets a new worker, and
        its trials decide.
        """
        running = [s for s in implementations if s.worker is not None]
        if self.options.trust == "dev" or not running:
            return
        name, state = self.use(not self.problem.native_signal)
        faults: list[SolutionError | None] = []
        for implementation in running:
            try:
                self.load(implementation, name, state)
                faults.append(None)
            except SolutionError as error:
                faults.append(error)
        self.slots.fill(input_cases.secret_seed(), None)
        message = {"op": "run", "inputs": self.slots.told()}
        limit_s = self.options.timeout_s if self.device.type != "cuda" else min(FIRST_CALL_S, self.options.timeout_s)

        def call(implementation: Implementation, before: SolutionError | None) -> SolutionError | None:
            if before is not None:
                return before
            try:
                implementation.ask(message | {"variant": implementation.variants[0]}, limit_s)
                implementation.ask({"op": "release"}, self.options.timeout_s)
            except SolutionError as error:
                return error
            return None

        with ThreadPoolExecutor(len(running)) as pool:
            faults = list(pool.map(call, running, faults))
        failed = [(s, fault) for s, fault in zip(running, faults, strict=True) if fault is not None]
        for implementation, fault in failed if decides else []:
            implementation.fail(fault, "first call")
        self.end(*[s for s, _ in failed])
        if not decides:
            self.start(*[s for s, _ in failed])

    def verify(
        self, planned: list[input_cases.Trial], implementations: list[Implementation] | None = None, *,
        screening: bool = False,
    ) -> None:  # fmt: skip
        """Run all deciding trials of solutions, or of some, in secret order, grouped by weights.

        screening: a trial is one call without repeats, of which a few chunks are compared.
        """
        self.restless.clear()
        chosen = self.implementations if implementations is None else implementations
        self.repeats = 1 if screening else REPEATS
        self.sharing = self.device.type == "cuda" and len(chosen) > 1
        self.screening = [random.SystemRandom().random() for _ in range(FEW)] if screening else []
        order = list(planned)
        random.SystemRandom().shuffle(order)
        order.sort(key=lambda t: (t.kind == input_cases.NONFINITE, t.judged, t.perturbed))
        for trial in (t for t in order if not t.neighbour):
            for implementation in chosen:
                if implementation.failed in ("", "incorrect") and implementation.worker is not None:
                    self.progress(f"{self.problem.key}: {implementation.name} {CASES[trial.kind]}")
                    begin = time.monotonic()
                    with self.gpu.trial():
                        self.trial(implementation, trial)
                    self.spent(trial.kind, begin)
        self.kept, self.screening = {}, []

    def spent(self, kind: str, begin: float) -> None:
        self.spent_s[kind] = round(self.spent_s.get(kind, 0.0) + time.monotonic() - begin, 3)

    # -- baselines ------------------------------------------------------------------------------------------------

    def class_now(self, implementation: Implementation, variant: str, kind: str, timeout_s: float) -> str:
        """Run a trusted variant on the inputs in the slots and return its precision class.

        Raises SolutionRejected (`baseline_incorrect`) if it meets no class.
        """
        message = {"op": "run", "variant": variant, "inputs": self.slots.told()}
        answer = implementation.ask(message, timeout_s)
        values = self.compare(implementation, answer.get("output"))[0].values()
        implementation.ask({"op": "release"}, self.options.timeout_s)
        klass = class_of({kind: [values]}, self.fixture, refused=True)
        if klass is None:
            raise SolutionRejected("baseline_incorrect", f"rel_l2 {values['rel_l2']:.2g}")
        return klass

    def random_row(self) -> tuple[slice | None, bool]:
        """Return a secret random row of the batch, or (None, True) for the whole if it cannot be split."""
        if self.own.rows is None or self.plan.batch is None:
            return None, True
        row = random.SystemRandom().randrange(self.plan.batch)
        return slice(row, row + 1), False

    def close(self) -> None:
        """End every worker and free the buffers."""
        self.end(*self.implementations)
        self.slots.close()
