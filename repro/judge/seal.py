"""What a worker told of a timed output before the judge's clock stopped, held against the bytes that it hands out."""

from __future__ import annotations

import base64
import binascii
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from repro.errors import SolutionRejected
from repro.judge import digests
from repro.judge.outputs import memory

# Fetches elements [start, start + count) of a tensor, its dimensions in an order, as a flat tensor in shared memory.
Fetch = Callable[[int, int, list[int]], torch.Tensor]


@dataclass
class _Tensor:
    """One tensor of the output. kept: what was fetched last, and checked: its first element and the elements."""

    shape: list[int]
    size: int
    order: list[int]
    states: bytes
    kept: tuple[int, torch.Tensor] | None = None

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def each(self) -> int:
        """Elements of a segment."""
        return digests.segment_bytes(self.count * self.size) // self.size

    @property
    def strides(self) -> list[int]:
        found, stride = [0] * len(self.shape), 1
        for dim in reversed(self.order):
            found[dim], stride = stride, stride * self.shape[dim]
        return found

    def runs(self, dims: int, rows: slice | None) -> list[tuple[int, int]]:
        """Where in memory rows begin, and how many follow with the stride of the last of `dims`."""
        if rows is None or dims == 0:
            return [(0, 1)]
        found, row = [], rows.start
        while row < rows.stop:
            left, base = row, 0
            for dim in reversed(range(dims)):
                left, index = divmod(left, self.shape[dim])
                base += index * self.strides[dim]
            count = min(rows.stop - row, self.shape[dims - 1] - row % self.shape[dims - 1])
            found.append((base, count))
            row += count
        return found


class Seal:
    """The roots of one output, later the states that they stand for. dims: how many dimensions make its rows, 0 where
    it has none; most: bytes that are fetched at once, or a segment."""

    def __init__(self, dims: int, most: int) -> None:
        self.dims, self.most, self.key = dims, most, secrets.token_bytes(digests.KEY_BYTES)
        self.roots: Any = None
        self.told: Any = None
        self._tensors: list[_Tensor] = []

    def open(self, leaves: list[tuple[tuple[int, ...], dict[str, Any]]], described: Any) -> None:
        """Takes the states and the order of every tensor's memory. Raises SolutionRejected where they are not those
        that the roots stand for. described: the output, which passed the gates."""
        roots, told, self._tensors = self.roots, self.told, []
        if not isinstance(roots, list) or not isinstance(told, list) or not len(roots) == len(told) == len(leaves):
            raise SolutionRejected("deferred_write", "a call did not tell what its output is")
        for (path, leaf), root, text in zip(leaves, roots, told, strict=True):
            item = described
            for index in path:
                item = item["items"][index]
            size = getattr(torch, leaf["dtype"]).itemsize
            nbytes = math.prod(leaf["shape"]) * size
            try:
                states = base64.b64decode(text, validate=True)
            except (TypeError, ValueError, binascii.Error):
                states = b""
            if len(states) != -(-nbytes // digests.segment_bytes(nbytes)) * digests.STATE_BYTES:
                raise SolutionRejected("deferred_write", "the output is of another size than what the call told of it")
            if digests.root(states, nbytes, self.key) != root:
                raise SolutionRejected("deferred_write", "what is told of the output is not what the call told")
            self._tensors.append(_Tensor(leaf["shape"], size, item["order"], states))

    def rows(self, position: int, rows: slice | None, fetch: Fetch) -> torch.Tensor:
        """Rows of one tensor (all where None), from a copy of whole segments that have the states that were told. Rows
        that do not lie together are fetched with what lies between them.

        Raises SolutionRejected where a segment does not have its state.
        """
        tensor = self._tensors[position]
        strides, dims = tensor.strides, self.dims if rows is not None else 0
        runs = tensor.runs(dims, rows)
        inner, steps = tensor.shape[dims:], strides[dims:]
        within = sum((size - 1) * step for size, step in zip(inner, steps, strict=True))
        along = strides[dims - 1] if dims else 0
        first = min(base for base, _ in runs)
        end = max(base + (count - 1) * along for base, count in runs) + within + 1
        begin, data = self._segments(tensor, first, end, fetch)
        parts = [data.as_strided((count, *inner), (along, *steps), base - begin) for base, count in runs]
        return (parts[0] if len(parts) == 1 else torch.cat(parts))[slice(None) if dims else 0]

    def _segments(self, tensor: _Tensor, first: int, end: int, fetch: Fetch) -> tuple[int, torch.Tensor]:
        """The segments of elements [first, end): their first element, and a copy that their worker cannot change."""
        if tensor.kept is not None and tensor.kept[0] <= first and end <= tensor.kept[0] + tensor.kept[1].numel():
            return tensor.kept
        tensor.kept = None
        begin = first // tensor.each * tensor.each
        end = min(tensor.count, -(-end // tensor.each) * tensor.each)
        step = max(1, self.most // tensor.size // tensor.each) * tensor.each
        copy: torch.Tensor | None = None
        for start in range(begin, end, step):
            part = fetch(start, min(step, end - start), tensor.order)
            copy = torch.empty(end - begin, dtype=part.dtype, device=part.device) if copy is None else copy
            mine = copy[start - begin : start - begin + part.numel()]
            self._check(tensor, start, mine.copy_(part))
        assert copy is not None
        tensor.kept = begin, copy
        return tensor.kept

    def _check(self, tensor: _Tensor, start: int, data: torch.Tensor) -> None:
        number, turns = start // tensor.each, digests.turns(tensor.count * tensor.size)
        found = digests.states(memory(data, [0]), turns, number, self.key)
        at = number * digests.STATE_BYTES
        if found != tensor.states[at : at + len(found)]:
            raise SolutionRejected("deferred_write", "the output is not what it was when the call was answered")
