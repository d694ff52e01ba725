"""Calibration: measures the fixture of one problem on one device.

A fixture holds public seeds, checksums of inputs and weights, a sketch of the reference, how far honest kernels of each
precision class are from it, how far cheats are, the limits that follow, and reference timings. One that a cheat passes,
or whose margin is too small, is refused: it is written with its reason and judges nothing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import torch

from repro import inputs
from repro.inputs import Plan, Weights
from repro.judge import FIXTURE_SCHEMA_VERSION, GENERATOR, cheats, trials
from repro.judge.limits import CLASSES, limits, separation
from repro.judge.metric import Distance, worst
from repro.judge.reference import Reference, chunks, leaves, output_spec, rows_per_chunk
from repro.problems import Problem, Stress

HEAD_BYTES = 1 << 20
SKETCH_ROWS = 8
CHECKSUM_STEP = 1 << 25

Progress = Callable[[str], None]


def checksum(tensor: torch.Tensor) -> str:
    """Position-weighted sum of the elements' bits modulo 2**64: exact, so equal on every device."""
    flat = tensor.contiguous().view(-1)
    total = 0
    for start in range(0, flat.numel(), CHECKSUM_STEP):
        total = (total + _weighted(flat[start : start + CHECKSUM_STEP], start)) % (1 << 64)
    return f"{total:016x}"


def _weighted(part: torch.Tensor, start: int) -> int:
    """The share of the elements from `start` on; `part` is flat."""
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[part.element_size()]
    weight = torch.arange(start, start + part.numel(), dtype=torch.int64, device=part.device).mul_(2).add_(1)
    return int(weight.mul_(part.view(width)).sum().item())


def head_digest(recipe: inputs.Recipe, seed: int, device: torch.device) -> str:
    """sha256 of the first MiB that a recipe makes."""
    count = min(recipe.numel, HEAD_BYTES // recipe.dtype.itemsize)
    data = recipe.fill(torch.empty(count, dtype=recipe.dtype, device=device), seed)
    return hashlib.sha256(data.view(torch.uint8).cpu().numpy().tobytes()).hexdigest()


def _input_facts(plan: Plan, seed: int, device: torch.device) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    for i, spec in enumerate(plan.spec):
        recipe = plan.recipes[i]
        if i not in plan.tensors:
            facts.append({"value": repr(spec)})
            continue
        entry: dict[str, Any] = {"shape": list(spec[0]), "dtype": str(spec[1]).removeprefix("torch.")}
        if recipe is None:
            value = plan.make(seed, device)[i]
            facts.append(entry | {"checksum64": checksum(value)})
            continue
        total, step = 0, CHECKSUM_STEP
        for start in range(0, recipe.numel, step):
            count = min(step, recipe.numel - start)
            part = recipe.fill(torch.empty(count, dtype=recipe.dtype, device=device), seed, start)
            total = (total + _weighted(part, start)) % (1 << 64)
        facts.append(entry | {"checksum64": f"{total:016x}", "sha256_head": head_digest(recipe, seed, device)})
    return facts


def _sketch(first: list[torch.Tensor]) -> dict[str, Any]:
    """Row norms and sampled elements of the first chunk's fp64 outputs: enough to recognise a reference."""
    value = first[0]
    rows = value.reshape(max(1, value.shape[0]) if value.dim() else 1, -1)[:SKETCH_ROWS]
    flat = rows.reshape(-1)
    at = [(i * 7919) % flat.numel() for i in range(8)]
    return {
        "row_norms": [float(f"{x:.10g}") for x in torch.linalg.vector_norm(rows, dim=1).tolist()],
        "elements": {str(i): float(f"{float(flat[i]):.10g}") for i in at},
    }


def _measure(
    plan: Plan, trial: trials.Trial, state: Weights, spec: Any, models: dict[str, Reference], device: torch.device
) -> dict[str, Any]:
    """Honest and cheating distances of one trial kind, in two passes over the rows. models: precision -> model."""
    for model in models.values():
        model.load(state)
    reference = models["fp64"]
    honest_models = {name: model for name, model in models.items() if name != "fp64"}
    classes = tuple(honest_models)
    rows = rows_per_chunk(plan, reference, spec)
    other = trial.seed + 8
    count = len(leaves(spec))
    sums: list[torch.Tensor] = []
    total, elements, batch = 0.0, 0, 0
    kept: list[torch.Tensor] = []
    for part in chunks(plan, rows):
        outputs = reference(plan.chunk(part, other, device, trial.stress))
        columns = [o.sum(0, keepdim=True) if o.dim() else o.clone() for o in outputs]
        sums = [a + b for a, b in zip(sums, columns, strict=True)] if sums else columns
        total += sum(float(o.sum()) for o in outputs)
        elements += sum(o.numel() for o in outputs)
        batch += outputs[0].shape[0] if outputs[0].dim() else 1
        kept = outputs if rows is None or rows >= (plan.batch or 0) else []
    feature_mean = [s / batch for s in sums]
    constant = total / elements

    skips = cheats.SKIPS.get(plan.problem.id, {})
    names = ["zeros", "constant", "feature_mean", "stale", *skips]
    honest = {name: [Distance() for _ in range(count)] for name in classes}
    cheated = {name: [Distance() for _ in range(count)] for name in names}
    sketch: dict[str, Any] = {}
    for part in chunks(plan, rows):
        values = plan.chunk(part, trial.seed, device, trial.stress)
        expected = reference(list(values))
        sketch = sketch or _sketch(expected)
        for name, model in honest_models.items():
            _add(honest[name], model(list(values)), expected)
        _add(cheated["zeros"], [torch.zeros_like(r) for r in expected], expected)
        _add(cheated["constant"], [torch.full_like(r, constant) for r in expected], expected)
        _add(cheated["feature_mean"], [m.expand_as(r) for m, r in zip(feature_mean, expected, strict=True)], expected)
        _add(cheated["stale"], kept or _stale(reference, plan, part, other, trial.stress), expected)
        for name, skip in skips.items():
            cast = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in values]
            with torch.no_grad():
                _add(cheated[name], [skip(reference.model, cast)], expected)
    honest_values = {name: _short(worst(d)) for name, d in honest.items()}
    sensitivity = _short(worst(cheated["stale"]))["rel_l2"]
    return {
        "seed": trial.seed,
        "stress": trial.stress,
        "weights_sha256": state.sha256,
        "sensitivity": sensitivity,
        "honest": honest_values,
        "cheats": {name: _short(worst(d)) | {"legacy": d[0].legacy} for name, d in cheated.items()},
        "limits": {name: _short(limits(v, name, sensitivity)) for name, v in honest_values.items()},
        "sketch": sketch,
    }


def _short(values: dict[str, float]) -> dict[str, float]:
    """Six digits are enough, and a quarter of a fixture's size less."""
    return {name: float(f"{value:.6g}") for name, value in values.items()}


def _stale(
    reference: Reference, plan: Plan, part: slice | None, seed: int, stress: Stress | None
) -> list[torch.Tensor]:
    """The outputs of the same rows under another seed."""
    return reference(plan.chunk(part, seed, reference.device, stress))


def _add(distances: list[Distance], outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for distance, output, reference in zip(distances, outputs, expected, strict=True):
        distance.add(output, reference)


def build(problem: Problem, device: torch.device, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Measures one fixture on `device`. Raises JudgeError where the problem file is at fault."""
    begin = time.monotonic()
    plan = inputs.plan(problem)
    native = inputs.weights(problem, plan.module)
    perturbed: Weights | None = None
    classes = CLASSES[problem.dtype]
    spec = output_spec(plan, native)
    models = {name: Reference(plan, native, device, name) for name in ("fp64", *classes)}
    measured: dict[str, Any] = {}
    skipped = {kind: why for kind, why in trials.kinds(plan).items() if why}
    for trial in trials.make(plan, public=True, count_native=1):
        progress(f"{problem.key}: {trial.kind}")
        if trial.perturbed and perturbed is None:
            perturbed = trials.perturbed_weights(plan, device)
        state = perturbed if trial.perturbed and perturbed is not None else native
        measured[trial.kind] = _measure(plan, trial, state, spec, models, device)
    fixture = {
        "schema_version": FIXTURE_SCHEMA_VERSION,
        "problem": problem.key,
        "size": problem.size,
        "dtype": problem.dtype,
        "problem_sha256": hashlib.sha256(problem.path.read_bytes()).hexdigest(),
        "generator": GENERATOR,
        "device": device.type,
        "public_seed": trials.PUBLIC_SEED,
        "inputs": _input_facts(plan, trials.PUBLIC_SEED, device),
        "weights_sha256": native.sha256,
        "output": spec,
        "foreign_random": list(plan.foreign),
        "trials": measured,
        "trials_left_out": skipped,
        **separation(measured, classes),
        "reference_timing": _eager_ms(plan, models[classes[0]], native, device),
    }
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return fixture | {"build_s": round(time.monotonic() - begin, 3)}


def _eager_ms(plan: Plan, reference: Reference, state: Weights, device: torch.device, calls: int = 7) -> dict[str, Any]:
    """Median of a few eager calls (ms): an orientation, never a denominator."""
    if device.type != "cuda":
        return {"eager_ms": None, "reason": "no GPU: times on the CPU are not a measurement"}
    reference.load(state)
    model = reference.model
    values = plan.make(trials.PUBLIC_SEED, device)
    samples = []
    with torch.no_grad():
        for _ in range(calls):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            model(*values)
            end.record()
            end.synchronize()
            samples.append(start.elapsed_time(end))
    return {"eager_ms": sorted(samples[1:])[len(samples) // 2 - 1], "calls": calls - 1}
