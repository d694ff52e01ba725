"""Checks the bytes of a timed output against the digests that the worker sent before the judge's clock stopped."""

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
from repro.judge.gpu import commitment
from repro.problems.meta import Leaf, Place
from repro.problems.plan import Rows

# Fetches elements [start, start + count) of a tensor, with its dimensions in the given order, as flat shared memory.
Fetch = Callable[[int, int, list[int]], torch.Tensor]


@dataclass
class _Tensor:
    """One tensor of the output. kept: the first element and the data of the last fetch, already checked."""

    shape: list[int]
    size: int
    order: list[int]
    states: bytes
    kept: tuple[int, torch.Tensor] | None = None

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def segment(self) -> int:
        """Return the elements of a segment."""
        return commitment.segment_bytes(self.count * self.size) // self.size

    @property
    def strides(self) -> list[int]:
        strides, stride = [0] * len(self.shape), 1
        for dim in reversed(self.order):
            strides[dim], stride = stride, stride * self.shape[dim]
        return strides

    def runs(self, dims: int, rows: Rows) -> list[tuple[int, int]]:
        """Return (start in memory, count) of each run of rows along the last of the first `dims` dimensions."""
        if rows is None or dims == 0:
            return [(0, 1)]
        runs, row = [], rows.start
        while row < rows.stop:
            left, base = row, 0
            for dim in reversed(range(dims)):
                left, index = divmod(left, self.shape[dim])
                base += index * self.strides[dim]
            count = min(rows.stop - row, self.shape[dims - 1] - row % self.shape[dims - 1])
            runs.append((base, count))
            row += count
        return runs


class Seal:
    """The root of each tensor of one output, later the states behind it.

    dims: how many leading dimensions make the rows, 0 if it has none. most: bytes fetched at once, at least a segment.
    """

    def __init__(self, dims: int, most: int) -> None:
        self.dims, self.most, self.key = dims, most, secrets.token_bytes(commitment.KEY_BYTES)
        self.roots: Any = None
        self.states: Any = None
        self._tensors: list[_Tensor] = []

    def open(self, leaves: list[tuple[Place, Leaf]], described: Any) -> None:
        """Take the states and the memory order of every tensor. described: the output, which passed the gates.

        Raises SolutionRejected if the states do not match the roots.
        """
        roots, texts, self._tensors = self.roots, self.states, []
        if not isinstance(roots, list) or not isinstance(texts, list) or not len(roots) == len(texts) == len(leaves):
            raise SolutionRejected("deferred_write", "the answer to a call has no digest for each output tensor")
        for (path, leaf), root, text in zip(leaves, roots, texts, strict=True):
            item = described
            for index in path:
                item = item["items"][index]
            size = getattr(torch, leaf["dtype"]).itemsize
            nbytes = math.prod(leaf["shape"]) * size
            try:
                states = base64.b64decode(text, validate=True)
            except (TypeError, ValueError, binascii.Error):
                states = b""
            if len(states) != -(-nbytes // commitment.segment_bytes(nbytes)) * commitment.STATE_BYTES:
                raise SolutionRejected("deferred_write", "the digests are for an output of another size")
            if commitment.root(states, nbytes, self.key) != root:
                raise SolutionRejected("deferred_write", "the digests changed after the call was answered")
            self._tensors.append(_Tensor(leaf["shape"], size, item["order"], states))

    def rows(self, position: int, rows: Rows, fetch: Fetch) -> torch.Tensor:
        """Return rows of one tensor (all if None), copied from whole segments whose states match.

        Rows that are not contiguous are fetched with the data between them. Raises SolutionRejected if a state does not
        match.
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
        """Return the segments of elements [first, end): first element, and a copy that the worker cannot change."""
        if tensor.kept is not None and tensor.kept[0] <= first and end <= tensor.kept[0] + tensor.kept[1].numel():
            return tensor.kept
        tensor.kept = None
        begin = first // tensor.segment * tensor.segment
        end = min(tensor.count, -(-end // tensor.segment) * tensor.segment)
        step = max(1, self.most // tensor.size // tensor.segment) * tensor.segment
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
        number, turns = start // tensor.segment, commitment.turns(tensor.count * tensor.size)
        states = commitment.states(commitment.dense_bytes(data, [0]), turns, number, self.key)
        at = number * commitment.STATE_BYTES
        if states != tensor.states[at : at + len(states)]:
            raise SolutionRejected("deferred_write", "the output changed after the call was answered")
