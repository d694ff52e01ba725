"""What suites.toml says by hand of the shipped problems, derived for any KernelBench file by running it.

Batch dimension, signal of the published weights and stress come from runs in fp64 at a reduced size on the _CPU, work
from a run on the meta device at the problem's own size.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from repro.errors import JudgeError, NoFunction, PrerequisiteError
from repro.inputs.stress import Stress
from repro.problems import meta, sizes
from repro.problems import plan as inputs
from repro.problems.catalogue import Problem, Work
from repro.problems.meta import Outputs

_Chosen = tuple[int, ...]  # the inputs that are split, by index
_SEED, _CPU = 20251121, torch.device("cpu")
# Rows of a chunk agree with the whole within this share of the largest element: fp64 sums in another order.
_ROUNDING = 1e-9
# Inputs whose rows take more than this in fp64 are split along a second batch dimension too.
_ROW_BYTES = 100 << 20
# Published weights carry no signal if every output is smaller than the first, or if another draw of the inputs changes
# the output relatively by less than the second.
_DEAD, _BLIND = 1e-12, 1e-6
# Relative change of the output by another draw of signed inputs that is enough; deviations and runs that are tried.
_ENOUGH = 0.02
_DEVIATIONS = (1.0, 4.0, 0.25, 16.0, 0.03125)
# Equal elements in a row of signed images, as a part of an image's plane: networks that average over an image hardly
# react to independent pixels.
_PLANE_PART = 8
# Elements of an input that are changed one at a time to see whether the output depends on all of them.
_ASKED = 24


class _Reduced:
    """A problem at its reduced size, run in fp64 on the CPU."""

    def __init__(self, problem: Problem) -> None:
        """Raises ProblemError where the file does not run, PrerequisiteError where no reduced size is known."""
        own = replace(
            problem, overrides={}
        )  # what is derived at small sizes does not depend on the sizes that were given
        at = problem if problem.size == "smoke" else own.at(sizes.derive(own).overrides)
        self.problem = replace(at, size="smoke", work=None)
        self.plan = inputs.plan(self.problem)
        with torch.random.fork_rng(devices=[]):
            self.model = inputs.build(self.problem, self.plan.module, self.problem.init_inputs(self.plan.module))
        self.model.double()

    def draw(self, seed: int = _SEED, stress: Stress | None = None, run: int = 1) -> list[Any]:
        """Return the inputs in fp64."""
        plan = replace(self.plan, problem=replace(self.problem, stress_run=run))
        return [meta.cast(x, torch.float64) for x in plan.make(seed, _CPU, stress=stress)]

    def run(self, values: list[Any]) -> Any:
        """Return what the Model returns in fp64, also where it names a precision."""
        with meta.Widened(torch.float64):
            return self.model(*values)

    def __call__(self, values: list[Any], seed: int = _SEED) -> Outputs:
        """Return the output's tensors in fp64. seed: of torch's own generator. Raises ProblemError."""
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                value = self.run([x.clone() if isinstance(x, torch.Tensor) else x for x in values])
        except Exception as error:
            what, remedy = f"Model of {self.problem.file_name} fails in fp64", "Let it take inputs of any precision."
            raise self.problem.fault(what, error, remedy) from error
        return [x.double() for x in meta.tensors(value)]


def relative_change(a: Outputs, b: Outputs) -> float:
    """Return the relative L2 distance of two lists of outputs; NaN and infinities count as 0."""
    pairs = [(x.nan_to_num(0.0, 0.0, 0.0), y.nan_to_num(0.0, 0.0, 0.0)) for x, y in zip(a, b, strict=True)]
    norm = math.sqrt(sum(float(x.square().sum()) for x, _ in pairs))
    error = math.sqrt(sum(float((x - y).square().sum()) for x, y in pairs))
    return error / norm if norm else math.inf if error else 0.0


# -- the batch ---------------------------------------------------------------------------------------------------------


def batch(reduced: _Reduced, full: inputs.Plan) -> tuple[_Chosen, int]:
    """Return the inputs that share leading dimensions with every output, and how many dimensions; ((), 1) for none.

    Probed: rows from the middle and the end, computed alone, are the rows of the whole. A second dimension is taken
    where a row of the first is large at full size.
    """
    whole_inputs = reduced.draw()
    whole = reduced(whole_inputs)
    split: tuple[_Chosen, int] = (), 1
    for dims in (1, 2):
        chosen = next(
            (c for c in _candidates(reduced, whole, dims) if _splits(reduced, whole_inputs, whole, c, dims)), ()
        )
        if not chosen or any(full.recipes[i] is None for i in chosen):
            break
        split = chosen, dims
        row = sum(8 * math.prod(full.spec[i][0][dims:]) for i in chosen)
        if row <= _ROW_BYTES:
            break
    return split


def _candidates(reduced: _Reduced, whole: Outputs, dims: int) -> Iterator[_Chosen]:
    """Yield sets of inputs that may be split along the leading dimensions of the outputs, the largest first."""
    if not whole or any(x.dim() < dims for x in whole):
        return
    leading = tuple(whole[0].shape[:dims])
    if math.prod(leading) < 2 or any(tuple(x.shape[:dims]) != leading for x in whole):
        return
    plan = reduced.plan
    able = [i for i in plan.tensors if plan.recipes[i] is not None and tuple(plan.spec[i][0][:dims]) == leading]
    for count in range(len(able), 0, -1):
        yield from itertools.combinations(able, count)


def _splits(reduced: _Reduced, values: list[Any], whole: Outputs, chosen: _Chosen, dims: int) -> bool:
    rows = math.prod(whole[0].shape[:dims])
    for part in (slice(rows - 1, rows), slice(rows // 2, min(rows, rows // 2 + 2)), slice(0, 1)):
        taken = [x.flatten(0, dims - 1)[part].view(-1, *[1] * (dims - 1), *x.shape[dims:]) if i in chosen else x
                 for i, x in enumerate(values)]  # fmt: skip
        try:
            outputs = reduced(taken)
        except JudgeError:
            return False
        for ours, theirs in zip(outputs, whole, strict=True):
            due = theirs.flatten(0, dims - 1)[part]
            if ours.numel() != due.numel():
                return False
            error = _ROUNDING * float(theirs.nan_to_num(0.0, 0.0, 0.0).abs().max())
            if not torch.allclose(ours.reshape(due.shape), due, rtol=0.0, atol=error, equal_nan=True):
                return False
    return True


# -- what a Model may not do -------------------------------------------------------------------------------------------


def _require_function(reduced: _Reduced) -> None:
    """Raises NoFunction where the output is none of inputs and weights: nothing can be compared then."""
    values, name = reduced.draw(), reduced.problem.key
    if not _same(meta.tensors(values), meta.tensors(reduced.draw())):
        raise NoFunction(f"get_inputs() of {name} is not repeatable", "the same seed gives other values",
                         "Draw by torch, numpy or random.")  # fmt: skip
    random = NoFunction(f"Model of {name} draws random numbers", "its output is no function of its inputs")
    try:
        first, again, other = (reduced(values, seed) for seed in (_SEED, _SEED, _SEED + 1))
    except JudgeError:  # drawn in float32, they may not go with fp64
        reduced.model.float()
        single = [meta.cast(x, torch.float32) for x in values]
        if not _same(reduced(single), reduced(single, _SEED + 1)):
            raise random from None
        raise
    if not _same(first, again):
        raise NoFunction(f"Model of {name} keeps state", "a second call on the same inputs returns something else")
    if not _same(first, other):
        raise random
    shapes = [[tuple(x.shape) for x in outputs] for outputs in (first, reduced(reduced.draw(_SEED + 1)))]
    if shapes[0] != shapes[1]:
        raise NoFunction(f"Model of {name} returns shapes that depend on values", f"{shapes[0]}, then {shapes[1]}",
                         "Let them depend on shapes alone, as of padded tensors.")  # fmt: skip


def _same(a: Outputs, b: Outputs) -> bool:
    return len(a) == len(b) and all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(a, b, strict=True))


# -- signal and stress -------------------------------------------------------------------------------------------------


def signal(reduced: _Reduced) -> bool:
    """Return whether the published inputs and weights carry a signal, or there are no weights that others could."""
    ours, others = reduced(reduced.draw()), reduced(reduced.draw(_SEED + 1))
    largest = max((float(x.nan_to_num(0.0, 0.0, 0.0).abs().max()) for x in ours if x.numel()), default=0.0)
    able = any(True for _ in reduced.model.parameters())
    return not able or (largest > _DEAD and relative_change(ours, others) > _BLIND)


def stress(reduced: _Reduced, *, signal: bool) -> tuple[Stress, bool]:
    """Return the stress that shows the inputs in the output, and whether images have runs of equal elements.

    Maxima over windows have the negated published inputs, which show padding by 0. signal: of the published weights;
    without one, nothing can be measured with them, and images have runs.
    """
    if any("MaxPool" in type(m).__name__ for m in reduced.model.modules()) and len(list(reduced.model.modules())) <= 2:
        return "negative", False
    plane = _run_of(reduced.plan)
    if not signal:
        return 1.0, plane > 1
    best: tuple[float, float, bool] = 0.0, 1.0, False
    for run, deviation in itertools.product(dict.fromkeys((1, plane)), _DEVIATIONS):
        with contextlib.suppress(JudgeError):
            outputs = [reduced(reduced.draw(_SEED + add, deviation, run)) for add in (0, 1)]
            if all(bool(torch.isfinite(x).all()) for x in outputs[0]):
                best = max(best, (relative_change(*outputs), deviation, run > 1), key=lambda tried: tried[0])
        if best[0] >= _ENOUGH:
            break
    return (best[1], best[2]) if best[0] else (1.0, False)


def _run_of(plan: inputs.Plan) -> int:
    """Return how many equal elements follow each other in signed images of this size; 1 without an image."""
    planes: list[int] = [math.prod(plan.spec[i][0][-2:]) for i in plan.tensors if len(plan.spec[i][0]) >= 4]
    return max([1, *(plane // _PLANE_PART for plane in planes)])


# -- work --------------------------------------------------------------------------------------------------------------


def work(plan: inputs.Plan, reduced: _Reduced) -> Work:
    """Return compulsory traffic and counted arithmetic at the problem's own size. Raises JudgeError.

    Inputs count by the share of their elements that the output depends on, weights and outputs once. None of the
    arithmetic is certain: a product with a diagonal matrix, or a sum over a linear layer, needs much less than counted.
    """
    measured, shares = sizes.measure(plan.problem), _read_shares(reduced)
    read = sum(int(shares.get(i, 1.0) * math.prod(plan.spec[i][0])) for i in plan.tensors)
    return Work(read + measured.weights, measured.output_elements, measured.flop, 0.0)


def _read_shares(reduced: _Reduced) -> dict[int, float]:
    """Return the share of every tensor input's elements that the output depends on.

    Asked of a sample of elements, each changed alone.
    """
    values = reduced.draw()
    whole = reduced(values)
    shares = {}
    for i in reduced.plan.tensors:
        count = values[i].numel()
        places = {int(n * (count - 1) / (_ASKED - 1)) for n in range(_ASKED)} if count else set()
        shares[i] = sum(_matters(reduced, values, whole, i, place) for place in places) / max(1, len(places))
    return shares


def _matters(reduced: _Reduced, values: list[Any], whole: Outputs, i: int, place: int) -> bool:
    original = values[i]
    for value in (1e3, -1e3) if original.is_floating_point() else (0, 1):
        changed = original.clone()
        changed.view(-1)[place] = value
        with contextlib.suppress(JudgeError):
            if not _same(reduced([*values[:i], changed, *values[i + 1 :]]), whole):
                return True
    return False


def complete(problem: Problem) -> Problem:
    """Return a problem with all that is derived for it. What cannot be derived stays as it is for any file.

    Raises ProblemError where the file does not run, NoFunction where its output is none of its inputs.
    """
    try:
        reduced = _Reduced(problem)
    except PrerequisiteError:
        return problem
    init = problem.init_inputs(reduced.plan.module)
    meta.output_spec(reduced.plan, inputs.Weights(init, {}))
    _require_function(reduced)
    full = inputs.plan(problem)
    alive = signal(reduced)
    derived = replace(problem, native_signal=alive)
    chosen, dims = batch(reduced, full)
    level, planar = stress(reduced, signal=alive)
    if problem.size == "full":
        with contextlib.suppress(JudgeError):
            derived = replace(derived, work=work(full, reduced))
    writes, aliases = meta.liberties(reduced.plan, init)
    derived = replace(derived, writes_inputs=writes, aliases_input=aliases)
    return replace(derived, batch_inputs=chosen, batch_dims=dims, stress=level,
                   stress_run=_run_of(full) if planar else 1)  # fmt: skip
