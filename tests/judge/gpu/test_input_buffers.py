"""Where inputs lie: another address in the next call, nothing of earlier inputs beside them."""

from __future__ import annotations

import pytest
import torch

from repro.judge.gpu import input_buffers
from repro.problems import catalogue, meta
from repro.problems import plan as inputs

CPU = torch.device("cpu")


def slots(key: str) -> input_buffers.Slots:
    problem = catalogue.load(key, size="smoke")
    plan = inputs.plan(problem)
    return input_buffers.Slots(plan, meta.output_spec(plan, inputs.weights(problem, plan.module)), None, CPU)


def moved(made: input_buffers.Slots) -> torch.Tensor:
    """The first input, which is the same after its buffer moved."""
    made.fill(5, None)
    first = made._slot(0).clone()
    made.move()
    made.fill(5, None)
    assert torch.equal(made._slot(0), first) and made.unchanged()
    return first


def test_every_input_moves_and_its_addresses_come_back():
    made = slots("L1_97")
    seen = {0: set(), 1: set(), 2: set()}
    for _ in range(40):
        before = dict(made.places)
        made.move()
        assert all(made.places[i] != before[i] for i in before)
        for i, place in made.places.items():
            seen[i].add(place)
            assert place % input_buffers._ALIGNMENT == 0 and made.described()[i]["offset"] == place
    assert set(map(len, seen.values())) == {input_buffers._SPOTS}
    made.close()


@pytest.mark.parametrize("large", [False, True])
def test_large_inputs_are_aligned_as_torch_aligns_them(large, monkeypatch):
    """Those with memory of their own begin at a multiple of 2 MiB, in every program and so here."""
    monkeypatch.setattr(input_buffers, "_LARGE", 1 if large else 1 << 40)
    made = slots("L1_97")
    steps = {place % (2 << 20) == 0 for spots in made.spots.values() for place in spots if place}
    assert steps == {True} if large else False in steps
    moved(made)
    made.close()


def test_moved_inputs_are_the_same_and_the_rest_of_the_buffer_is_nan():
    made = slots("L1_36")
    place = made.places[0]
    first = moved(made)
    old = made.buffers["input0"].view(torch.float32, tuple(first.shape), place)
    assert not torch.equal(old.nan_to_num(), first)
    whole = made.buffers["input0"].bytes.view(torch.float32)
    assert int((~whole.isnan()).sum()) == first.numel()
    made._slot(0).view(-1)[3] += 1
    assert not made.unchanged()
    made.close()
