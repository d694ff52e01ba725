"""Runs solutions on a neighbouring shape of the problem. The result informs and never decides a verdict."""

from __future__ import annotations

from repro.errors import JudgeError, SolutionError
from repro.judge.correctness import input_cases
from repro.judge.correctness.distance import score
from repro.judge.correctness.reference import Shape, rows_per_chunk
from repro.judge.correctness.verification import Evaluation
from repro.judge.implementation import Implementation
from repro.problems import plan as inputs_module
from repro.problems.meta import output_spec
from repro.records.verdict import Neighbour


def look(evaluation: Evaluation, planned: list[input_cases.Trial]) -> None:
    """Run the neighbouring shape's trials on every solution that did not fail, and record each result."""
    for trial in (t for t in planned if t.neighbour):
        for implementation in evaluation.workers.solutions:
            if implementation.failed or implementation.worker is None or implementation.neighbour.verdict:
                continue
            evaluation.trials.announce(implementation, trial)
            evaluation.alternate = evaluation.alternate or _shape(evaluation)
            with evaluation.workers.gpu.trial():
                implementation.neighbour = _judged(evaluation, implementation, trial, evaluation.alternate)


def _judged(
    evaluation: Evaluation, implementation: Implementation, trial: input_cases.Trial, shape: Shape | None
) -> Neighbour:
    facts, slots = evaluation.fixture.neighbour, evaluation.slots
    expected, workers = evaluation.expected, evaluation.workers
    if not facts or shape is None:
        return Neighbour(verdict="not_run", reason="this problem has no neighbouring shape")
    expected.shape, slots.plan = shape, shape.plan
    try:
        evaluation.trials.load(implementation, trial)
        slots.fill(trial.seed, trial.stress)
        evaluation.trials.parts.lap()
        answer = workers.call(implementation)
        evaluation.trials.parts.lap("first calls")  # a new shape is compiled for again
        distances, _ = evaluation.comparison.compare(implementation, answer.get("output"))
        workers.release(implementation)
        values = distances.values()
        limits = [facts["limits"][klass] for klass in evaluation.comparison.classes()]
        right = any(not own or score(values, own) <= 1 for own in limits)
        neighbour = Neighbour(verdict="correct" if right else "incorrect", rel_l2=values["rel_l2"])
    except SolutionError as error:
        neighbour = Neighbour(verdict=error.verdict, reason=f"{error.code}: {error.detail}")
    finally:
        expected.shape, slots.plan = expected.own, expected.own.plan
    if neighbour.verdict != "correct":
        implementation.observed.add("shape_specialised")
        workers.end(implementation)  # the foreign shape may have broken it: timing starts a new one
    return neighbour


def _shape(evaluation: Evaluation) -> Shape | None:
    problem, slots = evaluation.problem.neighbouring(), evaluation.slots
    if problem is None:
        return None
    plan = inputs_module.plan(problem)
    spec = output_spec(plan, evaluation.expected.native)
    rows = rows_per_chunk(plan, spec, evaluation.expected.device, evaluation.expected.reference)
    while rows is not None and rows > 1 and not slots.fits(plan, spec, rows):
        rows //= 2
    if not slots.fits(plan, spec, rows):
        raise JudgeError(f"the neighbouring shape of {evaluation.problem.key} is larger than its own")
    return Shape(plan, spec, rows)
