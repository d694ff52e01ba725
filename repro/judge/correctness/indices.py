"""Integers as outputs. An index that a maximum, a sort or a pooling gave is judged by the value that it points to:
where values tie within rounding, another index is as good. All other integers and booleans are compared as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch

from repro.problems.plan import Functions

# Function -> place of `dim` among its arguments. Indices are the second of two results, or the only one of `arg…`.
_DIM = dict.fromkeys("argmax argmin argsort max min median nanmedian cummax cummin sort".split(), 1)
_DIM |= {"topk": 2, "kthvalue": 2}
_POOL = re.compile(r"(?:adaptive_)?max_pool([123])d_with_indices")
# Functions that keep the elements and their order.
_KEPT = frozenset(
    "to int long short float double type clone contiguous view reshape flatten squeeze unsqueeze detach".split()
)


@dataclass(frozen=True)
class Pointed:
    """Where indices point to. values: (rows, candidates), fp64; shape, dim: of the indices before rows were made."""

    values: torch.Tensor
    shape: torch.Size
    dim: int | None
    indices: torch.Tensor

    def _rows(self, indices: torch.Tensor) -> torch.Tensor:
        shaped = indices.reshape(self.shape)
        rows = shaped if self.dim is None else shaped.movedim(self.dim, -1)
        return rows.reshape(len(self.values), -1).long()

    def at(self, indices: torch.Tensor) -> torch.Tensor:
        """Return the values that indices point to; those of an index out of range are of the nearest one."""
        return self.values.gather(1, self._rows(indices).clamp(0, self.values.shape[1] - 1))

    def impossible(self, indices: torch.Tensor) -> torch.Tensor:
        """Return how many indices are out of range, or stand twice in a row where the reference's all differ."""
        rows = self._rows(indices)
        count = ((rows < 0) | (rows >= self.values.shape[1])).sum()
        return count if _twice(self._rows(self.indices)) else count + _twice(rows)


def _twice(rows: torch.Tensor) -> torch.Tensor:
    """Return how many elements of rows stand in their row already."""
    return (rows.sort(1).values.diff(dim=1) == 0).sum()


class Pointers(Functions):
    """Notes for each tensor of indices that a function returns where they point to."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[torch.Tensor, int, Pointed]] = {}

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        source = args[0] if args else kwargs.get("input")
        if name in _KEPT and isinstance(result, torch.Tensor) and (pointed := self.of(source)) is not None:
            self._note(result, pointed)
        self._follow(name, source, result, args, kwargs)
        return result

    def _follow(self, name: str, source: Any, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note where the indices point to that a function of this name returned."""
        pair = isinstance(result, tuple) and len(result) == 2
        if pair and (pool := _POOL.fullmatch(name)):
            dims = -int(pool[1])
            self._note(result[1], _pointed(source.flatten(dims), result[1].flatten(dims), -1))
        elif kwargs.get("stable") and not source.is_floating_point():
            pass  # the order of equal whole numbers is part of the answer
        elif name in _DIM and (pair or name.startswith("arg")):
            dim = kwargs.get("dim", dict(enumerate(args)).get(_DIM[name], -1 if pair or name == "argsort" else None))
            indices = result[1] if pair else result
            self._note(indices, _pointed(source, indices, dim))

    def _note(self, indices: torch.Tensor, pointed: Pointed) -> None:
        self._known[id(indices)] = indices, indices._version, pointed

    def of(self, tensor: object) -> Pointed | None:
        """Return where a tensor's elements point to, if they are indices that were not changed since."""
        kept, version, pointed = self._known.get(id(tensor), (None, 0, None))
        return pointed if kept is not None and kept._version == version else None


def _pointed(source: torch.Tensor, indices: torch.Tensor, dim: int | None) -> Pointed:
    values = source.reshape(-1) if dim is None else source.movedim(dim, -1)
    whole = dim is not None and indices.dim() == source.dim()
    rows = values.reshape(-1, values.shape[-1]).double()
    return Pointed(rows, indices.shape, dim if whole else None, indices)
