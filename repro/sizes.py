"""Sizes of any KernelBench file: what a call of its Model costs, and reduced sizes for a machine without a GPU.

A reduced size is searched for by halving the constants that the file's inputs and constructor arguments are made from.
Every attempt is a run on the meta device, which takes milliseconds; the last one is run on the CPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from repro import constants, inputs, meta
from repro.constants import Constant
from repro.errors import JudgeError, PrerequisiteError
from repro.problems import Problem

# No constructor argument is made smaller than this: kernel sizes, groups and heads stay as published.
LEAST_INIT = 16
# They count as this much smaller than they are when the largest constant is looked for: blocks of a matrix product and
# heads of attention want width more than batch and image do.
INIT_WEIGHT = 4
# No other size is made smaller than this: a batch of one row hides what depends on the other rows.
LEAST = 2
# A step counts where the cost falls at least by this factor.
GAIN = 0.97
# From this excess on, and for values from this one on, a step divides by four.
FAR = 64
# A candidate that costs more than this is not run on the CPU.
MOST_FLOP, MOST_BYTES = 1 << 36, 4 << 30
CHECK_SEED = 1
# A search ends after this many runs on the meta device.
MOST_RUNS = 80


@dataclass(frozen=True)
class Budget:
    """What a reduced size may cost: elements of inputs and outputs, elements that all operations write, elements of
    weights, and arithmetic of one call."""

    elements: int = 1 << 17
    written: int = 1 << 20
    weights: int = 1 << 20
    flop: int = 1 << 26

    def excess(self, sizes: Sizes) -> float:
        """How many times over the budget sizes are, by their worst quantity; at most 1 is within it."""
        quantities = ("elements", "written", "weights", "flop")
        return max(getattr(sizes, name) / getattr(self, name) for name in quantities)


@dataclass(frozen=True)
class Sizes:
    """A problem's sizes and what one call of its Model costs at them.

    overrides: constants that differ from the file's. elements: of inputs and outputs. written: elements that all
    operations write. weights: elements of the state dict. flop: of matrix products, convolutions and attention. bytes:
    of inputs, outputs and weights. peak: the most elements of intermediate results and outputs that live at once.
    """

    overrides: dict[str, Any]
    elements: int
    flop: int
    bytes: int
    weights: int
    written: int
    peak: int
    input_bytes: int = field(repr=False)
    output_elements: int = field(repr=False)


def measure(problem: Problem) -> Sizes:
    """What one call costs at the problem's sizes, by a run on the meta device. Raises JudgeError where it fails."""
    plan = inputs.plan(problem)
    tally = meta.Tally()
    ran = meta.run(plan, problem.init_inputs(plan.module), tally)
    outputs = [x for x in tree_leaves(ran.value) if isinstance(x, torch.Tensor)]
    given = sum(math.prod(plan.spec[i][0]) for i in plan.tensors)
    input_bytes = sum(plan.nbytes(i) for i in plan.tensors)
    returned = sum(x.numel() for x in outputs)
    kept = [*outputs, *ran.state.values()]
    return Sizes(
        dict(problem.overrides),
        elements=given + returned,
        flop=tally.flop,
        bytes=input_bytes + sum(x.numel() * x.element_size() for x in kept),
        weights=sum(x.numel() for x in ran.state.values()),
        written=tally.written,
        peak=max(tally.peak, returned),
        input_bytes=input_bytes,
        output_elements=returned,
    )


class Search:
    """The constants of one problem while they are made smaller."""

    def __init__(self, problem: Problem, budget: Budget) -> None:
        self.problem, self.budget = problem, budget
        module = problem.module()
        self.values = dict(vars(module))
        found = constants.sizes(problem.path.read_bytes(), self.values)
        self.constants = [c for c in found if c.name not in problem.overrides]
        self.now = {c: c.value for c in self.constants}
        self.runs = 0

    def overrides(self, now: dict[Constant, int]) -> dict[str, Any]:
        """The problem's own overrides, and every constant that differs from the file's."""
        changed: dict[str, Any] = dict(self.problem.overrides)
        for constant, value in now.items():
            if value == constant.value:
                continue
            if constant.positions is None:
                changed[constant.name] = value
            else:
                whole = list(changed.get(constant.name, self.values[constant.name]))
                for position in constant.positions:
                    whole[position] = value
                changed[constant.name] = tuple(whole)
        return changed

    def sized(self, now: dict[Constant, int]) -> Sizes | None:
        """The cost at these values, or None where the problem does not run at them."""
        self.runs += 1
        try:
            return measure(replace(self.problem, overrides=self.overrides(now), work=None))
        except JudgeError:
            return None

    def _smaller(self, chosen: tuple[Constant, ...], factor: int) -> dict[Constant, int] | None:
        """The values with some constants divided by a factor, or None where one would be too small."""
        now = dict(self.now)
        for constant in chosen:
            value = -(-self.now[constant] // factor)
            if value >= self.now[constant] or value < (LEAST_INIT if constant.init else LEAST):
                return None
            now[constant] = value
        return now

    def _moves(self) -> Iterator[tuple[Constant, ...]]:
        """Constants to make smaller together: each alone, the largest first; those of equal value; pairs; all."""
        order = sorted(self.constants, key=lambda c: -self.now[c] / (INIT_WEIGHT if c.init else 1))
        yield from ((c,) for c in order)
        for value in dict.fromkeys(self.now[c] for c in order):
            if len(equal := tuple(c for c in order if self.now[c] == value)) > 1:
                yield equal
        yield from itertools.combinations(order, 2)
        large = tuple(c for c in order if self.now[c] > LEAST_INIT)
        if len(large) > 2:
            yield large

    def steps(self) -> Iterator[Sizes]:
        """Every size on the way from the file's own to one within the budget; the last is the smallest found."""
        sizes = self.sized(self.now)
        if sizes is None:  # again, so that the reason is told
            measure(self.problem)
            return
        yield sizes
        broken: set[tuple[Constant, ...]] = set()  # moves after which the problem did not run
        while (excess := self.budget.excess(sizes)) > 1:
            smaller = self._step(excess, broken)
            if smaller is None and broken:  # what did not run before may run at the sizes of now
                broken.clear()
                smaller = self._step(excess, broken)
            if smaller is None:
                return
            sizes = smaller
            yield sizes
        for sizes in self._told_apart():
            yield sizes

    def _told_apart(self) -> Iterator[Sizes]:
        """Sizes at which constants that differ in the file differ: a kernel that takes one for the other is wrong."""
        done: list[Constant] = []
        for constant in sorted(self.constants, key=lambda c: -c.value):
            others = {self.now[c] for c in done if c.value != constant.value}
            done.append(constant)
            while self.now[constant] in others:
                now = self._smaller((constant,), 2)
                sizes = self.sized(now) if now is not None else None
                if now is None or sizes is None:
                    break
                self.now = now
                yield sizes

    def _step(self, excess: float, broken: set[tuple[Constant, ...]]) -> Sizes | None:
        """The first move that makes the cost fall, made; None where there is none."""
        for move in self._moves():
            if move in broken or self.runs >= MOST_RUNS:
                continue
            far = excess > FAR and min(self.now[c] for c in move) >= FAR
            now = self._smaller(move, 4 if far else 2)
            if now is None:
                continue
            sizes = self.sized(now)
            if sizes is None:
                broken.add(move)
            elif self.budget.excess(sizes) <= GAIN * excess:
                self.now = now
                return sizes
        return None


def _runs(problem: Problem) -> bool:
    """Whether the problem's Model runs on the CPU, on inputs of its own, and returns a finite number."""
    try:
        plan = inputs.plan(problem)
        with torch.random.fork_rng(devices=[]):
            model = inputs.build(problem, plan.module, problem.init_inputs(plan.module))
        with torch.no_grad():
            value = model(*plan.make(CHECK_SEED, torch.device("cpu")))
    except JudgeError:
        return False
    except Exception:  # of the problem's own code: an index that is out of range, an operation that the CPU lacks
        return False
    return all(bool(x.isfinite().any()) for x in tree_leaves(value) if isinstance(x, torch.Tensor))


def derive(problem: Problem, budget: Budget = Budget()) -> Sizes:
    """The sizes at which a problem costs no more than a budget, or the smallest that were found.

    The problem's own overrides stay as they are. Raises JudgeError where the file does not run, at any of its sizes.
    """
    tried = list(Search(problem, budget).steps())
    for sizes in reversed(tried):
        if sizes.flop > MOST_FLOP or sizes.bytes + 4 * sizes.peak > MOST_BYTES:
            break
        if _runs(replace(problem, overrides=sizes.overrides, work=None)):
            return sizes
    why = f"the smallest that was found needs {tried[-1].flop:.2g} operations and {gigabytes(tried[-1].bytes)}"
    raise JudgeError(f"no reduced size of {problem.path.name} runs on the CPU", why, "Give one: --set NAME=VALUE.")


def gigabytes(count: float) -> str:
    """Bytes as people read them."""
    return f"{count / 1e9:.2g} GB" if count < 10e9 else f"{count / 1e9:.0f} GB"
