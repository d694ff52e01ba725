"""Runs the programs of a launch in Triton's interpreter in random order, and finds two that race.

On a GPU programs run in no order that a kernel may rely on. The interpreter runs one after the other, so that a scan
without flags, or a sum by load and store, would be right. Each launch has another order, from a seed. A program that
reads one address again and again waits for another one, and lets the first one that has not started run meanwhile.
"""

from __future__ import annotations

import inspect
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from repro.errors import SolutionRejected

Program = tuple[int, ...]
_Addresses = np.ndarray[Any, Any]
# Equal reads of one number after which a program is taken to wait.
_WAITS = 8
# The most addresses of a launch that are kept: 32 MB. What later programs of a larger launch access is not compared.
_MOST_KEPT = 1 << 22

_launches = itertools.count()
_current: list[_Launch] = []


class _Launch:
    """One launch. accesses: program number, whether it stored, and addresses, while no atomics synchronise programs."""

    def __init__(self, name: str, grid: Program, builder: Any, program: Callable[[], object]) -> None:
        self.name, self.builder, self.program = name, builder, program
        self.programs = list(itertools.product(*map(range, grid)))
        self.started, self.lowest, self.number = bytearray(len(self.programs)), 0, 0
        self.accesses: list[tuple[int, bool, _Addresses]] = []
        self.kept, self.synchronised = 0, False
        self.last: object = None
        self.repeats = 0

    def run(self) -> None:
        """Run all programs. Raises SolutionRejected if two race."""
        order = list(range(len(self.programs)))
        random.Random(next(_launches)).shuffle(order)  # noqa: S311
        for number in order:
            self._start(number)
        if found := None if self.synchronised else _race(self.accesses):
            reader, writer = (self.programs[number] for number in found)
            what = f"kernel {self.name}: program {reader} loads what program {writer} stores, without atomics"
            raise SolutionRejected("race", what)

    def _start(self, number: int) -> None:
        if self.started[number]:
            return
        outer, self.number, self.started[number] = self.number, number, 1
        self.builder.set_grid_idx(*self.programs[number])
        self.program()
        self.number = outer
        self.builder.set_grid_idx(*self.programs[outer])

    def waits(self, addresses: _Addresses) -> None:
        """Note a read of a program. If it waits, run the first program that has not started."""
        key = (self.number, int(addresses.flat[0])) if addresses.size == 1 else None
        self.repeats = self.repeats + 1 if key is not None and key == self.last else 0
        self.last = key
        if self.repeats >= _WAITS:
            self.repeats = 0
            self.lowest = self.started.find(0, self.lowest)
            if self.lowest >= 0:
                self._start(self.lowest)
            self.lowest = max(0, self.lowest)

    def accessed(self, addresses: _Addresses, mask: _Addresses, *, stored: bool) -> None:
        """Note an access without atomics."""
        if not self.synchronised and self.kept < _MOST_KEPT:
            addresses = addresses[mask] if addresses.shape == mask.shape else addresses.ravel()
            self.kept += addresses.size
            if addresses.size:
                self.accesses.append((self.number, stored, addresses))

    def synchronises(self) -> None:
        """Note that programs may wait for each other: what they access is not compared."""
        self.synchronised = True
        self.accesses.clear()


def _race(accesses: list[tuple[int, bool, _Addresses]]) -> tuple[int, int] | None:
    """Return a program that loads what another one stores, and that one; None if there is none."""
    stores = [(number, addresses) for number, stored, addresses in accesses if stored]
    if not stores:
        return None
    where = np.concatenate([addresses for _, addresses in stores])
    by = np.concatenate([np.full(addresses.size, number) for number, addresses in stores])
    order = np.lexsort((by, where))
    by = by[order]
    written, begin = np.unique(where[order], return_index=True)
    first, last = by[begin], by[np.append(begin[1:], by.size) - 1]  # the lowest and the highest program that stores
    for number, stored, addresses in accesses:
        if stored or addresses.min() > written[-1] or addresses.max() < written[0]:
            continue
        at = np.minimum(np.searchsorted(written, addresses), written.size - 1)
        other = np.where(first[at] == number, last[at], first[at])
        if (hits := (written[at] == addresses) & (other != number)).any():
            return number, int(other[hits][0])
    return None


def mend(interpreter: Any) -> None:
    """Patch Triton's interpreter, a module: how a grid is run, and what loads, stores and atomics note."""
    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store
    swap, change = builder.create_atomic_cas, builder.create_atomic_rmw

    def masked_load(
        self: Any, ptrs: Any, mask: Any, other: Any, cache_modifier: Any, eviction_policy: Any, is_volatile: Any
    ) -> Any:
        launch = _current[-1]
        if is_volatile:
            launch.synchronises()
        launch.accessed(ptrs.data, mask.data, stored=False)
        launch.waits(ptrs.data)
        return load(self, ptrs, mask, other, cache_modifier, eviction_policy, is_volatile)

    def masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *how: Any) -> Any:
        _current[-1].accessed(ptrs.data, mask.data, stored=True)
        return store(self, ptrs, value, mask, *how)

    def atomic(original: Callable[..., Any], at: int) -> Callable[..., Any]:
        def operate(self: Any, *arguments: Any) -> Any:
            _current[-1].synchronises()
            _current[-1].waits(arguments[at].data)
            return original(self, *arguments)

        return operate

    def run_grid(self: Any, *arguments: Any, **named: Any) -> None:
        if named.pop("warmup", False):
            return
        known = inspect.getfullargspec(self.fn).args
        named = {name: value for name, value in named.items() if name in known}
        given, given_named = self._init_args_hst(arguments, named)
        interpreter._patch_lang(self.fn)
        bound = inspect.getcallargs(self.fn, *given, **given_named)
        values = {n: v if n in self.constexprs else interpreter._implicit_cvt(v) for n, v in bound.items()}
        grid = self.grid(values) if callable(self.grid) else self.grid
        assert len(grid) <= 3, "grid must have at most 3 dimensions"
        grid = (*grid, *(1,) * (3 - len(grid)))
        ours = interpreter.interpreter_builder
        ours.set_grid_dim(*grid)
        _current.append(_Launch(self.fn.__name__, grid, ours, lambda: self.fn(**values)))
        try:
            _current[-1].run()
        except SolutionRejected:
            raise
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error
        finally:
            _current.pop()
        self._restore_args_dev(arguments, given, named, given_named)

    builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
    builder.create_atomic_cas, builder.create_atomic_rmw = atomic(swap, 0), atomic(change, 1)
    interpreter.GridExecutor.__call__ = run_grid
