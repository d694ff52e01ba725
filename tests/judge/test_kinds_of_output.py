"""Outputs of several tensors, of integers and of indices."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import ROOT
from torch.nn import functional

from repro.fixtures import calibration
from repro.inputs import stress as stresses
from repro.judge.correctness import distance as metric
from repro.judge.correctness import input_cases, tolerances
from repro.judge.correctness.distance import Distance, Distances
from repro.judge.correctness.indices import Pointed, Pointers
from repro.judge.correctness.reference import Reference
from repro.problems import catalogue
from repro.problems import plan as plans

X = torch.tensor([[[3.0, 1.0, 3.0, 2.0], [0.0, 5.0, 4.0, 5.0]]], dtype=torch.float64)


def pointed(function: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, Pointed | None]:
    with Pointers() as pointers:
        indices = function(X)
    return indices, pointers.of(indices)


@pytest.mark.parametrize(
    ("function", "as_good", "wrong"),
    [
        (lambda x: x.argmax(-1), [[2, 3]], [[2, 2]]),
        (lambda x: x.argmin(2, keepdim=True).int(), [[[1], [0]]], [[[3], [0]]]),
        (lambda x: torch.argmax(x), 7, 6),
        (lambda x: x.max(dim=1)[1], [[0, 1, 1, 1]], [[1, 1, 1, 1]]),
        (lambda x: torch.topk(x, 2).indices, [[[2, 0], [3, 1]]], [[[2, 0], [1, 2]]]),
        (lambda x: torch.topk(x, 2).indices, [[[2, 0], [3, 1]]], [[[2, 2], [1, 3]]]),
        (lambda x: x.argsort(-1, descending=True), [[[2, 0, 3, 1], [3, 1, 2, 0]]], [[[2, 0, 1, 3], [1, 3, 2, 0]]]),
        (lambda x: x.sort(dim=2)[1].flatten(1), [[1, 3, 2, 0, 0, 2, 3, 1]], [[1, 3, 2, 0, 0, 2, 4, 1]]),
        (lambda x: functional.max_pool1d(x, 2, return_indices=True)[1], [[[0, 2], [1, 3]]], [[[0, 2], [1, 2]]]),
    ],
)  # fmt: skip
def test_an_index_is_judged_by_the_value_that_it_points_to(function, as_good, wrong):
    reference, whole = pointed(function)
    assert whole is not None
    for indices, right in ((reference, True), (torch.tensor(as_good), True), (torch.tensor(wrong), False)):
        found = Distance()
        found.add(indices, reference.double(), whole)
        assert (max(found.values().values()) == 0.0) is right


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.argmax(-1) + 1,
        lambda x: x.argmax(-1).mul_(2),
        lambda x: (x > 1).long(),
        lambda x: x.long().argsort(dim=-1, stable=True),
    ],
)
def test_other_integers_are_compared_as_they_are(function):
    assert pointed(function)[1] is None
    large = torch.tensor([[1 << 60, 5]])
    found = Distance()
    found.add(large + torch.tensor([1, 0]), large.double(), large)
    assert found.values()["differ"] == 0.5 and found.values()["rel_l2"] < 1e-15


def test_each_output_has_guards_and_limits_of_its_own():
    large, small = {"rel_l2": 0.01, "max": 0.1}, {"rel_l2": 1.0}
    values, limits = metric.joined([large, small]), metric.joined([large, {"rel_l2": 0.02}], largest=False)
    assert values == {"rel_l2": 1.0, "max": 0.1, "rel_l2@0": 0.01, "max@0": 0.1, "rel_l2@1": 1.0}
    assert metric.split(values) == [large, small] and metric.split(large) == [large]
    assert metric.score(values, limits) == 50 and metric.named(values, limits) == ("rel_l2", 1)
    assert metric.of_row(values) == {"row": 1.0, "row@0": 0.01, "row@1": 1.0}


HONEST = {"rel_l2": 0.0, "max": 0.0, "row": 0.0, "differ": 0.0}


@pytest.mark.parametrize(
    ("worst", "share"), [({}, tolerances.EXACT), ({"differ": 0.2, "max": 0.03}, 15e-4), ({"differ": 1e-3}, 15e-4)]
)
def test_integers_are_exact_unless_rounding_decides_them(worst, share):
    """Where it does not, in any class, one that differs is one too many."""
    least = tolerances.integers("native", {"fp32": HONEST, "bf16": HONEST | worst}, 1000, {}, 1.0)
    assert tolerances.limits(HONEST, "fp32", 1.0, least.get("fp32"))["differ"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("kind", "honest", "due"),
    [
        ("offset", {}, {"differ": 4e-3, "max": 0.18}),
        ("offset", {"differ": 2e-3, "max": 0.2}, {"differ": 8e-3, "max": 0.3}),
        ("heavy", {}, {"differ": 15e-4, "max": 0.18}),
        ("edited", {"edit": 0.0}, {"differ": 4e-3, "max": 0.18, "edit": tolerances.EDIT_LIMIT}),
        ("edited", {}, {"differ": tolerances.EXACT}),
    ],
)
def test_integers_that_rounding_decides_on_published_inputs_may_differ_on_all(kind, honest, due):
    """By as many units, which a smaller output has more of. An edit that has no limit of its own must be seen."""
    published = tolerances.rounding({"bf16": HONEST | {"differ": 1e-3, "max": 0.03}}, 40.0)
    values = {"bf16": HONEST | honest}
    least = tolerances.integers(kind, values, 1000, published, 10.0)
    of = {"heavy": tolerances.heavy_limits, "offset": tolerances.offset_limits}.get(kind, tolerances.probe_limits)
    found = of(values, least)["bf16"]
    assert {name: found[name] for name in due} == pytest.approx(due) and ("rel_l2" in found) == ("max" not in due)
    assert tolerances.rounding({"bf16": HONEST | {"differ": 0.03}}, 40.0) == {}, "a quantity"
    assert tolerances.integers(kind, {"bf16": HONEST}, 1000, published, 0.0) == {}, "nothing but zeros"


def test_no_limit_is_wider_than_a_tenth():
    for error in (1e-3, 0.05, 0.07, 0.8):
        honest = dict.fromkeys(("rel_l2", "max", "row"), error)
        assert tolerances.limits(honest, "bf16", 0.0).get("rel_l2", 0.0) <= tolerances.WIDEST
    wide = tolerances.limits(dict.fromkeys(("rel_l2", "max", "row"), 0.8), "bf16", 1.0)
    assert wide == {}, "the class is refused"


def int8_rows(x: torch.Tensor, largest: torch.Tensor | None = None, codes: float = 127.0) -> list[torch.Tensor]:
    """What a kernel that multiplies by the reciprocal of the scale returns, before it rounds."""
    largest = x.float().abs().amax(dim=-1, keepdim=True) if largest is None else largest
    return [x.float() * (codes / largest), largest / 127]


def rounded(codes: torch.Tensor, scale: torch.Tensor) -> list[torch.Tensor]:
    return [torch.round(codes).clamp(-128, 127).to(torch.int8), scale]


def beside(codes: torch.Tensor, scale: torch.Tensor) -> list[torch.Tensor]:
    """One code of each row is off by one."""
    first = codes[:, :1]
    return rounded(torch.cat((first - torch.where(first > 0, 1.0, -1.0), codes[:, 1:]), 1), scale)


# Name -> inputs, and those of the call before -> outputs.
INT8 = {
    "honest, by a quotient": lambda x, _: rounded(x.float() / (s := int8_rows(x)[1]), s),
    "honest, by a reciprocal": lambda x, _: rounded(*int8_rows(x)),
    "scaled by 128": lambda x, _: rounded(*int8_rows(x, codes=128.0)),
    "cut off": lambda x, _: rounded(int8_rows(x)[0].trunc(), int8_rows(x)[1]),
    "one code of each row beside": lambda x, _: beside(*int8_rows(x)),
    "maximum without the last column": lambda x, _: rounded(
        *int8_rows(x, x[:, :-1].float().abs().amax(-1, keepdim=True))
    ),
    "edited elements of the call before": lambda x, before: rounded(
        *int8_rows(torch.where(x == before, x, before), int8_rows(x)[1] * 127)
    ),
}


@functools.cache
def drawn(file: str, dtype: str = "float32", **constants: int) -> Callable[[Callable[..., Any], int], str | None]:
    """The class of a kernel of a problem without weights in one draw of secrets, or None where it is wrong. A kernel
    takes the inputs, and those of the call before."""
    device = torch.device("cpu")
    problem = catalogue.load_file(ROOT / "tests/frames/problems" / file, dtype=dtype).at(constants)
    plan, fixture = plans.plan(problem), calibration.build(problem, device)
    reference = Reference(plan, plans.weights(problem, plan.module), device)

    def judged(kernel: Callable[..., Any], draw: int) -> str | None:
        chance = random.Random(draw)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(input_cases, "secret_seed", lambda: chance.getrandbits(63))
            patched.setattr(input_cases.secrets, "choice", chance.choice)
            trials = input_cases.make(plan, fixture=fixture)
        found = {}
        for trial in (trial for trial in trials if trial.judged):
            inputs, edited = plan.make(trial.seed, device, stress=trial.stress), stresses.edits(trial.stress)
            before = plan.make(trial.seed, device, stress=stresses.base(problem.stress)) if edited else inputs
            old = reference([*before]) if edited else []
            expected = reference([*inputs])
            distances = Distances.of(len(expected))
            distances.add(kernel(*inputs, *before), expected, reference.wholes, old)
            found.setdefault(trial.kind, []).append(distances.values())
        return tolerances.class_of(found, fixture)

    return judged


@pytest.mark.parametrize(("name", "rows"), [(name, rows) for rows in (4, 16) for name in INT8])
def test_codes_between_two_integers_may_be_either_on_every_kind_of_inputs(name, rows):
    """Also where the few honest draws of a kind hold no such code, while those of published inputs do."""
    expected = "bf16" if name.startswith("honest") else None
    judged = drawn("int8_rows.py", "bfloat16", rows=rows)
    assert [judged(INT8[name], draw) for draw in range(20)] == [expected] * 20


@pytest.mark.parametrize("left_out", [None, "maximum", "minimum", "integers"])
def test_an_extreme_without_the_last_column_is_wrong_in_every_draw(left_out):
    def kernel(x: torch.Tensor, n: torch.Tensor, *before: torch.Tensor) -> list[torch.Tensor]:
        some = {"maximum": x, "minimum": x, "integers": n}
        if left_out:
            some[left_out] = some[left_out][:, :-1]
        codes = torch.round(x * 8).clamp(-128, 127).to(torch.int8)
        return [some["maximum"].max(), some["minimum"].amin(1), some["integers"].amax(1), torch.sign(x), codes]

    judged = drawn("extremes.py")
    assert [judged(kernel, draw) for draw in range(40)] == [None if left_out else "fp32"] * 40
