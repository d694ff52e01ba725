"""A worker's facts about a solution's output: structure, memory, digests. The judge uses them as tripwires only.

A solution can give an instance of torch.Tensor, list or tuple attributes or methods of its own, which would do its work
when the output is read. So outputs are read through the classes alone: `plain` is called before anything else.
"""

from __future__ import annotations

from typing import Any

import torch

from repro.judge.gpu import commitment
from repro.judge.processes.wire import Json
from repro.problems.plan import dense, order

# An output of more values is described by that fact alone: digests of a million values took 72 s on an H200.
_MOST_VALUES = 1024
# Output nested more deeply is described by that fact alone; each level takes two of the wire's levels.
MOST_LEVELS = 8


# Signalling NaNs, which arithmetic changes and copies keep: what marked memory holds until it is written.
_MARKS = {
    torch.float64: (torch.int64, 0xFFF7FFFFFFFFFFFF - (1 << 64)),
    torch.float32: (torch.int32, 0xFFBFFFFF - (1 << 32)),
    torch.bfloat16: (torch.int16, 0xFFBF - (1 << 16)),
    torch.float16: (torch.int16, 0xFDFF - (1 << 16)),
}

# Bound before a solution is imported.
_detach, _rename = torch.Tensor.detach, torch.Tensor.rename
_named, _lazy = torch.Tensor.has_names, (torch.Tensor.is_neg, torch.Tensor.is_conj)
_lists, _tuples = (list.__iter__, list.__len__), (tuple.__iter__, tuple.__len__)


class LazilyNegatedTensor:
    """Stands for a tensor that torch still has to negate or conjugate wherever it is read. It is refused."""


def mark(tensor: torch.Tensor) -> None:
    """Fill the memory of a floating-point tensor with marks."""
    if tensor.dtype in _MARKS and tensor.untyped_storage().nbytes():
        kind, value = _MARKS[tensor.dtype]
        torch.empty(0, dtype=kind, device=tensor.device).set_(tensor.untyped_storage()).fill_(value)


def marked(tensor: torch.Tensor) -> torch.Tensor:
    """Return which elements hold a mark."""
    if tensor.dtype not in _MARKS:
        return torch.zeros_like(tensor, dtype=torch.bool)
    kind, value = _MARKS[tensor.dtype]
    return tensor.contiguous().view(kind) == value


def plain(value: Any) -> Any:
    """Return a tensor over the same memory without names and attributes that a solution gave its instance, or another
    value as it is. A subclass stays what it is: it is refused."""
    if type(value) is not torch.Tensor:
        return value
    if any(lazy(value) for lazy in _lazy):
        return LazilyNegatedTensor()
    bare = _detach(value)
    return _rename(bare, None) if _named(bare) else bare


def items(value: Any) -> list[Any]:
    """Return the items of a list or tuple as it holds them, whatever a subclass says."""
    return list(_lists[0](value) if isinstance(value, list) else _tuples[0](value))


def _length(value: Any) -> int:
    return int(_lists[1](value) if isinstance(value, list) else _tuples[1](value))


def _walked(value: Any) -> tuple[list[Any], str]:
    """Return an output's values in order, or none and why: it is wide or deep, or contains itself."""
    flat, todo, seen = list[Any](), [(value, 0)], 0
    while todo:
        item, level = todo.pop()
        seen += 1
        if not isinstance(item, tuple | list):
            flat.append(plain(item))
        elif seen + len(todo) + _length(item) > _MOST_VALUES:
            return [], f"a structure of more than {_MOST_VALUES} values"
        elif level == MOST_LEVELS:
            return [], f"a structure of more than {MOST_LEVELS} levels"
        else:
            todo.extend((part, level + 1) for part in reversed(items(item)))
    return flat, ""


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return an output's plain tensors that hold memory, in order; none of a structure that `describe` refuses."""
    flat = [item for item in _walked(value)[0] if type(item) is torch.Tensor]
    return [item for item in flat if item.layout is torch.strided and item.device.type != "meta"]


def sums(value: Any) -> list[torch.Tensor]:
    """Enqueue sums of an output's bits as integers, without waiting: they show whether it changes afterwards.

    Eight bytes at a time, because torch would first copy the whole of narrower integers.
    """
    return [part for item in _tensors(value) for part in _sums(item)]


def _sums(value: torch.Tensor) -> list[torch.Tensor]:
    if not value.numel() or value.numel() * value.element_size() > value.untyped_storage().nbytes():
        return []  # without elements, or these overlap, and a copy may not fit
    flat = commitment.dense_bytes(value, order(value))
    flat = flat.clone() if flat.data_ptr() % 8 else flat
    even = flat.numel() // 8 * 8
    return [torch.sum(flat[:even].view(torch.int64)), torch.sum(flat[even:], dtype=torch.int64)]


def sealed(value: Any, key: bytes) -> list[tuple[bytes, int]]:
    """Return the states (`commitment.py`) and byte count of every plain tensor of an output."""
    flat = [commitment.dense_bytes(item, order(item)) for item in _tensors(value) if not item.is_complex()]
    aligned = (bits.clone() if bits.data_ptr() % commitment.QUAD_BYTES else bits for bits in flat)
    return [(commitment.of(bits, key), bits.numel()) for bits in aligned]


def part(value: Any, path: list[int], start: int, count: int, order: list[int] | None) -> torch.Tensor:
    """Return elements [start, start + count) of one tensor of an output. order: of dimensions, None for their own."""
    for index in path:
        value = items(value)[index]
    tensor: torch.Tensor = plain(value)
    if order is not None:
        return commitment.dense_bytes(tensor, order).view(tensor.dtype)[start : start + count]
    if tensor.is_contiguous() or tensor.dim() == 0:
        return tensor.reshape(-1)[start : start + count]
    row = tensor[0].numel()  # only these rows are copied, not the whole tensor
    return tensor[start // row : -(-(start + count) // row)].reshape(-1)[start % row :][:count]


def digest(parts: list[torch.Tensor]) -> list[int]:
    """Wait for the sums and return them."""
    return [int(part) for part in parts]


def describe(value: Any, inputs: list[Any]) -> Json:
    """Return the structure, types and memory layout of a solution's output."""
    why = _walked(value)[1]
    return {"kind": "other", "type": why} if why else _describe(value, inputs)


def _describe(value: Any, inputs: list[Any]) -> Json:
    if isinstance(value, tuple | list):
        return {"kind": "sequence", "items": [_describe(item, inputs) for item in items(value)]}
    value = plain(value)
    if not isinstance(value, torch.Tensor):
        return {"kind": "other", "type": type(value).__name__}
    facts: Json = {"kind": "tensor", "type": type(value).__name__, "plain": type(value) is torch.Tensor}
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        return facts | {"layout": str(value.layout)}
    storages = {t.untyped_storage().data_ptr() for t in inputs if isinstance(t, torch.Tensor)}
    return facts | {
        "layout": str(value.layout),
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "dense": dense(value),
        "order": order(value),
        "device": value.device.type,
        "storage_bytes": value.untyped_storage().nbytes() - value.storage_offset() * value.element_size(),
        "aliases_input": value.untyped_storage().data_ptr() in storages,
    }


def address(value: Any) -> int | None:
    value = plain(value)
    return value.data_ptr() if type(value) is torch.Tensor and value.layout is torch.strided else None


def nbytes(value: Any) -> int:
    """Return the bytes of an output's plain tensors."""
    return sum(part.numel() * part.element_size() for part in _tensors(value))
