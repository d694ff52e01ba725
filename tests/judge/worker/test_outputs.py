"""What a worker reads of an output: its memory, never an attribute that a solution gave it."""

from __future__ import annotations

from typing import Any

import torch

from repro.judge.worker import outputs

RIGHT = torch.ones(4, 6)


def armed(*_: Any, **__: Any) -> Any:
    raise AssertionError("the output's own attribute was called")


def test_attributes_of_an_instance_are_never_called():
    value = RIGHT.clone()
    for name in dir(torch.Tensor):
        if not name.startswith("_") and callable(getattr(torch.Tensor, name, None)):
            value.__dict__[name] = armed
    assert outputs.describe(value, [])["dense"] is True
    assert outputs.digest(outputs.sums(value)) == outputs.digest(outputs.sums(RIGHT.clone()))
    assert outputs.sealed(value, bytes(16)) == outputs.sealed(RIGHT.clone(), bytes(16))
    assert torch.equal(outputs.part(value, [], 6, 6, None), torch.ones(6))
    assert outputs.nbytes(value) == 96 and outputs.address(value) == torch.Tensor.data_ptr(value)


def test_items_of_a_list_are_those_that_it_holds():
    class Lazy(list[Any]):
        __iter__ = __getitem__ = __len__ = armed  # type: ignore[assignment]

    value = Lazy([RIGHT.clone(), RIGHT.clone()])
    assert [item["shape"] for item in outputs.describe(value, [])["items"]] == [[4, 6], [4, 6]]
    assert len(outputs.sums(value)) == 4 and torch.equal(outputs.part(value, [1], 0, 6, None), torch.ones(6))
