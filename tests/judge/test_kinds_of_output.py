"""Outputs of several tensors, of integers and of indices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from repro.judge.correctness import distance as metric
from repro.judge.correctness import tolerances
from repro.judge.correctness.distance import Distance
from repro.judge.correctness.indices import Pointed, Pointers

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
    least = tolerances.integers({"fp32": HONEST, "bf16": HONEST | worst}, 1000)
    assert tolerances.limits(HONEST, "fp32", 1.0, least)["differ"] == pytest.approx(share)


def test_no_limit_is_wider_than_a_tenth():
    for error in (1e-3, 0.05, 0.07, 0.8):
        honest = dict.fromkeys(("rel_l2", "max", "row"), error)
        assert tolerances.limits(honest, "bf16", 0.0).get("rel_l2", 0.0) <= tolerances.WIDEST
    wide = tolerances.limits(dict.fromkeys(("rel_l2", "max", "row"), 0.8), "bf16", 1.0)
    assert wide == {}, "the class is refused"
