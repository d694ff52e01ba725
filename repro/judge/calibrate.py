"""Calibration: measures the fixture of one problem on one device.

A fixture holds public seeds, checksums of inputs and weights, a sketch of the reference, the distances of honest
kernels of each precision class and of cheats, the limits that follow, and reference timings. A fixture that a cheat
passes, or whose margin is too small, is refused: it is written with its reason and is never used to judge.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from repro import inputs
from repro.inputs import Plan, Weights
from repro.judge import FIXTURE_SCHEMA_VERSION, GENERATOR, cheats, trials
from repro.judge.limits import CLASSES, limits, separation, zero_limit
from repro.judge.metric import Distance, digest, worst
from repro.judge.reference import Reference, chunks, leaves, output_spec, rows_per_chunk
from repro.problems import Problem
from repro.recipes import Recipe

HEAD_BYTES = 1 << 20
SKETCH_ROWS = 8
CHECKSUM_STEP = 1 << 25
# From a trial's seed to the seed of the outputs that a stale answer returns.
OTHER_SEED = 8
# Trials that use the sensitivity of the same weights without spikes, and on which cheats are not measured.
SHARED = ("spiked", "perturbed_spiked")
# Limits come from the worst error over several draws: as many as hold DRAWN elements, at most MOST_DRAWS. The error of
# an honest kernel varies by a factor of two between draws if these are small, or if one rounding in a chain of layers
# decides. At smoke size, an honest bf16 kernel exceeded the limits of one draw in 4 to 23 % of 300 other draws (L3_20,
# L2_84), and those of 16 draws in 0 to 0.2 %.
DRAWN, MOST_DRAWS = 1 << 27, 16
# From a draw's seed to the next: larger than the range of trials and OTHER_SEED.
DRAW_STEP = 1 << 20
# fp64 differences of squares below this fraction of them are rounding errors.
ROUNDING = 1e-13

Progress = Callable[[str], None]


def checksum(tensor: torch.Tensor) -> str:
    """Return the digest of a tensor's bits as hexadecimal text."""
    return f"{digest(tensor):016x}"


def head_digest(recipe: Recipe, seed: int, device: torch.device) -> str:
    """Return the sha256 of the first MiB that a recipe makes."""
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
            total = (total + digest(part, start)) % (1 << 64)
        facts.append(entry | {"checksum64": f"{total:016x}", "sha256_head": head_digest(recipe, seed, device)})
    return facts


def _sketch(first: list[torch.Tensor]) -> dict[str, Any]:
    """Return row norms and sampled elements of the first chunk's fp64 outputs, to recognise a reference."""
    value = first[0]
    rows = value.reshape(max(1, value.shape[0]) if value.dim() else 1, -1)[:SKETCH_ROWS]
    flat = rows.reshape(-1)
    at = [(i * 7919) % flat.numel() for i in range(8)]
    return {
        "row_norms": [float(f"{x:.10g}") for x in torch.linalg.vector_norm(rows, dim=1).tolist()],
        "elements": {str(i): float(f"{float(flat[i]):.10g}") for i in at},
    }


@dataclass
class Means:
    """Distances of answers that ignore the input, computed from sums over the batch.

    `other`: outputs of another seed, from which the means are taken. `sums` and `square`: of the reference.
    """

    rows: int = 0
    square: float = 0.0
    sums: list[torch.Tensor] = field(default_factory=list)
    other: list[torch.Tensor] = field(default_factory=list)

    def add(self, expected: list[torch.Tensor], others: list[torch.Tensor]) -> None:
        """Add outputs; each list has one fp64 tensor (rows, ...) an output. Non-finite elements count as 0."""
        known, others = ([x.nan_to_num(0.0, 0.0, 0.0) for x in outputs] for outputs in (expected, others))
        self.rows += known[0].shape[0] if known[0].dim() else 1
        self.square += sum(float(x.square().sum()) for x in known)
        for kept, values in ((self.sums, known), (self.other, others)):
            columns = [x.sum(0) if x.dim() else x.clone() for x in values]
            kept[:] = [a + b for a, b in zip(kept, columns, strict=True)] if kept else columns

    def distances(self) -> dict[str, dict[str, float]]:
        """Return the relative L2 distances of `constant` and `feature_mean`."""
        features = [x / self.rows for x in self.other]
        mean = sum(float(x.sum()) for x in features) / sum(x.numel() for x in features)
        found = {}
        for name, answer in (("constant", [torch.full_like(x, mean) for x in features]), ("feature_mean", features)):
            pairs = list(zip(answer, self.sums, strict=True))
            error = self.square + sum(float((self.rows * m.square() - 2 * m * s).sum()) for m, s in pairs)
            equal = error <= ROUNDING * self.square
            found[name] = {"rel_l2": 0.0 if equal else math.sqrt(error / self.square) if self.square else math.inf}
        return found


def draws(plan: Plan, spec: Any) -> int:
    """Return how many draws of a trial's inputs this problem's limits come from."""
    shapes = [plan.spec[i][0] for i in plan.tensors] + [leaf["shape"] for _, leaf in leaves(spec)]
    elements = sum(int(math.prod(shape)) for shape in shapes)
    return max(1, min(MOST_DRAWS, DRAWN // max(1, elements)))


def _draw(
    plan: Plan,
    trial: trials.Trial,
    seed: int,
    rows: int | None,
    models: dict[str, Reference],
    honest: dict[str, list[Distance]],
) -> Iterator[tuple[slice | None, list[Any], list[torch.Tensor]]]:
    """Add the honest kernels' distances on one draw of a trial's inputs.

    Yields each chunk, its inputs and its outputs in fp64.
    """
    for part in chunks(plan, rows):
        values = plan.chunk(part, seed, models["fp64"].device, trial.stress)
        expected = models["fp64"](list(values))
        for name, distances in honest.items():
            _add(distances, models[name](list(values)), expected)
        yield part, values, expected


def _measure(
    plan: Plan,
    trial: trials.Trial,
    state: Weights,
    spec: Any,
    models: dict[str, Reference],
    sensitivity: float | None = None,
) -> dict[str, Any]:
    """Return honest and cheating distances of one trial kind, the honest ones over several draws.

    models: precision -> model. sensitivity: if known from a similar trial, cheats are not measured.
    """
    for model in models.values():
        model.load(state)
    reference = models["fp64"]
    rows = rows_per_chunk(plan, reference, spec)
    count = len(leaves(spec))
    honest = {name: [Distance(legacy={}) for _ in range(count)] for name in models if name != "fp64"}
    cheated: dict[str, list[Distance]] = {}
    means = Means()
    sketch: dict[str, Any] = {}

    def cheat(name: str, outputs: list[torch.Tensor]) -> None:
        _add(cheated.setdefault(name, [Distance() for _ in range(count)]), outputs, expected)

    for part, values, expected in _draw(plan, trial, trial.seed, rows, models, honest):
        sketch = sketch or _sketch(expected)
        if sensitivity is not None:
            continue
        cast = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in values]
        with torch.no_grad():
            for name, output in cheats.answers(plan.problem.id, reference.model, cast, trial.kind):
                cheat(name, [output])
        cheat("zeros", [torch.zeros_like(r) for r in expected])
        others = reference(plan.chunk(part, trial.seed + OTHER_SEED, reference.device, trial.stress))
        cheat("stale", others)
        means.add(expected, others)
    some = next(iter(honest.values()))
    share = sum(d.zeros for d in some) / max(1, sum(d.elements for d in some))
    furthest = {name: worst(d) for name, d in honest.items()}
    drawn = draws(plan, spec)
    for number in range(1, drawn):
        again = {name: [Distance() for _ in range(count)] for name in honest}
        for _ in _draw(plan, trial, trial.seed + number * DRAW_STEP, rows, models, again):
            pass
        for name, known in furthest.items():
            known |= {key: max(value, known.get(key, value)) for key, value in worst(again[name]).items()}
    honest_values = {name: _short(known) for name, known in furthest.items()}
    found: dict[str, Any] = {"seed": trial.seed, "stress": trial.stress, "weights_sha256": state.sha256}
    if sensitivity is None:
        sensitivity = _short(worst(cheated["stale"]))["rel_l2"]
        analytic = {name: _short(values) for name, values in means.distances().items()}
        found["cheats"] = analytic | {n: _short(worst(d)) | {"legacy": d[0].legacy} for n, d in cheated.items()}
    zero = zero_limit(honest_values, share)
    limit = {name: _short(limits(v, name, sensitivity)) | zero for name, v in honest_values.items()}
    return {"cheats": {}} | found | {
        "sensitivity": sensitivity,
        "zero_share": float(f"{share:.4g}"),
        "draws": drawn,
        "honest": honest_values,
        "limits": limit,
        "sketch": sketch,
    }  # fmt: skip


def _short(values: dict[str, float]) -> dict[str, float]:
    """Round to six digits, which makes a fixture a quarter smaller."""
    return {name: float(f"{value:.6g}") for name, value in values.items()}


def _add(distances: list[Distance], outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for distance, output, reference in zip(distances, outputs, expected, strict=True):
        distance.add(output, reference)


def build(problem: Problem, device: torch.device, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Measure one fixture on `device`. Raises JudgeError if the problem file is at fault."""
    begin = time.monotonic()
    plan = inputs.plan(problem)
    native = inputs.weights(problem, plan.module)
    perturbed: Weights | None = None
    classes = CLASSES[problem.dtype]
    spec = output_spec(plan, native)
    models = {name: Reference(plan, native, device, name) for name in ("fp64", *classes)}
    measured: dict[str, Any] = {}
    neighbour: dict[str, Any] = {"reason": "no neighbouring shape is known for this problem"}
    skipped = {kind: why for kind, why in trials.kinds(plan).items() if why}
    for trial in trials.make(plan, public=True, count_native=1):
        progress(f"{problem.key}: {trial.kind}")
        if trial.perturbed and perturbed is None:
            perturbed = trials.perturbed_weights(plan, device)
        state = perturbed if trial.perturbed and perturbed is not None else native
        like = measured.get("perturbed" if trial.perturbed else "native", {}).get("sensitivity")
        if trial.neighbour:
            neighbour = _neighbour(problem, trial, state, models, like)
        else:
            known = like if trial.kind in SHARED else None
            measured[trial.kind] = _measure(plan, trial, state, spec, models, known)
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
        "neighbour": neighbour,
        **separation(measured, classes),
        "reference_timing": _eager_ms(plan, models[classes[0]], native, device),
    }
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return fixture | {"build_s": round(time.monotonic() - begin, 3)}


def _neighbour(
    problem: Problem, trial: trials.Trial, state: Weights, models: dict[str, Reference], sensitivity: float
) -> dict[str, Any]:
    """Measure the limits at the neighbouring shape. They only inform, so cheats are not measured."""
    other = problem.neighbouring()
    assert other is not None
    plan = inputs.plan(other)
    found = _measure(plan, trial, state, output_spec(plan, state), models, sensitivity)
    left_out = ("cheats", "sketch")
    return {"overrides": problem.neighbour} | {name: value for name, value in found.items() if name not in left_out}


def _eager_ms(plan: Plan, reference: Reference, state: Weights, device: torch.device, calls: int = 7) -> dict[str, Any]:
    """Return the median of a few eager calls in ms, for orientation: no speedup divides by it."""
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
