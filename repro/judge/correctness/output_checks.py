"""Hard gates on what a solution returned. They fail closed: anything not known to be right is rejected.

Reason codes: wrong_structure, wrong_type, wrong_layout, wrong_dtype, wrong_device, wrong_shape, not_dense,
no_storage, aliases_input. The worker reports these facts, so the gates only catch accidents and simple cheats. The
bytes are judged separately.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from repro.errors import SolutionRejected
from repro.judge.processes.wire import Json
from repro.problems.meta import Leaf


def check(described: object, spec: Any, device: str, *, aliases: bool = False) -> None:
    """Compare a worker's description with the expected output spec. Raises SolutionRejected at the first mismatch.

    aliases: the problem's own output lies in the memory of an input.
    """
    for path, expected in _pairs(described, spec):
        _tensor(path | {"aliases_input": False} if aliases else path, expected, device)


def _pairs(described: object, spec: Any) -> list[tuple[Json, Leaf]]:
    if not isinstance(spec, list):
        if not isinstance(described, dict) or described.get("kind") != "tensor":
            kind = described.get("type", described.get("kind")) if isinstance(described, dict) else described
            raise SolutionRejected("wrong_structure", f"expected one tensor, got {kind}")
        return [(described, spec)]
    items = described.get("items") if isinstance(described, dict) and described.get("kind") == "sequence" else None
    if not isinstance(items, list) or len(items) != len(spec):
        other = described.get("type", "one value") if isinstance(described, dict) else "one value"
        got = f"{len(items)} outputs" if isinstance(items, list) else other
        raise SolutionRejected("wrong_structure", f"expected {len(spec)} outputs, got {got}")
    return [pair for item, part in zip(items, spec, strict=True) for pair in _pairs(item, part)]


def _permutes(order: object, count: int) -> bool:
    return isinstance(order, list) and all(type(d) is int for d in order) and sorted(order) == list(range(count))


def _tensor(got: Json, expected: Leaf, device: str) -> None:
    if got.get("plain") is not True:
        raise SolutionRejected("wrong_type", f"expected exactly torch.Tensor, got {got.get('type')}")
    if got.get("layout") != "torch.strided":
        raise SolutionRejected("wrong_layout", f"expected a dense tensor, got {got.get('layout')}")
    for key, due in (("dtype", expected["dtype"]), ("shape", expected["shape"]), ("device", device)):
        if got.get(key) != due:
            raise SolutionRejected(f"wrong_{key}", f"expected {due}, got {got.get(key)}")
    if got.get("dense") is not True and not expected.get("gaps"):
        raise SolutionRejected("not_dense", "elements of the output overlap or have gaps between them")
    itemsize = getattr(torch, expected["dtype"]).itemsize
    nbytes = got.get("storage_bytes")
    least = 0 if expected.get("gaps") else math.prod(expected["shape"]) * itemsize
    if not isinstance(nbytes, int) or nbytes < least:
        raise SolutionRejected("no_storage", "the output does not own memory for all its elements")
    if got.get("aliases_input") is not False:
        raise SolutionRejected("aliases_input", "the output shares memory with an input")
    if not _permutes(got.get("order"), len(expected["shape"])):
        raise SolutionRejected("wrong_layout", "the description lacks the memory order of the output's dimensions")
