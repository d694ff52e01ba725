"""Runs solutions on a neighbouring shape of the problem. The result informs and never decides a verdict."""

from __future__ import annotations

import time

from repro.errors import JudgeError, SolutionError
from repro.judge.correctness import input_cases
from repro.judge.correctness.distance import score
from repro.judge.correctness.reference import Shape, rows_per_chunk
from repro.judge.correctness.verification import Evaluation
from repro.judge.implementation import Implementation
from repro.judge.processes import pool
from repro.problems import plan as inputs_module
from repro.problems.meta import output_spec
from repro.records.verdict import Neighbour
from repro.records.wording import CASES


def look(evaluation: Evaluation, planned: list[input_cases.Trial]) -> None:
    """Run the neighbouring shape's trials on every solution that did not fail, and record each result."""
    for trial in (t for t in planned if t.neighbour):
        for implementation in evaluation.implementations:
            if implementation.failed or implementation.worker is None or implementation.neighbour.verdict:
                continue
            evaluation.progress(f"{evaluation.problem.key}: {implementation.name} {CASES[trial.kind]}")
            begin = time.monotonic()
            evaluation.neighbouring = evaluation.neighbouring or _shape(evaluation)
            with evaluation.gpu.trial():
                implementation.neighbour = _judged(evaluation, implementation, trial, evaluation.neighbouring)
            evaluation.spent(trial.kind, begin)


def _judged(
    evaluation: Evaluation, implementation: Implementation, trial: input_cases.Trial, shape: Shape | None
) -> Neighbour:
    facts, slots, timeout_s = evaluation.fixture.neighbour, evaluation.slots, evaluation.options.timeout_s
    if not facts or shape is None:
        return Neighbour(verdict="not_run", reason="this problem has no neighbouring shape")
    evaluation.shape, slots.plan = shape, shape.plan
    part = evaluation.parts.lap
    part()
    try:
        name, state = evaluation.use(trial.perturbed)
        evaluation.still(but=implementation)
        evaluation.load(implementation, name, state)
        slots.fill(trial.seed, trial.stress)
        message = {"op": "run", "variant": implementation.variants[0], "inputs": slots.told()}
        part("neighbouring shape")
        answer = implementation.ask(message, timeout_s)
        part("first calls")  # a new shape is compiled for again
        distance, _ = evaluation.compare(implementation, answer.get("output"))
        implementation.ask({"op": "release"}, timeout_s)
        values = distance.values()
        right = any(score(values, facts["limits"][k]) <= 1 for k in evaluation.classes())
        found = Neighbour(verdict="correct" if right else "incorrect", rel_l2=values["rel_l2"])
    except SolutionError as error:
        found = Neighbour(verdict=error.verdict, reason=f"{error.code}: {error.detail}")
    finally:
        evaluation.shape, slots.plan = evaluation.own, evaluation.own.plan
        part("neighbouring shape")
    if found.verdict != "correct":
        implementation.observed.add("shape_specialised")
        _end(evaluation, implementation)
    return found


def _end(evaluation: Evaluation, implementation: Implementation) -> None:
    """End a worker that the foreign shape may have broken. Timing uses a new worker, which starts now."""
    evaluation.end(implementation)
    options = evaluation.options
    if options.timing and options.device == "cuda" and options.trust == "audited":
        pool.more(1, options.device)


def _shape(evaluation: Evaluation) -> Shape | None:
    problem, slots = evaluation.problem.neighbouring(), evaluation.slots
    if problem is None:
        return None
    plan = inputs_module.plan(problem)
    spec = output_spec(plan, evaluation.native)
    rows = rows_per_chunk(plan, evaluation.reference, spec)
    while rows is not None and rows > 1 and not slots.fits(plan, spec, rows):
        rows //= 2
    if not slots.fits(plan, spec, rows):
        raise JudgeError(f"the neighbouring shape of {evaluation.problem.key} is larger than its own")
    return Shape(plan, spec, rows)
