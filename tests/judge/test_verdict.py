"""The judge's parts one by one, its fixtures at smoke size, and answers without work through the real worker."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import series, smoke_problem
from torch import nn

from repro.errors import (
    JudgeError,
    SolutionDied,
    SolutionError,
    SolutionRejected,
    SolutionTimeout,
    printable_lines,
)
from repro.fixtures import calibration
from repro.inputs import stress as stresses
from repro.judge import verdict
from repro.judge.correctness import distance as metric
from repro.judge.correctness import input_cases, output_checks, tolerances
from repro.judge.correctness import reference as reference_module
from repro.judge.correctness.distance import Distance
from repro.judge.correctness.precision import TF32Operands, exact_float32, round_mantissa
from repro.judge.implementation import Implementation
from repro.judge.processes.client import WorkerProcess
from repro.judge.processes.wire import (
    MAX_LINE_BYTES,
    MOST_LEVELS,
    Channel,
    ChannelClosed,
    ChannelGarbage,
    ChannelTimeout,
)
from repro.judge.timing import roofline, sampling
from repro.judge.timing.experiment import Experiment
from repro.judge.worker import outputs
from repro.problems import catalogue, meta
from repro.problems import plan as inputs
from repro.problems.catalogue import Problem
from repro.records.fixture import Fixture, FixtureRecord, Limited, TrialLimits
from repro.records.result import Ceilings, Timing
from repro.records.verdict import Ratio
from repro.system import jsonio
from repro.system.jsonio import Json

CPU = torch.device("cpu")
KEYS = [p.key for suite in catalogue.suites() for p in catalogue.suite(suite, size="smoke")]
# One key a problem: the agent study's where a problem is in both suites.
ONCE = [key for key in KEYS if key.partition("@")[0] not in KEYS[: KEYS.index(key)]]
QUICK = ("L1_36", "L1_97", "L1_77@bf16", "L2_84", "L3_43")


def slow_key(key: str):
    """A problem as a parameter; `make test` takes one of each kind."""
    return key if key in QUICK else pytest.param(key, marks=pytest.mark.slow)


def reference_of(problem: Problem) -> tuple[Any, Any, Any]:
    """Its plan, its published weights, and the fp64 reference with these."""
    plan = inputs.plan(problem)
    published = inputs.weights(problem, plan.module)
    return plan, published, reference_module.Reference(plan, published, CPU)


def written(problem: Problem) -> tuple[Any, Any]:
    """Its plan, and the spec of its output."""
    plan = inputs.plan(problem)
    return plan, meta.output_spec(plan, inputs.weights(problem, plan.module))


# -- metric


def distance(output: torch.Tensor, reference: torch.Tensor) -> Distance:
    found = Distance()
    found.add(output, reference)
    found.settle()
    return found


@pytest.fixture
def reference():
    """100 rows of 50 values of root mean square 1."""
    x = torch.randn(100, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return x / x.square().mean().sqrt()


def test_an_equal_output_is_at_distance_zero(reference):
    found = distance(reference.clone(), reference)
    assert found.values() == {"rel_l2": 0.0, "max": 0.0, "row": 0.0, "bias": 0.0}
    assert found.legacy == {"allclose_1e-2": True, "allclose_1e-4": True}


def test_the_metric_does_not_depend_on_scale(reference):
    output = reference * 1.01
    tiny = distance(output * 1e-20, reference * 1e-20).values()
    assert tiny == pytest.approx(distance(output, reference).values())
    assert tiny["rel_l2"] == pytest.approx(0.01)


def test_one_destroyed_element_shows_in_the_maximum(reference):
    """Off by 10 deviations: relative L2 of 5000 elements is 0.14 and says little, the maximum is 10."""
    output = reference.clone()
    output[3, 4] += 10
    found = distance(output, reference).values()
    assert 0 < found.pop("bias") < 10 / metric.FEWEST
    assert found == pytest.approx({"rel_l2": 10 / math.sqrt(5000), "max": 10.0, "row": 10 / math.sqrt(50)})


def test_an_approximation_shows_in_the_mean_error_of_its_magnitude_and_rounding_does_not():
    """x sigmoid(1.702 x) for GELU: 0.02 at most. Rounding to bf16 has a larger relative L2 error than its bias."""
    x = torch.randn(1 << 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    gelu = torch.nn.functional.gelu(x)
    near = distance(x * torch.sigmoid(1.702 * x), gelu).values()
    rounded = distance(gelu.bfloat16(), gelu).values()
    assert near["rel_l2"] < 0.02 and near["bias"] > 2 * tolerances.BIAS_FLOOR["bf16"]
    assert rounded["bias"] < 0.2 * tolerances.BIAS_FLOOR["bf16"]


@pytest.mark.parametrize(("followed", "expected"), [(0.0, 1.0), (1.0, 0.0), (0.5, 0.5)])
def test_an_output_that_misses_a_change_of_its_inputs_has_an_edit_of_one(reference, followed, expected):
    """Of the elements that change clearly alone, so that it does not depend on how many others there are."""
    after = reference.clone()
    after[7] += 3
    found = distance(reference + followed * (after - reference), after)
    assert "edit" not in found.values()
    found.change.add(reference + followed * (after - reference), after, reference)
    assert found.values()["edit"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tf32", "edit", "limited"),
    [(4e-4, 0.01, ["fp32", "tf32", "bf16"]), (4e-4, 0.5, ["fp32", "bf16"]), (0.01, 0.01, ["fp32", "bf16"]),
     (0.5, 0.01, ["bf16"])],
)  # fmt: skip
def test_a_probe_limits_the_classes_whose_honest_error_is_bounded(tf32, edit, limited):
    """And none that is more precise than one whose error is out of all bounds: single comparisons decide there."""
    honest = {"fp32": 1e-7, "tf32": tf32, "bf16": 4e-3}
    values = {name: {"rel_l2": x, "max": x, "row": x, "bias": x / 10, "edit": 0.01} for name, x in honest.items()}
    values["tf32"]["edit"] = edit
    found = tolerances.probe_limits(values, {})
    assert [name for name, limits in found.items() if limits] == limited
    assert all(limits["edit"] == tolerances.EDIT_LIMIT for limits in found.values() if limits)


def test_one_destroyed_row_shows_in_the_row_guard(reference):
    output = reference.clone()
    output[7] = 0
    found = distance(output, reference).values()
    norm = float(reference[7].norm())
    assert found["row"] == pytest.approx(norm / math.sqrt(50)) and found["row"] > 0.7
    assert found["rel_l2"] == pytest.approx(norm / math.sqrt(5000)) and found["rel_l2"] < 0.15


@pytest.mark.parametrize("hole", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("name", "column"), [("reference", 0), ("zeroed", 30)])
def test_non_finite_output_needs_a_non_finite_reference(name, column, hole, request):
    """Among values, and in a region of zeros."""
    expected = request.getfixturevalue(name)
    output = expected.clone()
    output[0, column] = hole
    found = distance(output, expected)
    assert set(found.values().values()) == {math.inf}
    assert not found.finite and not any(found.legacy.values())


@pytest.mark.parametrize("hole", [math.nan, math.inf, -math.inf])
def test_where_both_are_not_finite_the_rest_still_counts(reference, hole):
    """An infinity in the reference must not swallow every error, nor a NaN make an honest output fail."""
    expected = reference.clone()
    expected[0, 0] = hole
    assert set(distance(expected.clone(), expected).values().values()) == {0.0}
    wrong = expected.clone()
    wrong[1:] = 0
    assert distance(wrong, expected).values()["rel_l2"] > 0.9
    for different in (1.0, -hole):
        other = expected.clone()
        other[0, 0] = different
        assert math.isnan(different) or set(distance(other, expected).values().values()) == {math.inf}
    assert distance(expected.clone(), expected).legacy["allclose_1e-2"] is (not math.isnan(hole)), "as torch.allclose"


def test_a_zero_reference_admits_only_zero():
    zero = torch.zeros(4, 5, dtype=torch.float64)
    assert distance(zero.clone(), zero).values()["rel_l2"] == 0.0
    assert set(distance(zero + 1e-30, zero).values().values()) == {math.inf}


@pytest.fixture
def zeroed(reference):
    """As `reference`, but the last 40 of 50 columns are exactly 0; the other values keep root mean square 1."""
    expected = reference.clone()
    expected[:, 10:] = 0
    return expected / expected[:, :10].square().mean().sqrt()


def test_garbage_in_a_region_of_zeros_shows_in_a_guard_of_its_own(zeroed):
    """In units of the other elements, however large the region is; `max` stays what it was, over all elements."""
    output = zeroed.clone()
    output[3, 20] = -0.01
    found = distance(output, zeroed)
    assert found.values()["zero"] == pytest.approx(0.01) and found.zeros == 0.8 * found.elements
    assert found.values()["max"] == pytest.approx(0.01 * 5**0.5)
    output[3, 20], output[3, 5] = 0, 7
    assert distance(output, zeroed).values()["zero"] == 0.0, "errors elsewhere are not its business"
    assert distance(zeroed.clone(), zeroed).values() == {"rel_l2": 0.0, "max": 0.0, "row": 0.0, "zero": 0.0}


def test_nothing_compared_is_never_right():
    assert set(Distance().values().values()) == {math.inf}


@pytest.mark.parametrize("slice_elements", [1, 7, 100, 1 << 22])
@pytest.mark.parametrize("steps", [(100,), (1, 99), (33, 33, 34)])
@pytest.mark.parametrize("name", ["reference", "zeroed"])
def test_chunked_equals_whole(name, steps, slice_elements, monkeypatch, request):
    """Neither chunks of rows nor slices of columns change the sums; nor in a region of zeros."""
    reference = request.getfixturevalue(name)
    output = (reference + 0.01 * reference.roll(1)).float()
    output[42, 42] += 3
    whole = distance(output, reference)
    monkeypatch.setattr(metric, "SLICE_ELEMENTS", slice_elements)
    found, start = Distance(), 0
    for step in steps:
        found.add(output[start : start + step], reference[start : start + step])
        start += step
    assert found.values() == pytest.approx(whole.values(), rel=1e-12)
    assert (found.legacy, found.rows, found.elements, found.zeros) == (whole.legacy, 100, 5000, whole.zeros)


@pytest.mark.parametrize("shape", [(), (7,), (7, 3, 2, 2), (1, 1)])
def test_outputs_of_any_rank_are_measured(shape):
    expected = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 1
    assert distance(expected * 1.5, expected).values()["rel_l2"] == pytest.approx(0.5)


def test_legacy_is_torch_allclose(reference):
    """Reported beside the verdict for comparison with published numbers, never decisive."""
    for error in (0.009, 0.011, 9e-5, 1.1e-4):
        output = reference + error * (1 + reference.abs())
        found = distance(output, reference).legacy
        for name, tolerance in (("allclose_1e-2", 1e-2), ("allclose_1e-4", 1e-4)):
            assert found[name] == torch.allclose(output, reference, rtol=tolerance, atol=tolerance), (error, name)


def test_score_is_the_worst_guard_and_knows_no_guard_as_failure():
    bounds = {"rel_l2": 0.1, "max": 1.0, "row": 1.0}
    assert metric.score({"rel_l2": 0.05, "max": 2.0, "row": 0.1}, bounds) == 2.0
    assert metric.score({}, bounds) == math.inf
    assert not metric.score({"rel_l2": math.nan, "max": 0.0, "row": 0.0}, bounds) <= 1, "NaN must not pass"
    first, second = Distance(), Distance()
    first.add(torch.full((2, 2), 1.1), torch.ones(2, 2, dtype=torch.float64))
    second.add(torch.full((2, 2), 1.5), torch.ones(2, 2, dtype=torch.float64))
    assert metric.joined([first.values(), second.values()])["rel_l2"] == pytest.approx(0.5)


def test_values_from_before_the_zero_guard_still_score():
    """A limit on a guard that was not measured is not held against an output."""
    bounds = {"rel_l2": 0.1, "max": 1.0, "row": 1.0}
    old = {"rel_l2": 0.05, "max": 0.5, "row": 0.1}
    assert metric.score(old, bounds | {"zero": 1e-6}) == metric.score(old, bounds) == 0.5
    assert metric.score(old | {"zero": 1e-3}, bounds) == 0.5
    assert metric.score(old | {"zero": 1e-3}, bounds | {"zero": 1e-6}) == pytest.approx(1000)


DIGESTED = ["float32", "bfloat16", "float16", "float64", "int64", "int32", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DIGESTED)
def test_digests_see_every_bit_its_place_and_the_length(dtype):
    x = torch.randint(0, 2 if dtype == "bool" else 99, (1000,), generator=torch.Generator().manual_seed(5))
    x = x.to(getattr(torch, dtype))
    x[0], x[7] = 1, 0
    swapped = x.clone()
    swapped[0], swapped[7] = 0, 1
    bits = x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])
    flipped = []
    for bit in range(8 * x.element_size() - 1 if dtype != "bool" else 1):
        other = bits.clone()
        other[500] ^= 1 << bit
        flipped.append(metric.digest(other))
    zeros = torch.zeros_like(x)
    found = list(map(metric.digest, (x, swapped, x[:999], torch.cat([x, zeros[:1]]), zeros, zeros[:999])))
    assert len({*found, *flipped}) == len(found) + len(flipped)
    assert metric.digest(x) == metric.digest(x.clone()) == metric.digest(bits) and 0 <= metric.digest(x) < 1 << 64


def test_digests_tell_negative_zero_and_dtypes_apart():
    x = torch.arange(100, dtype=torch.float32)
    negative = x.clone()
    negative[0] = -0.0
    assert len(set(map(metric.digest, (x, negative, x.bfloat16(), x.to(torch.uint8))))) == 4


def test_small_differences_do_not_cancel_in_a_digest():
    """One step up, two down, one up: what a sum with weights that grow evenly would not see."""
    x = torch.zeros(64, dtype=torch.int32)
    y = x.clone()
    y[[3, 6]] += 1
    y[[4, 5]] -= 1
    assert metric.digest(x) != metric.digest(y)


def test_digests_do_not_depend_on_layout_or_on_pieces(monkeypatch):
    x = torch.randn(40, 250, generator=torch.Generator().manual_seed(6)).bfloat16()
    whole = metric.digest(x)
    assert metric.digest(x.t().contiguous().t()) == whole and metric.digest(torch.tensor(3.0)) > 0
    monkeypatch.setattr(metric, "DIGEST_STEP", 333)
    assert metric.digest(x) == whole


@pytest.mark.gpu
def test_digests_on_the_gpu_are_those_of_the_cpu():
    x = torch.randn(1 << 20, generator=torch.Generator().manual_seed(7))
    for value in (x, x.bfloat16(), x.double(), x > 0):
        assert metric.digest(value.cuda()) == metric.digest(value)


# -- limits


def even(value: float) -> dict[str, float]:
    return {"rel_l2": value, "max": value, "row": value}


@pytest.mark.parametrize(
    "honest, klass, sensitivity, expected",
    [
        (1e-7, "fp32", 1.0, 5e-6),  # the floor: honest kernels sum in other orders
        (2e-6, "fp32", 1.0, 8e-6),  # four times the honest error
        (1e-5, "fp32", 1.0, 2e-5),  # the cap
        (1.9e-2, "bf16", 1.0, 1.5 * 1.9e-2),  # an honest kernel near the cap keeps headroom
        (1e-3, "bf16", 0.02, 0.35 * 0.02),  # an output must follow its inputs
        (6e-3, "bf16", 0.02, 2e-2),  # no room for that guard beside the honest error
        (1e-7, "fp32", 0.0, 5e-6),
    ],
)
def test_limits_follow_the_honest_error(honest, klass, sensitivity, expected):
    found = tolerances.limits(even(honest), klass, sensitivity)
    assert found["rel_l2"] == pytest.approx(expected)
    assert found["max"] == found["row"] == pytest.approx(8 * max(honest, expected))


DRAWN = {"seed": 0, "stress": None, "weights_sha256": "0" * 64}


def trial_of(honest: float, cheats: dict[str, float]) -> TrialLimits:
    return TrialLimits(
        **DRAWN, honest={"bf16": even(honest)}, cheats={name: even(value) for name, value in cheats.items()},
        limits={"bf16": {"rel_l2": 0.01, "max": 0.08, "row": 0.08}},
    )  # fmt: skip


def test_separation_takes_each_cheats_worst_trial_and_the_worst_honest_one():
    measured = {
        "native": trial_of(0.004, {"zeros": 0.02, "stale": 0.5}),
        "stress": trial_of(0.008, {"zeros": 1.0, "stale": 0.1}),
    }
    found = tolerances.separation(measured, ("bf16",))
    assert found.best_cheat == "stale" and found.best_cheat_score == pytest.approx(50)
    assert found.worst_honest_score == pytest.approx(0.8) and found.margin == pytest.approx(50 / 0.8)
    assert found.refused == ""


def test_separation_refuses_a_cheat_that_passes_and_a_margin_that_is_too_small():
    passes = tolerances.separation({"native": trial_of(0.004, {"mine": 0.009})}, ("bf16",))
    assert passes.refused == "the cheat 'mine' passes every trial"
    timed = {"native": trial_of(0.004, {"zeros": 0.009}), "stress": trial_of(0.004, {"zeros": 1.0})}
    assert tolerances.separation(timed, ("bf16",)).refused == "", "stressed inputs show the cheat"
    assert tolerances.separation(timed, ("bf16",)).timed == "stress"
    timed = {"native": timed["native"], "spiked": timed["stress"]}
    assert "passes on the inputs that are timed" in tolerances.separation(timed, ("bf16",)).refused
    narrow = tolerances.separation({"native": trial_of(0.009, {"zeros": 0.013})}, ("bf16",))
    assert narrow.margin < tolerances.MIN_MARGIN and "margin" in narrow.refused
    exact = tolerances.separation({"native": trial_of(0.0, {"zeros": 1.0})}, ("bf16",))
    assert exact.margin == pytest.approx(400), "an exact answer has a finite margin"


@pytest.mark.parametrize(
    "share, fp32, bf16, limited",
    [
        (0.88, 0.0, 1e-7, True),
        (0.01, 1e-6, 0.0, True),
        (0.009, 0.0, 0.0, False),  # too few to be a region
        (0.5, 1e-7, 1e-4, False),  # an honest kernel writes something there
        (0.5, 1e-7, None, False),  # not measured
    ],
)
def test_zeros_are_held_to_zero_where_honest_kernels_leave_them_so(share, fp32, bf16, limited):
    honest = {"fp32": even(1e-7) | {"zero": fp32}, "bf16": even(1e-3) | ({} if bf16 is None else {"zero": bf16})}
    assert tolerances.zero_limit(honest, share) == ({"zero": 1e-6} if limited else {})


def test_separation_reports_the_margin_of_every_class_by_its_own_limits():
    """A cheat may be far outside bf16 and close to tf32's honest kernels, or measured on one trial alone."""
    trial = TrialLimits(
        **DRAWN, honest={"tf32": even(0.0005), "bf16": even(0.008)},
        cheats={"near": even(0.02), "far": even(1.0)},
        limits={"tf32": even(0.001), "bf16": even(0.01)},
    )  # fmt: skip
    spiked = trial.model_copy(update={"cheats": {}})
    found = tolerances.separation({"native": trial, "spiked": spiked}, ("tf32", "bf16"))
    assert found.margins == pytest.approx({"tf32": 20 / 0.5, "bf16": 2 / 0.8})
    assert found.margin == pytest.approx(found.margins["bf16"]) and found.best_cheat == "near"


def made_fixture(**classes: float) -> Fixture:
    """A fixture with one limit a class, the same for all guards and both trial kinds."""
    trial = Limited(stress=None, limits={name: even(value) for name, value in classes.items()})
    dtype, trials = "float32" if "fp32" in classes else "bfloat16", {"native": trial, "stress": trial}
    sha256 = "0" * 64
    return Fixture(
        problem_sha256=sha256, weights_sha256=sha256, dtype=dtype, trials=trials, margin=2.0, refused=""
    )  # fmt: skip


FIXTURE = made_fixture(fp32=1e-5, tf32=1e-3, bf16=1e-2)


def with_trial(fixture: Fixture, kind: str, needed: dict[str, float] | None = None, **limits: Any) -> Fixture:
    """The fixture with other limits for one trial kind, or with one more kind."""
    trial = Limited(stress=None, limits=limits, needed=needed or {})
    return fixture.model_copy(update={"trials": fixture.trials | {kind: trial}})


def test_the_class_is_the_most_precise_one_that_every_trial_meets():
    for native, stress, expected in (
        (1e-6, 1e-6, "fp32"),
        (1e-6, 9e-4, "tf32"),
        (9e-3, 1e-6, "bf16"),
        (1e-6, 2e-2, None),
        (math.nan, 1e-6, None),
        (1e-6, math.inf, None),
    ):
        found = tolerances.class_of({"native": [even(1e-6), even(native)], "stress": [even(stress)]}, FIXTURE)
        assert found == expected, (native, stress)
    assert tolerances.class_of({}, FIXTURE) is None, "nothing judged is nothing passed"


@pytest.mark.parametrize(("native", "klass"), [(1e-6, "fp32"), (0.15, "bf16"), (0.25, None)])
def test_a_refused_class_takes_no_error_that_its_own_kernel_has_not(native, klass):
    """It has no limits where its kernel picks other elements: on the other inputs a softmax may hide the mistake."""
    fixture = with_trial(FIXTURE, "native", {"bf16": 0.2}, fp32=even(1e-5), tf32=even(1e-3), bf16={})
    fixture = fixture.model_copy(update={"refused_classes": {"bf16": "it needs a wide limit"}})
    distances = {"native": [even(native)], "stress": [even(1e-6 if klass == "fp32" else 5e-3)]}
    assert tolerances.class_of(distances, fixture, refused=True) == klass
    assert tolerances.class_of(distances, fixture, refused=True, trusted=True) == (klass or "bf16")


@pytest.mark.parametrize(
    ("native", "offset", "of_tf32", "of_bf16", "klass"),
    [
        (1e-6, 5e-4, {}, 1e-2, "fp32"),
        (1e-6, 1e-2, {}, 1e-2, "tf32"),
        (1e-6, 0.5, {}, 1e-2, None),
        (1e-6, math.nan, {}, 1e-2, None),
        (5e-4, 0.5, {}, 1e-2, "tf32"),
        (5e-4, 1e-2, even(1e-3), 1e-2, "bf16"),
        (5e-4, 0.5, even(1e-3), 1e-2, None),
        (5e-4, 0.5, even(1e-3), 8e-3, "bf16"),  # a kernel that reads bf16 has no larger error: it may be one
        (5e-3, 0.5, even(1e-3), 1e-2, "bf16"),
    ],
)
def test_a_precise_solution_has_a_cap_where_its_class_has_no_limits(native, offset, of_tf32, of_bf16, klass):
    """A variance as a difference of squares is fp32 until inputs are far from zero; a kernel in tf32 is off there."""
    fixture = made_fixture(fp32=1e-5, tf32=1e-3, bf16=of_bf16)
    fixture = with_trial(fixture, "offset", fp32=even(1e-3), tf32=of_tf32, bf16={})
    assert tolerances.class_of({"native": [even(native)], "offset": [even(offset)]}, fixture) == klass


@pytest.mark.parametrize(("honest", "klass"), [(0.1, None), (0.2, "bf16")])
def test_far_from_an_honest_error_a_class_without_limits_is_lost(honest, klass):
    """As by a softmax without its maximum, whose scores are cut."""
    needed = calibration._needed("offset", {"bf16": even(honest)}, {"bf16": {}})
    fixture = with_trial(made_fixture(bf16=1e-2), "offset", needed, bf16={})
    assert tolerances.class_of({"native": [even(5e-3)], "offset": [even(0.9)]}, fixture) == klass


@pytest.mark.parametrize(
    ("offset", "told"), [(0.1, ["native"]), (0.9, ["native", "offset"]), (math.nan, ["native", "offset"])]
)
def test_the_reasons_are_those_that_keep_a_solution_from_every_class(offset, told):
    """A bf16 kernel off elsewhere read what fp32 allows far from zero, where bf16 has no limits."""
    fixture = with_trial(FIXTURE, "offset", {"bf16": 0.6}, fp32=even(1e-3), tf32={}, bf16={})
    distances = {"native": [even(0.5)], "stress": [even(1e-6)], "offset": [even(offset)]}
    found = verdict.judge(Implementation("mine", None, "Model", [], distances=distances), fixture)
    assert [reason.trial for reason in found.reasons] == told and found.verdict == "incorrect"


def test_a_number_that_is_zero_and_usually_is_not_has_a_distance():
    distance = Distance(usual=1.0)
    distance.add(torch.zeros(1), torch.zeros(1).double())
    assert set(distance.values().values()) == {0.0}


# -- gates

SPEC = {"shape": [4, 6], "dtype": "float32"}
GOOD = {
    "kind": "tensor", "type": "Tensor", "plain": True, "layout": "torch.strided", "dtype": "float32", "shape": [4, 6],
    "dense": True, "device": "cpu", "storage_bytes": 96, "aliases_input": False, "order": [0, 1],
}  # fmt: skip


def test_gates_let_an_honest_description_through():
    output_checks.check(GOOD, SPEC, "cpu")
    output_checks.check({"kind": "sequence", "items": [GOOD, GOOD]}, [SPEC, SPEC], "cpu")
    output_checks.check(GOOD | {"storage_bytes": 4096}, SPEC, "cpu")
    output_checks.check(GOOD | {"order": [1, 0]}, SPEC, "cpu")


@pytest.mark.parametrize(
    "described, spec, code",
    [
        ({"kind": "other", "type": "NoneType"}, SPEC, "wrong_structure"),
        ({"kind": "sequence", "items": [GOOD]}, SPEC, "wrong_structure"),
        ({"kind": "sequence", "items": [GOOD]}, [SPEC, SPEC], "wrong_structure"),
        ({"kind": "sequence", "items": [GOOD, {"kind": "other", "type": "int"}]}, [SPEC, SPEC], "wrong_structure"),
        (GOOD, [SPEC], "wrong_structure"),
        (None, SPEC, "wrong_structure"),
        ("tensor", SPEC, "wrong_structure"),
        (GOOD | {"plain": False, "type": "Lazy"}, SPEC, "wrong_type"),
        (GOOD | {"layout": "torch.sparse_coo"}, SPEC, "wrong_layout"),
        (GOOD | {"dtype": "bfloat16"}, SPEC, "wrong_dtype"),
        (GOOD | {"shape": [6, 4]}, SPEC, "wrong_shape"),
        (GOOD | {"shape": [4, 6.0000001]}, SPEC, "wrong_shape"),
        (GOOD | {"device": "cuda"}, SPEC, "wrong_device"),
        (GOOD | {"dense": False}, SPEC, "not_dense"),
        (GOOD | {"dense": "yes"}, SPEC, "not_dense"),
        (GOOD | {"storage_bytes": 95}, SPEC, "no_storage"),
        (GOOD | {"storage_bytes": "many"}, SPEC, "no_storage"),
        (GOOD | {"aliases_input": True}, SPEC, "aliases_input"),
        (GOOD | {"order": [0, 0]}, SPEC, "wrong_layout"),
        (GOOD | {"order": [0]}, SPEC, "wrong_layout"),
        (GOOD | {"order": [False, 1]}, SPEC, "wrong_layout"),
        (GOOD | {"order": "01"}, SPEC, "wrong_layout"),
    ],
)
def test_every_gate_has_its_reason_code(described, spec, code):
    with pytest.raises(SolutionRejected) as caught:
        output_checks.check(described, spec, "cpu")
    assert caught.value.code == code and caught.value.verdict == "incorrect"


@pytest.mark.parametrize("missing", [key for key in GOOD if key not in ("kind", "type")])
def test_gates_fail_closed(missing):
    """A fact that is not reported is not taken for granted."""
    with pytest.raises(SolutionRejected):
        output_checks.check({key: value for key, value in GOOD.items() if key != missing}, SPEC, "cpu")


# -- precision


class Untouchable(list[Any]):
    """A structure whose parts must not be looked at one by one."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("every part was looked at")


def nested(count: int):
    """A tensor in that number of sequences."""
    value = torch.ones(1)
    for at in range(count):
        value = [value] if at % 2 else (value,)
    return value


CIRCLE = []
CIRCLE.append(CIRCLE)
MANY = "a structure of more than 1024 values"
DEEP = f"a structure of more than {outputs.MOST_LEVELS} levels"


@pytest.mark.parametrize(
    ("value", "told"),
    [(Untouchable([torch.ones(1)] * 1_000_000), MANY), (CIRCLE, DEEP), ([[torch.ones(1)] * 40] * 40, MANY),
     *((nested(count), DEEP) for count in (outputs.MOST_LEVELS + 1, 400, 1000))],
    ids=["a million", "a circle", "many lists", "a level too deep", "400 levels", "1000 levels"],
)  # fmt: skip
def test_a_structure_that_is_too_large_or_too_deep_is_not_described_further(value, told):
    """To describe a million, a digest each, took a worker 72 s of its time on an H200. Depth is an honest mistake: it
    must fit the wire, and get a verdict that says what is wrong."""
    described = outputs.describe(value, [])
    assert described == {"kind": "other", "type": told}
    assert outputs.sums(value) == [] and outputs.sealed(value, bytes(16)) == []
    for spec in (SPEC, [SPEC, SPEC]):
        with pytest.raises(SolutionRejected, match=f"got {told}") as refused:
            output_checks.check(described, spec, "cpu")
        assert refused.value.code == "wrong_structure"


def test_the_deepest_structure_that_is_described_fits_the_wire(pipe):
    channel, write = pipe
    answer = {"output": outputs.describe(nested(outputs.MOST_LEVELS), []), "digest": [], "static": False}
    assert '"shape": [1]' in json.dumps(answer)
    os.write(write, json.dumps(answer).encode() + b"\n")
    assert channel.receive(5) == answer


def test_outputs_of_many_tensors_are_described_in_their_order():
    tensors = [torch.full((2,), float(at)) for at in range(500)]
    value = (tensors[0], [tensors[1], (tensors[2],)], *tensors[3:])
    assert outputs.digest(outputs.sums(value)) == [part for t in tensors for part in outputs.digest(outputs.sums(t))]
    items = outputs.describe(value, [])["items"]
    assert items[0]["kind"] == "tensor" and items[1]["items"][1]["items"][0]["shape"] == [2] and len(items) == 499


def test_tf32_rounding_is_to_ten_mantissa_bits_to_nearest_even():
    step = 2.0**-10
    values = [
        1.0,
        1 + step,
        1 + step / 2,
        1 + 1.5 * step,
        1 + 0.49 * step,
        1 + 0.51 * step,
        -1 - 1.5 * step,
        2**-20,
        0.0,
    ]
    expected = [1.0, 1 + step, 1.0, 1 + 2 * step, 1.0, 1 + step, -1 - 2 * step, 2**-20, 0.0]
    assert round_mantissa(torch.tensor(values)).tolist() == expected
    x = torch.randn(10000, generator=torch.Generator().manual_seed(4))
    assert torch.equal(round_mantissa(x), x.half().float()), "inside fp16's range the two mantissas are the same"
    assert bool(round_mantissa(torch.tensor([math.inf, -math.inf])).isinf().all())


def test_tf32_mode_rounds_the_operands_of_contractions_alone():
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    with TF32Operands():
        products = [a @ b, torch.matmul(a, b), nn.functional.linear(a, b.t())]
        total = a + b
    expected = round_mantissa(a) @ round_mantissa(b)
    assert all(torch.allclose(product, expected, rtol=1e-6, atol=1e-6) for product in products)
    assert not torch.allclose(a @ b, expected, rtol=1e-6, atol=1e-6) and torch.equal(total, a + b)


def test_exact_float32_restores_the_flags_that_it_found():
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (cudnn.allow_tf32, matmul.allow_tf32)
    try:
        cudnn.allow_tf32, matmul.allow_tf32 = False, True
        with exact_float32():
            assert not cudnn.allow_tf32 and not matmul.allow_tf32
        assert (cudnn.allow_tf32, matmul.allow_tf32) == (False, True)
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = before


# -- protocol


@pytest.fixture
def pipe():
    """A channel, and the descriptor whose bytes it reads."""
    read, write = os.pipe()
    channel = Channel(read, os.open(os.devnull, os.O_WRONLY))
    yield channel, write
    channel.close()
    try:
        os.close(write)
    except OSError:
        pass


def test_messages_arrive_whole_in_order_and_in_pieces(pipe):
    channel, write = pipe
    os.write(write, b'{"a": 1}\n{"b": ')
    assert channel.receive(5) == {"a": 1}
    os.write(write, b"[2, NaN]}\n")
    assert channel.receive(5)["b"][0] == 2


@pytest.mark.parametrize(
    "data",
    [b"hello\n", b"\n", b"[1]\n", b'"text"\n', b"\xff\xfe\n", b'{"a": }\n', b"[" * 200000 + b"\n", b"1" * 5000 + b"\n"],
    ids=["text", "empty", "list", "string", "not utf-8", "broken", "nested too deep", "a number too long"],
)
def test_garbage_is_named_so(pipe, data):
    """Whatever a worker writes, the judge gets one kind of exception and goes on."""
    channel, write = pipe
    writer = threading.Thread(target=os.write, args=(write, data))
    writer.start()
    with pytest.raises(ChannelGarbage):
        channel.receive(20)
    writer.join()


def levels(count: int) -> Json:
    """Objects and lists in each other, to that depth."""
    value = {} if count % 2 else []
    for at in range(count - 1, 0, -1):
        value = {"a": value} if at % 2 else [value]
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("count", [MOST_LEVELS + 1, 491, 700])
def test_an_answer_deeper_than_any_honest_one_is_garbage(pipe, count):
    """One of 700 levels ended the job that wrote it, with all solutions in it; 491 ended its reader."""
    channel, write = pipe
    os.write(write, json.dumps(levels(count)).encode() + b"\n" + json.dumps(levels(MOST_LEVELS)).encode() + b"\n")
    with pytest.raises(ChannelGarbage, match=f"more than {MOST_LEVELS} levels"):
        channel.receive(5)
    assert channel.receive(5) == levels(MOST_LEVELS)


# What a terminal obeys, what ends a line and what no file takes.
STEERS = "\x1b[2K\r[1/1] L1_36: correct\x1b[K \x9b2J\x7f \u2028\u202e\ud800 \x00\b"


def test_a_workers_text_is_made_printable(pipe):
    """A surrogate ended the command after all was judged, without a report; escapes wrote over a verdict's line."""
    channel, write = pipe
    honest = {"error": "ünïcode – ≥ 1", "path": "a  b", "list": [1, 2.5, None, True]}
    os.write(write, json.dumps({STEERS: [STEERS, {"name": STEERS}]}).encode() + b"\n")
    os.write(write, b'{"raw": "\xed\xa0\x80 \xc2\x9b"}\n' + json.dumps(honest).encode() + b"\n")
    ((name, (first, second)),) = channel.receive(5).items()
    for text in (name, first, second["name"], channel.receive(5)["raw"]):
        assert text.isprintable() and text.encode(), repr(text)
    assert "[1/1] L1_36: correct" in name and channel.receive(5) == honest
    assert list(map(len, printable_lines("x" * 5000 + "\ny").splitlines())) == [500, 1]


def test_the_judges_text_arrives_unchanged():
    """A problem's own words are not the judge's to change."""
    read, write = os.pipe()
    sender, receiver = Channel(os.open(os.devnull, os.O_RDONLY), write), Channel(read, os.dup(write), from_judge=True)
    sender.send({"value": STEERS}, 5)
    assert receiver.receive(5) == {"value": STEERS}
    sender.close()
    receiver.close()


@pytest.mark.parametrize("kind", [SolutionError, SolutionDied, SolutionRejected, JudgeError])
def test_errors_are_one_printable_line(kind):
    """What a worker printed before it died comes by another way than the wire."""
    error = kind("banned", STEERS)
    told = [str(error), error.detail] if isinstance(error, SolutionError) else [str(error)]
    for text in told:
        assert text.isprintable() and text.encode() and "[1/1] L1_36: correct" in text, repr(text)


def test_a_line_without_end_is_cut_off(pipe):
    """The judge's memory is not the worker's to fill."""
    channel, write = pipe
    stop = threading.Event()

    def flood():
        while not stop.is_set():
            try:
                os.write(write, b"x" * 65536)
            except OSError:
                return

    writer = threading.Thread(target=flood)
    writer.start()
    try:
        with pytest.raises(ChannelGarbage, match="more than"):
            channel.receive(60)
        assert len(channel._buffer) <= MAX_LINE_BYTES + 65536
    finally:
        stop.set()
        os.close(channel.read_fd)
        writer.join()


def test_silence_times_out_also_in_the_middle_of_a_line(pipe):
    channel, write = pipe
    for data in (b"", b'{"a": '):
        os.write(write, data)
        begin = time.monotonic()
        with pytest.raises(ChannelTimeout):
            channel.receive(0.2)
        assert 0.15 < time.monotonic() - begin < 5


def test_writing_to_a_pipe_without_a_reader_times_out():
    """A worker that has filled its own pipe and waits elsewhere would hold the judge up, beyond every bound."""
    read, write = os.pipe()
    channel = Channel(os.open(os.devnull, os.O_RDONLY), write)

    def drain():
        while os.read(read, 1 << 16):
            pass

    reader = threading.Thread(target=drain)
    try:
        channel.send({"fits": 1}, 5)
        begin = time.monotonic()
        with pytest.raises(ChannelTimeout):
            channel.send({"text": "x" * (1 << 20)}, 0.3)
        assert 0.25 < time.monotonic() - begin < 5
        reader.start()
        channel.send({"text": "x" * (1 << 20)}, 20)
    finally:
        channel.close()
        if reader.ident is not None:
            reader.join()
        os.close(read)


def test_a_closed_end_is_seen_by_reader_and_writer(pipe):
    channel, write = pipe
    os.write(write, b'{"half": ')
    os.close(write)
    with pytest.raises(ChannelClosed):
        channel.receive(5)
    read, other = os.pipe()
    os.close(read)
    sender = Channel(os.open(os.devnull, os.O_RDONLY), other)
    with pytest.raises(ChannelClosed):
        sender.send({"op": "hello"})
    sender.close()


@pytest.fixture
def worker():
    """A real worker with nothing loaded."""
    process = WorkerProcess("test", CPU, {}, trusted=False)
    process.ask({"op": "hello"}, 120)
    yield process
    process.close()


def test_the_signal_that_ended_a_worker_is_reported(worker):
    """Real-time signals have no name of their own."""
    os.kill(worker.started.pid, 40)
    with pytest.raises(SolutionDied, match="signal 40") as caught:
        worker.ask({"op": "hello"}, 60)
    assert caught.value.code == "worker_died"


def test_a_worker_answers_what_it_does_not_know_with_an_error_and_goes_on(worker):
    with pytest.raises(SolutionError) as caught:
        worker.ask({"op": "nothing_of_that_name"}, 60)
    assert caught.value.code == "exception"
    assert worker.ask({"op": "hello"}, 60)["torch"] == torch.__version__


def test_a_worker_that_does_not_answer_is_killed(worker):
    os.kill(worker.started.pid, 19)  # SIGSTOP
    with pytest.raises(SolutionTimeout, match="longer than 1 s"):
        worker.ask({"op": "hello"}, 1)
    assert worker.launcher.poll(worker.started.pid) is not None


def test_answers_are_collected_in_the_order_of_the_requests(worker):
    """Two requests wait for a stopped worker; what is not answered yet is not lost by asking whether it is."""
    worker.stop()
    worker.post({"op": "hello"}, 60)
    worker.post({"op": "nothing_of_that_name"}, 60)
    assert worker.collected(0.05, 60) is None
    worker.wake()
    found = worker.collected(60, 60)
    assert found is not None and found["pid"] == worker.started.pid
    with pytest.raises(SolutionError):
        worker.collect(60)
    assert worker.ask({"op": "hello"}, 60)["pid"] == worker.started.pid


# -- verdicts


def judged_subject(**distances: float) -> Implementation:
    implementation = Implementation("mine", Path("mine.py"), "ModelNew", ["mine"])
    implementation.distances = {kind: [even(value)] for kind, value in distances.items()}
    return implementation


@pytest.mark.parametrize(
    ("distances", "expected"),
    [
        ({"native": 1e-6, "stress": 5e-4}, ("correct", "tf32", [])),
        ({"native": math.nan, "stress": 0.0}, ("incorrect", None, ["rel_l2"])),
        ({}, ("inconclusive", None, ["trials_missing"])),
        ({"native": 0.0}, ("inconclusive", None, ["trials_missing"])),
    ],
)
def test_correct_needs_every_planned_trial(distances, expected):
    found = verdict.judge(judged_subject(**distances), FIXTURE)
    codes = [reason.code for reason in found.reasons]
    assert (found.verdict, found.precision_class, codes) == expected
    if found.verdict == "correct":
        assert found.rel_l2 == 5e-4
    elif found.verdict == "inconclusive":
        assert "stress" in found.reasons[0].detail


def test_incorrect_names_each_trial_and_its_worst_guard():
    implementation = judged_subject(native=1e-6, stress=0.3)
    implementation.distances["stress"][0]["row"] = 30.0
    found = verdict.judge(implementation, FIXTURE)
    assert found.verdict == "incorrect"
    assert [(r.code, r.trial) for r in found.reasons] == [("row", "stress")]
    assert "30 over the limit 0.01 of class bf16" in found.reasons[0].detail


@pytest.mark.parametrize(
    ("output", "named"),
    [
        (lambda right: torch.zeros_like(right), "rel_l2"),
        (lambda right: torch.relu(1e3 * torch.randn_like(right)), "rel_l2"),  # of another call, zeros elsewhere
        (lambda right: right.index_fill(1, torch.tensor([511]), 0.0), "max"),
        (lambda right: torch.where(right == right.max(), 1e6, right), "max"),
    ],
    ids=["zeros", "stale", "last column", "one element"],
)
def test_an_output_that_is_wrong_as_a_whole_is_named_by_its_norm(output, named):
    torch.manual_seed(0)
    right = torch.relu(torch.randn(1024, 512))
    right.view(-1)[:: 1 << 12] = torch.linspace(50.0, 60.0, 128)  # spikes
    found = distance(output(right), right.double()).values()
    limits = {"rel_l2": 1e-6, "max": 8e-6, "row": 8e-6, "zero": 1e-6}
    assert metric.named(found, limits) == (named, None)


def test_the_first_fault_decides_the_verdict():
    implementation = judged_subject(native=0.0, stress=0.0)
    implementation.fail(SolutionTimeout("timeout", "slow"), "native")
    implementation.fail(SolutionRejected("wrong_shape", "later"), "stress")
    found = verdict.judge(implementation, FIXTURE)
    assert found.verdict == "timeout" and [r.code for r in found.reasons] == ["timeout", "wrong_shape"]


CEILINGS = {
    "copy_tb_s": 4.0,
    "read_tb_s": 4.2,
    "write_tb_s": 3.4,
    "fp32_tflop_s": 50.0,
    "tf32_tflop_s": 390.0,
    "fp16_tflop_s": 700.0,
    "bf16_tflop_s": 690.0,
}


def result_of(ms: float, base_ms: float = 4.0, **changes):
    """The result of a correct fp32 solution of L1_36 whose calls all take `ms`."""
    implementation = judged_subject(native=1e-6, stress=1e-6)
    judged = verdict.judge(implementation, FIXTURE)
    timed = {"mine": series([ms] * 40), "eager": series([base_ms] * 40), "compile": series([base_ms / 2] * 40)}
    facts = {"status": "converged", "baseline_classes": {"eager": "fp32", "compile": "tf32"}}
    given = {"series": timed, "facts": facts, "reached": CEILINGS, "trust": "audited"} | changes
    for name, value in given.pop("implementation", {}).items():
        setattr(implementation, name, value)
    reached = Ceilings(**given["reached"]) if given["reached"] else None
    timing = Timing(**given["facts"])
    problem = catalogue.load("L1_36")
    return verdict.result(problem, implementation, judged, given["series"], timing, reached, given["trust"])


FLOOR_MS = 2 * 1879048192 * 4 / 4.0 / 1e9  # L1_36: one read and one write in fp32 at 4 TB/s


def test_a_possible_time_stays_correct_with_its_floor():
    found = result_of(FLOOR_MS * 1.25)
    assert found.verdict == "correct" and found.floor_ms == pytest.approx(FLOOR_MS)
    assert found.floor_fraction == pytest.approx(0.8)
    assert result_of(FLOOR_MS * 0.92).verdict == "correct", "the ceilings are known to a few per cent"
    assert found.speedup["eager"].ratio == pytest.approx(4.0 / (FLOOR_MS * 1.25))
    assert found.speedup["best_same_class"].baseline == "eager", "an fp32 solution is not held against TF32"


def test_the_memory_of_a_call_is_what_the_gpu_lacks_after_it_less_its_output(monkeypatch):
    """The worker gave back before it what it held for later."""
    worker, asked = types.SimpleNamespace(stop=lambda: asked.append("stop")), []
    solution = types.SimpleNamespace(worker=worker)
    experiment = Experiment.__new__(Experiment)
    experiment.baselines, experiment.control, experiment.solutions = [], None, [solution]
    experiment.slots = types.SimpleNamespace(fill=lambda *_: asked.append("fill"), output_bytes=200)
    ask = {name: (lambda _, name=name: asked.append(name)) for name in ("release", "call")}
    experiment.evaluation = types.SimpleNamespace(workers=types.SimpleNamespace(**ask))
    free = iter([1000, 300])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (next(free), 2000))
    assert experiment._taken(solution) == 500 and asked == ["fill", "release", "call", "stop"]


@pytest.mark.parametrize("ms", [FLOOR_MS * 0.85, 1e-3, sampling._MIN_MS])
def test_a_time_below_the_floor_is_rejected(ms):
    """Impossible, not good: down to the smallest time that a worker may report."""
    found = result_of(ms)
    assert found.verdict == "rejected"
    assert found.reasons[-1].code == "below_floor"
    json.loads(jsonio.dumps(found.to_json()))


def test_the_floor_is_the_larger_of_traffic_and_arithmetic_of_the_class():
    gemm = catalogue.load("L2_99")
    assert gemm.work is not None
    assert roofline.floor_ms(gemm, "fp32", CEILINGS) == pytest.approx(gemm.work.flop / (690.0 / 3) / 1e9)
    assert roofline.floor_ms(gemm, "tf32", CEILINGS) == pytest.approx(gemm.work.flop / 700.0 / 1e9)
    assert roofline.floor_ms(gemm, "bf16", CEILINGS) == pytest.approx(gemm.work.flop / 690.0 / 1e9)
    half = catalogue.load("L1_36@bf16")
    assert roofline.floor_ms(half, "bf16", CEILINGS) == pytest.approx(FLOOR_MS / 2)
    assert roofline.floor_ms(smoke_problem(), "fp32", CEILINGS) is None
    assert roofline.impossible_ms(smoke_problem(), "fp32", CEILINGS) is None


def test_the_bytes_of_a_floor_move_at_the_rate_of_their_mix():
    """Read alone at the read rate, as much written as read at the copy rate, between them in between."""
    rates = CEILINGS | {"write_tb_s": 4.5}
    vector, pool, upsampled = (catalogue.load(f"L1_{number}@bf16") for number in ("04", "43", "77"))

    def floor_ms(problem, read_tb_s):
        return roofline.floor_ms(problem, "bf16", rates | {"read_tb_s": read_tb_s})

    def moved(problem):
        assert problem.work is not None
        return 2 * problem.work.read_elements, 2 * problem.work.written_elements  # bytes

    assert floor_ms(vector, 5.0) == pytest.approx(moved(vector)[0] / 5.0 / 1e9, rel=1e-4)
    read, written = moved(pool)
    assert floor_ms(pool, 5.0) == pytest.approx((2 * written / 4.0 + (read - written) / 5.0) / 1e9)
    read, written = moved(upsampled)
    assert floor_ms(upsampled, 5.0) == pytest.approx((2 * read / 4.0 + (written - read) / 4.5) / 1e9)
    assert floor_ms(vector, 3.0) == pytest.approx(moved(vector)[0] / 4.0 / 1e9, rel=1e-4)


def test_the_fp32_rate_allows_for_a_split_into_three_products():
    """fp32 as three tf32 or bf16 products is honest; where fp32 itself is faster than that, it counts."""
    assert roofline.rate("fp32", CEILINGS) == pytest.approx(230.0)
    assert roofline.rate("fp32", CEILINGS | {"bf16_tflop_s": 90.0}) == pytest.approx(130.0)
    assert roofline.rate("fp32", CEILINGS | {"fp32_tflop_s": 500.0}) == 500.0


@pytest.mark.parametrize("klass", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("problem_id", catalogue.ids())
def test_impossible_times_lie_below_the_floor(problem_id, klass):
    """By the ceilings' uncertainty at least; where Winograd or Strassen could, by what those save."""
    problem = catalogue.load(problem_id)
    floor, impossible = (f(problem, klass, CEILINGS) for f in (roofline.floor_ms, roofline.impossible_ms))
    assert floor is not None and impossible is not None and problem.work is not None
    assert impossible <= 0.9 * floor
    memory = (problem.work.read_elements + problem.work.written_elements) * 4 / 4.2 / 1e9
    arithmetic = problem.work.flop / roofline.rate(klass, CEILINGS) / 1e9
    assert impossible == pytest.approx(0.9 * max(memory, problem.work.fast_algorithm * arithmetic))


def test_missing_results_have_a_reason():
    cpu = result_of(1.0, reached=None)
    assert cpu.floor_ms is None and "CPU" in cpu.floor_reason and not cpu.measurement
    untimed = result_of(1.0, series={}, facts={"status": "not_timed"})
    assert untimed.time_ms is None and untimed.time_reason == "not_timed" and untimed.word is None
    open_only = result_of(1.0, series={"mine": series([], latency_ms=[1.0])})
    assert open_only.time_ms is None and open_only.time_reason == "converged"


def test_a_result_has_device_time_latency_and_a_word_for_its_speedup():
    """A baseline of 4 ms over 4.7 ms is SLOW, one of 8 ms FAST."""
    found = result_of(FLOOR_MS * 1.25)
    assert found.time_ms.n == 40 and found.latency_ms.n == 13
    eager = found.speedup_all["eager"]
    assert set(found.speedup) == {"eager", "compile", "best_same_class"}
    assert found.speedup["eager"] == eager and eager.word == "SLOW"
    assert result_of(FLOOR_MS * 1.25, base_ms=8.0).speedup["eager"].word == "FAST"
    assert found.word == found.speedup["best_same_class"].word
    json.loads(jsonio.dumps(found.to_json()))


def test_the_word_allows_for_what_the_control_shows():
    """5 % faster, where the same code shows itself 6 % faster than itself, says nothing."""
    ms = FLOOR_MS * 1.25
    facts = {"status": "converged", "baseline_classes": {"eager": "fp32"}}
    timed = {"mine": series([ms] * 40), "eager": series([ms * 1.05] * 40)}
    assert result_of(ms, series=timed, facts=facts).word == "FAST"
    control = Ratio(ratio=1.0, ci95=[0.94, 1.01], blocks=40)
    assert result_of(ms, series=timed, facts=facts | {"aa": control}).word == "SAME"


def test_a_result_says_what_lies_between_the_judge_and_the_solution():
    """Nothing, a process, or another user; by the worker's own word, which no verdict depends on."""
    assert result_of(8.0, trust="dev").separation == "none"
    assert result_of(8.0).separation == "process"
    assert result_of(8.0, implementation={"hello": {"uid": os.geteuid()}}).separation == "process"
    assert result_of(8.0, implementation={"hello": {"uid": os.geteuid() + 1}}).separation == "user"
    confined = {"seccomp": "applied"}
    assert result_of(8.0, implementation={"hello": {"confined": confined}}).confined == confined


def triton_source(folder: Path) -> Path:
    """A file that defines the kernel `mine`."""
    (folder / "mine.py").write_text("import triton\n\n@triton.jit\ndef mine(x): pass\n")
    return folder / "mine.py"


def test_labels_are_those_of_the_source_and_of_what_was_seen(tmp_path):
    given = {"source": triton_source(tmp_path), "observed": {"static_output", "nondeterministic"}}
    assert result_of(8.0, implementation=given).labels == ["nondeterministic", "static_output", "triton"]


def test_the_share_of_own_kernels_has_a_reason_where_it_is_unknown(tmp_path):
    """A worker tells of its kernels, and may lie: what is no list of kernels is no share."""
    source = triton_source(tmp_path)
    told = [["mine", 30.0], ["void at::native::vectorized_x", 10.0]]
    found = result_of(8.0, implementation={"source": source, "profile": {"kernels": told, "reason": ""}})
    assert found.own_kernel_share == 0.75
    for profile in ({}, {"kernels": []}, {"kernels": "mine"}, {"kernels": [], "reason": "no GPU"}):
        missing = result_of(8.0, implementation={"profile": profile})
        assert missing.own_kernel_share is None
        assert missing.own_kernel_share_reason == profile.get("reason", "not profiled")


@pytest.mark.parametrize("code", sorted(SolutionRejected.RULES))
def test_a_broken_rule_is_rejected_and_a_wrong_answer_incorrect(code):
    assert SolutionRejected(code).verdict == "rejected"
    assert SolutionRejected("wrong_shape").verdict == SolutionRejected("timed_output_wrong").verdict == "incorrect"
    implementation = judged_subject(native=0.0, stress=0.0)
    implementation.fail(SolutionRejected(code, "why"), "timing")
    assert verdict.judge(implementation, FIXTURE).verdict == "rejected"


# -- fixtures


@pytest.mark.alike  # L3_20, the slowest, comes last: `make test-all` has it
@pytest.mark.parametrize("key", list(map(slow_key, sorted(KEYS, key="L3_20".__eq__))))
def test_fixtures_of_every_suite_separate_cheats_from_honest_kernels(key, smoke_fixture):
    """Not refused, margin at least 3 (bf16: 1.5), every planned trial measured, small, no tensor in it, the same when
    remade."""
    fixture = smoke_fixture(key)
    assert fixture.refused == "" and fixture.margin >= 1.5
    assert fixture.worst_honest_score <= 1 < fixture.best_cheat_score
    plan = inputs.plan(smoke_problem(key))
    planned = len(fixture.trials) + len(fixture.trials_left_out)
    assert len(fixture.trials) >= 3 and planned == 6 + len(input_cases.PROBES)
    own = set()
    for kind, trial in fixture.trials.items():
        if kind.endswith("spiked") or kind in input_cases.PROBES:
            assert trial.cheats == {}, "other trials measure them"
        else:
            assert {"zeros", "constant", "feature_mean", "stale"} <= set(trial.cheats)
        own |= set(trial.cheats)
        assert set(trial.honest) == set(trial.limits) == set(tolerances.CLASSES[fixture.dtype])
        for name, honest in trial.honest.items():
            assert not trial.limits[name] or metric.score(honest, trial.limits[name]) <= 1
    assert len(own) > 4, "and a skip list of its own"
    guarded = {
        probe: {guard for kind, trial in fixture.trials.items() if (kind in input_cases.PROBES) == probe
                for bounds in trial.limits.values() for guard in bounds}
        for probe in (False, True)
    }  # fmt: skip
    assert guarded[False] == {*metric.GUARDS, "bias", *(["zero"] if key.startswith("L1_77") else [])}
    assert guarded[True] - {"zero"} == {*metric.GUARDS, "bias", "edit"}, "zeros also where a softmax saturates"
    for klass, margin in fixture.margins.items():
        assert margin >= {"fp32": 3.0, "tf32": 3.0, "bf16": 1.5}[klass], (klass, margin)
    assert fixture.margins[tolerances.CLASSES[fixture.dtype][-1]] == pytest.approx(fixture.margin, rel=1e-4)
    assert [len(entry["checksum64"]) for entry in fixture.inputs] == [16] * len(plan.spec)
    whole = json.loads(jsonio.dumps(fixture.to_json()))
    assert len(jsonio.render(whole)) < 24 << 10, "as `repro fixtures` writes it"

    again = json.loads(jsonio.dumps(calibration.build(smoke_problem(key), CPU).to_json()))
    assert whole.pop("build_s") and again.pop("build_s")
    assert whole == again


@pytest.mark.alike
@pytest.mark.parametrize("key", [slow_key(key) for key in ONCE if not key.startswith(("L1_04", "L1_43"))])
def test_spiked_inputs_reveal_kernels_that_assume_a_range(key, smoke_fixture):
    """A kernel that is right for values from 0 to 1 alone fails every class; honest ones stay within their limits.

    Not of a sum over a whole row (L1_04), in which one element is lost, nor of a maximum (L1_43) of so few windows.
    """
    fixture, problem = smoke_fixture(key), smoke_problem(key)
    kind = "spiked" if problem.native_signal else "perturbed_spiked"
    (plan, native, reference), trial = reference_of(problem), fixture.trials[kind]
    if not problem.native_signal:
        reference.load(input_cases.perturbed_weights(plan, native, CPU))
    values = plan.make(trial.seed, CPU, stress="spike")
    found = distance(reference([x.clamp(0, 1) for x in values])[0], reference(list(values))[0])
    assert metric.score(found.values(), trial.limits["bf16"]) > 1


def test_spikes_of_each_input_have_the_height_that_the_problem_names():
    """L1_97: queries and keys that overflow an exponential without its maximum; values that no clamp leaves alone."""
    problem = smoke_problem("L1_97")
    values = inputs.plan(problem).make(input_cases.PUBLIC_SEED, CPU, stress="spike")
    deviation = 12**-0.5
    assert [float(x.abs().max()) for x in values] == pytest.approx([2700 * deviation, 2700 * deviation, 64 * deviation])
    same = inputs.plan(dataclasses.replace(problem, spike=3.0)).make(input_cases.PUBLIC_SEED, CPU, stress="spike")
    assert [float(x.min()) for x in same] == pytest.approx([-3 * deviation] * 3)


def test_weights_that_are_there_are_not_loaded_again_and_changed_ones_are(monkeypatch):
    plan, published, reference = reference_of(smoke_problem("L2_37"))
    perturbed = input_cases.perturbed_weights(plan, published, CPU)
    loads, load = [], torch.nn.Module.load_state_dict

    def counted(self, *given, **more):
        loads.append(True)
        return load(self, *given, **more)

    monkeypatch.setattr(torch.nn.Module, "load_state_dict", counted)
    reference.load(published)
    assert not loads
    reference.load(perturbed)
    reference.load(published)
    assert len(loads) == 2
    weight = next(iter(reference.model.parameters()))
    with torch.no_grad():
        weight.zero_()
    reference.load(published)
    assert len(loads) == 3 and bool(weight.any())


def test_attention_that_clamps_its_values_fails_on_their_spikes(smoke_fixture):
    plan, _, reference = reference_of(smoke_problem("L1_97"))
    trial = smoke_fixture("L1_97").trials["spiked"]
    found = 0
    for seed in range(8):  # which of them attention looks at, the draw decides
        queries, keys, values = plan.make(seed, CPU, stress="spike")
        clamped = reference([queries, keys, values.clamp(-3, 3)])[0]
        far = distance(clamped, reference([queries, keys, values])[0]).values()
        found += metric.score(far, trial.limits["bf16"]) > 1
    assert found >= 4


def test_an_honest_kernel_of_16_bits_may_round_its_weights_once_more():
    plan, published, exact = reference_of(smoke_problem("L1_82@fp16"))
    again = reference_module.Reference(plan, published, CPU, "fp16").model.state_dict()
    for name, value in exact.model.state_dict().items():
        moved = (again[name] / value - 1).abs()
        assert 0.02 < (moved > 0).double().mean() < 0.4 and moved.max() <= 2**-10, name


# Each is followed by that number of draws of every trial; the smallest outputs and the deepest chain of layers.
FURTHER = {"L1_97": 60, "L3_20": 20, "L2_84": 60}


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.parametrize("key", list(map(slow_key, FURTHER)))
def test_honest_kernels_are_within_the_limits_on_inputs_that_the_fixture_never_saw(key, smoke_fixture):
    """In every class, except one draw at most: of limits that came from one draw, up to one in four was outside."""
    fixture, problem = smoke_fixture(key), smoke_problem(key)
    plan, published, exact = reference_of(problem)
    perturbed = input_cases.perturbed_weights(plan, published, CPU)
    models = {name: reference_module.Reference(plan, published, CPU, name) for name in tolerances.CLASSES["float32"]}
    models["fp64"] = exact
    for kind, trial in fixture.trials.items():
        assert trial.draws == (calibration.PROBE_DRAWS if kind in input_cases.PROBES else calibration.MOST_DRAWS)
        for model in models.values():
            moved = perturbed if kind.startswith("perturbed") or not problem.native_signal else published
            scaled = stresses.scaled(trial.stress)
            model.load(input_cases.scaled_weights(plan, published, CPU, scaled) if scaled else moved)
        outside = dict.fromkeys(trial.limits, 0)
        for number in range(FURTHER[key]):
            stress = stresses.drawn(trial.stress, number, plan.tensors)
            values = plan.make(7_000_000 + number, CPU, stress=stress)
            expected = models["fp64"](list(values))[0]
            for name in outside:
                found = distance(models[name](list(values))[0], expected).values()
                outside[name] += bool(trial.limits[name]) and metric.score(found, trial.limits[name]) > 1
        assert max(outside.values()) <= 1, (kind, outside)


@pytest.mark.parametrize(("key", "size", "count"), [("L1_97", "smoke", 16), ("L2_84", "full", 8), ("L1_97", "full", 1)])
def test_as_many_draws_are_measured_as_cost_little(key, size, count):
    assert calibration.draws(reference_module.Shape(*written(catalogue.load(key, size=size)), None)) == count


def test_sums_of_slices_are_those_of_the_whole(monkeypatch):
    """So that no whole fp64 temporary is held beside an output of gigabytes; a NaN counts as 0 in both."""
    torch.manual_seed(3)
    before, output, others = (torch.randn(6, 5, 7, dtype=torch.float64) for _ in range(3))
    reference = before.clone()
    reference[2, 1], reference[0, 0, 0], others[4, 4, 4] = 50.0, math.nan, math.nan

    def sums(size):
        for module in (metric, calibration):
            monkeypatch.setattr(module, "SLICE_ELEMENTS", size)
        change, means = metric.Change(), calibration.Means()
        change.add(output.float(), reference, before)
        means.add(reference, others)
        return change.values(), means.distances()

    whole, sliced = sums(1 << 22), sums(11)
    assert whole[0]["edit"] > 0.1 and sliced[0] == pytest.approx(whole[0], rel=1e-12)
    for name, values in whole[1].items():
        assert sliced[1][name] == pytest.approx(values, rel=1e-12)


def test_a_probe_is_measured_once_where_one_draw_is_enough(monkeypatch):
    """At full size of a large problem each measurement takes a good part of a second."""
    seen = []
    measured = calibration._Calibration._measurement

    def counted(self, trial, *given):
        seen.append((trial.kind, trial.stress))
        return measured(self, trial, *given)

    monkeypatch.setattr(calibration._Calibration, "_measurement", counted)
    monkeypatch.setattr(calibration, "draws", lambda shape: 1)
    fixture = calibration.build(smoke_problem(), CPU)
    probes = [each for each in seen if each[0] in input_cases.PROBES]
    assert {kind for kind, _ in probes} >= {"tiny", "edited"} and len(set(probes)) == len(probes)
    every = len(tolerances.CLASSES["float32"])
    for kind, trial in fixture.trials.items():
        if kind in input_cases.PROBES and sum(map(bool, trial.limits.values())) == every:
            assert [stress for name, stress in probes if name == kind][-1] == trial.stress, "weaker ones are not tried"


@pytest.mark.parametrize("whole_gib", [0, 2])
def test_a_chunk_has_as_many_rows_as_fit_beside_what_every_chunk_needs(whole_gib, monkeypatch):
    """A second factor of a matrix product is made for every chunk; counted as a row's it left chunks of one row."""
    plan, spec = written(catalogue.load("L2_84"))
    gpu = types.SimpleNamespace(device=torch.device("cuda"))
    monkeypatch.setattr(reference_module, "_peak_bytes", lambda plan, reference, rows: (whole_gib << 30) + (rows << 20))
    row = reference_module._row_bytes(plan, spec)
    assert row is not None and plan.batch is not None
    expected = reference_module.CHUNK_BYTES // (row + (1 << 20))
    assert 100 < expected < plan.batch and reference_module.rows_per_chunk(plan, spec, gpu.device, gpu) == expected


def test_a_region_of_zeros_that_is_filled_passes_every_average_and_fails(smoke_fixture):
    """L1_77: most of its output is exactly 0. A five-hundredth of the rms there hides from the other guards."""
    fixture = smoke_fixture("L1_77@bf16")
    trial = fixture.trials["native"]
    assert trial.zero_share > 0.5 and trial.limits["bf16"]["zero"] == 1e-6
    plan, _, reference = reference_of(smoke_problem("L1_77@bf16"))
    expected = reference(plan.make(trial.seed, CPU))[0]
    rms = expected[expected != 0].square().mean().sqrt()
    filled = torch.where(expected == 0, 0.002 * rms, expected)
    values, bounds = distance(filled, expected).values(), trial.limits["bf16"]
    assert metric.score({k: v for k, v in values.items() if k != "zero"}, bounds) <= 1 < metric.score(values, bounds)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "uint8", "int8", "bool", "float32"])
def test_checksums_of_drawn_inputs_are_those_of_the_whole_tensor(tmp_path, dtype):
    """For every dtype that a problem may draw."""
    drawn = f"[torch.rand(60, 4), torch.randint(0, 99, (60, 4), dtype=torch.{dtype}), 3]"
    plan = inputs.plan(small_problem(tmp_path, "x * 2 + y", drawn))
    facts = calibration._input_facts(plan, 5, CPU)
    values = plan.make(5, CPU)
    assert [f.get("checksum64") for f in facts] == [*(f"{metric.digest(x):016x}" for x in values[:2]), None]
    assert facts[2] == {"value": "3"}


SMALL = """import torch
from torch import nn


class Model(nn.Module):
    {init}def forward(self, x, y=None, z=None):
        return {forward}


def get_inputs():
    return {inputs}


def get_init_inputs():
    return []
"""


def small_problem(tmp_path: Path, forward: str, drawn: str = "[torch.rand(32, 16)]", state: str = "") -> Problem:
    """A problem file from elsewhere. state: a statement that registers what its Model holds."""
    file = tmp_path / "small.py"
    init = f"def __init__(self):\n        super().__init__()\n        {state}\n\n    " if state else ""
    file.write_text(SMALL.format(init=init, forward=forward, inputs=drawn))
    return catalogue.load_file(file)


def small_fixture(tmp_path: Path, forward: str, **more: str) -> FixtureRecord:
    return calibration.build(small_problem(tmp_path, forward, **more), CPU)


@pytest.mark.parametrize(
    "forward, cheat",
    [
        ("torch.ones_like(x)", "constant"),
        ("torch.zeros_like(x)", "zeros"),
        ("torch.arange(16.0, device=x.device, dtype=x.dtype).expand(32, 16) + 0 * x", "feature_mean"),
        ("torch.arange(512.0, device=x.device, dtype=x.dtype).view(32, 16) + 0 * x", "stale"),
        ("torch.softmax(1e-4 * x, dim=1)", "constant"),
    ],
    ids=["constant", "zero", "one row for all", "free of the input", "all but constant"],
)
def test_a_fixture_that_a_cheat_passes_is_refused(tmp_path, forward, cheat):
    """Problems whose output can be had without the input judge nothing. One that only the coarser classes cannot tell
    from a constant judges the others."""
    fixture = small_fixture(tmp_path, forward)
    assert "passes every trial" in fixture.refused_classes["bf16"]
    assert bool(fixture.refused) == bool(fixture.degenerate) == ("1e-4" not in forward)
    loosest = fixture.trials["native"]
    assert metric.score(loosest.cheats[cheat], loosest.limits["bf16"]) <= 1


def test_tiny_outputs_that_follow_their_input_are_accepted(tmp_path):
    """Relative L2 has no scale: the absolute tolerance that lets zeros pass elsewhere plays no part."""
    fixture = small_fixture(tmp_path, "1e-30 * x")
    assert fixture.refused == "" and fixture.trials["native"].cheats["zeros"]["legacy"]["allclose_1e-4"]


def test_a_problem_whose_state_begins_with_integers_is_measured(tmp_path):
    """`Module.to(dtype)` leaves them alone; so must the output's spec."""
    state = "self.register_buffer('order', torch.arange(8))"
    fixture = small_fixture(tmp_path, "x[:, self.order]", state=state)
    assert fixture.output == {"shape": [32, 8], "dtype": "float32"}


def test_a_problem_that_fails_is_the_problems_fault(tmp_path):
    with pytest.raises(JudgeError, match="only tensors can be judged"):
        small_fixture(tmp_path, "3.0")
    with pytest.raises(JudgeError, match="nothing_of_that_name"):
        small_fixture(tmp_path, "torch.nothing_of_that_name(x)")


def test_recurrent_layers_and_attention_compute_with_rounded_operands_too():
    """Weights in lists count as operands: TF32 rounds what a product reads, wherever it stands."""
    torch.manual_seed(0)
    gru, attention = torch.nn.GRU(32, 32), torch.nn.MultiheadAttention(32, 4).eval()
    x = torch.randn(5, 3, 32)
    for call in (lambda: gru(x)[0], lambda: attention(x, x, x)[0]):
        with torch.no_grad():
            plain = call()
            with TF32Operands():
                rounded = call()
        error = float((rounded - plain).norm() / plain.norm())
        assert 2e-5 < error < 2e-3


def test_a_file_with_the_id_of_a_shipped_problem_is_not_refused_for_a_cheat_that_is_right_there():
    """L2_34 from elsewhere keeps its scale of 1 in every trial, and leaving that out is no cheat."""
    known = smoke_problem("L2_34")
    fixture = calibration.build(dataclasses.replace(known, perturbed_init={}), CPU)
    assert fixture.refused == "" and "scale_ignored" not in fixture.trials["perturbed"].cheats
