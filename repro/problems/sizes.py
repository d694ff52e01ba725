"""Sizes of any KernelBench file: what a call of its Model costs, and reduced sizes for a machine without a GPU.

A reduced size is searched for by halving the constants that the file's inputs and constructor arguments are made from.
Every attempt is a run on the meta device, which takes milliseconds; the last one is run on the CPU.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from repro.errors import JudgeError, PrerequisiteError
from repro.problems import constants, meta
from repro.problems import plan as inputs
from repro.problems.catalogue import ITEMSIZE, Problem
from repro.problems.constants import Constant, Overrides

# No constructor argument is made smaller than this: kernel sizes, groups and heads stay as published.
_LEAST_INIT = 16
# Channels of a group of a norm, where the file has as many.
_LEAST_GROUP = 8
# When the largest constant is looked for, constructor arguments count as this much smaller, and those that set the
# leading dimension of inputs alone as this much larger: blocks of a matrix product and heads of attention want width,
# deep networks want an image, and a batch of a few rows is enough.
_INIT_WEIGHT, _LEADING_WEIGHT = 1 / 4, 8
# No other size is made smaller than this: a batch of one row hides what depends on the other rows.
_LEAST = 2
# A step counts where the excess falls at least by this much.
_GAIN = 0.03
# From this excess on, and for values from this one on, a step divides by four.
_FAR = 64
# A candidate that costs more than this is not run on the CPU.
_MOST_FLOP, _MOST_BYTES = 1 << 32, 4 << 30
_CHECK_SEED = 1
_MEMINFO = Path("/proc/meminfo")
# Control groups of either version: folder, limit, use, and the part of the use that is a cache of files.
_CGROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
# The largest power of two whose remainders a reduced size keeps.
_BLOCK = 128
# A search ends after this many runs on the meta device.
_MOST_RUNS = 80
# What a reduced size may cost, by the fields of Sizes.
_BUDGET = {"elements": 1 << 17, "written": 1 << 20, "weights": 1 << 20, "flop": 1 << 28}
# Constants that are made smaller together; and what constants are.
_Move = tuple[Constant, ...]
_Values = dict[Constant, int]


@dataclass(frozen=True)
class Sizes:
    """A problem's sizes and what one call of its Model costs at them.

    overrides: constants that differ from the file's. elements: of inputs and outputs. written: elements that all
    operations write. weights: elements of the state dict. flop: of matrix products, convolutions and attention. bytes:
    of inputs, outputs and weights. peak: the most elements of intermediate results and outputs that live at once.
    """

    overrides: Overrides
    elements: int
    flop: int
    bytes: int
    weights: int
    written: int
    peak: int
    input_bytes: int = field(repr=False)
    output_elements: int = field(repr=False)

    @property
    def excess(self) -> float:
        """How far over the budget they are: logarithms of every quantity's excess, added up; 0 is within it.

        All count, because the worst may be one that no constant of the file can change.
        """
        return sum(math.log(max(1.0, getattr(self, name) / bound)) for name, bound in _BUDGET.items())


def measure(problem: Problem) -> Sizes:
    """What one call costs at the problem's sizes, by a run on the meta device. Raises JudgeError where it fails."""
    plan = inputs.plan(problem)
    tally = meta.Tally()
    ran = meta.run(plan, problem.init_inputs(plan.module), tally)
    outputs = meta.tensors(ran.value)
    given = sum(math.prod(plan.spec[i][0]) for i in plan.tensors)
    returned = sum(x.numel() for x in outputs)
    kept = [*outputs, *ran.state.values()]
    return Sizes(
        dict(problem.overrides),
        elements=given + returned,
        flop=tally.flop,
        bytes=plan.input_bytes + sum(x.numel() * x.element_size() for x in kept),
        weights=sum(x.numel() for x in ran.state.values()),
        written=tally.written,
        peak=max(tally.peak, returned),
        input_bytes=plan.input_bytes,
        output_elements=returned,
    )


class Search:
    """The constants of one problem while they are made smaller."""

    def __init__(self, problem: Problem, *, init: bool) -> None:
        """init: whether constructor arguments change too."""
        self.problem = problem
        module = problem.module()
        self.values = dict(vars(module))
        every = constants.sizes(problem.source, self.values)
        self.constants = [c for c in every if c.name not in problem.overrides and (init or not c.init)]
        self.now = {c: c.value for c in self.constants}
        self.weight = {c: _INIT_WEIGHT if c.init else _LEADING_WEIGHT if self._leads(c) else 1 for c in self.constants}
        self.runs = 0

    def _leads(self, constant: Constant) -> bool:
        """Whether a constant sets dimension 0 of some inputs and no other one."""
        try:
            whole, half = (
                inputs.plan(self.problem.at(self.overrides({constant: value})))
                for value in (constant.value, -(-constant.value // 2))
            )
        except JudgeError:
            return False
        shapes = [(whole.spec[i][0], half.spec[i][0]) for i in whole.tensors if i in half.tensors]
        return all(a[1:] == b[1:] for a, b in shapes) and any(a != b for a, b in shapes)

    def overrides(self, now: _Values) -> Overrides:
        """The problem's own overrides, and every constant that differs from the file's."""
        changed: Overrides = dict(self.problem.overrides)
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

    def sized(self, now: _Values) -> Sizes | None:
        """The cost at these values, or None where the problem does not run at them."""
        self.runs += 1
        try:
            return measure(self.problem.at(self.overrides(now)))
        except JudgeError:
            return None

    def _smaller(self, chosen: _Move, factor: int) -> _Values | None:
        """The values with some constants divided by a factor, or None where one would be too small."""
        now = dict(self.now)
        for constant in chosen:
            value = -(-self.now[constant] // factor)
            if value >= self.now[constant] or value < (_LEAST_INIT if constant.init else _LEAST):
                return None
            now[constant] = value
        return now

    def _by_size(self) -> list[Constant]:
        """The constants, the largest first."""
        return sorted(self.constants, key=lambda c: -self.now[c] * self.weight[c])

    def _moves(self, broken: set[_Move]) -> Iterator[_Move]:
        """Constants to make smaller together: each alone, the largest first. Then, with one that cannot be made smaller
        alone: those of equal value, pairs, all."""
        order = self._by_size()
        yield from ((c,) for c in order)
        for value in dict.fromkeys(self.now[c] for c in order):
            if len(equal := tuple(c for c in order if self.now[c] == value)) > 1:
                yield equal
        yield from (pair for pair in itertools.combinations(order, 2) if any((c,) in broken for c in pair))
        large = tuple(c for c in order if self.now[c] > _LEAST_INIT)
        if len(large) > 2 and any((c,) in broken for c in large):
            yield large

    def steps(self) -> Iterator[Sizes]:
        """Every size on the way from the file's own to one within the budget; the last is the smallest found."""
        sizes = measure(self.problem)
        yield sizes
        broken: set[_Move] = set()  # moves after which the problem did not run
        while (excess := sizes.excess) > 0:
            smaller = self._step(excess, broken)
            if smaller is None and broken:  # what did not run before may run at the sizes of now
                broken.clear()
                smaller = self._step(excess, broken)
            if smaller is None:
                break
            sizes = smaller
            yield sizes
        yield from self._grouped()
        yield from self._told_apart()
        yield from self._divisible(sizes)

    def _grouped(self) -> Iterator[Sizes]:
        """Sizes at which groups of a norm have channels enough: of two, a norm is always 1 or -1."""
        for constant in self.constants:
            least = min(_LEAST_GROUP, self._channels(constant, {}))
            while self._channels(constant, self.now) < least and (now := self._smaller((constant,), 2)):
                if (sizes := self.sized(now)) is None:
                    break
                self.now = now
                yield sizes

    def _channels(self, constant: Constant, now: _Values) -> int:
        """The channels of a group of the norms that have as many groups as a constant says; 0 if there are none."""
        plan = inputs.plan(self.problem.at(self.overrides(now)))
        groups = now.get(constant, constant.value)
        found = meta.model(plan, plan.problem.init_inputs(plan.module)).modules()
        norms = (m for m in found if isinstance(m, nn.GroupNorm) and m.num_groups == groups)
        return min((norm.num_channels // groups for norm in norms), default=0)

    def _divisible(self, sizes: Sizes) -> Iterator[Sizes]:
        """Sizes that the powers of two up to _BLOCK divide as they divide the file's, and that are powers of two where
        those are: a kernel that needs whole blocks is right at both or wrong at both. Smaller powers where these cost
        too much; of a batch only up to 16."""
        most = sizes.excess
        for constant in self._by_size():
            powers = (16,) if self.weight[constant] == _LEADING_WEIGHT else (_BLOCK, 64, 32, 16)
            equal = {c: self.now[c] for c in self.constants if c.value == constant.value}
            if self.now[constant] == constant.value:
                continue
            tries = itertools.product(powers, (constant.value, self.now[constant]), ([constant], [*equal]))
            for power, limit, chosen in tries:
                value = _nearest(constant.value, self.now[constant], power, limit)
                now = self.now | dict.fromkeys(chosen, value)
                if value == self.now[constant]:
                    break
                found = self.sized(now)
                if found is not None and found.excess <= most:
                    self.now = now
                    yield found
                    break

    def _told_apart(self) -> Iterator[Sizes]:
        """Sizes at which constants that differ in the file differ: a kernel that takes one for the other is wrong."""
        done: list[Constant] = []
        for constant in sorted(self.constants, key=lambda c: -c.value):
            others = {self.now[c] for c in done if c.value != constant.value}
            done.append(constant)
            if self.now[constant] in others and (now := self._smaller((constant,), 2)) is not None:
                sizes = self.sized(now)
                if sizes is not None:
                    self.now = now
                    yield sizes

    def _step(self, excess: float, broken: set[_Move]) -> Sizes | None:
        """The first move that makes the cost fall, made; None where there is none."""
        for move in self._moves(broken):
            if move in broken or self.runs >= _MOST_RUNS:
                continue
            far = excess > math.log(_FAR) and min(self.now[c] for c in move) >= _FAR
            now = self._smaller(move, 4 if far else 2)
            if now is None:
                continue
            sizes = self.sized(now)
            if sizes is None:
                broken.add(move)
            elif sizes.excess <= excess - _GAIN:
                self.now = now
                return sizes
        return None


def _nearest(published: int, reduced: int, power: int, most: int) -> int:
    """The value nearest to a reduced one that has the published one's greatest common divisor with a power of two, and
    like it is a power of two or none; of those up to `most`, or the least one."""
    shared = math.gcd(published, power)
    able = range(shared, max(most, shared) + 1, shared if shared == power else 2 * shared)
    alike = [value for value in able if (value.bit_count() == 1) == (published.bit_count() == 1)]
    return min(alike or able, key=lambda value: (abs(value - reduced), value))


def _fault(problem: Problem) -> tuple[str, str]:
    """Why the problem's Model does not run on the CPU, on inputs of its own, or returns no finite number, and what to
    do; or "" twice."""
    remedy = "Mend the problem file, use a GPU, or try other constants: --shapes NAME=VALUE"
    try:
        plan = inputs.plan(problem)
        with torch.random.fork_rng(devices=[]):
            model = inputs.build(problem, plan.module, problem.init_inputs(plan.module))
        with torch.no_grad():
            value = model(*plan.make(_CHECK_SEED, torch.device("cpu")))
    except JudgeError as error:
        return f"{error.what}: {error.why}", remedy
    except Exception as error:  # of the problem's own code: an index out of range, an operation that the CPU lacks
        fault = problem.fault("it fails", error, remedy)
        return f"it fails with {fault.why}", fault.remedy
    outputs = meta.tensors(value)
    if not all(x.numel() for x in outputs):
        return "its output is empty", remedy
    return ("", "") if all(bool(x.isfinite().any()) for x in outputs) else ("its output holds no finite number", remedy)


def derive(problem: Problem) -> Sizes:
    """The sizes at which a problem costs no more than the budget, or the smallest that were found.

    The problem's own overrides stay as they are. Raises ProblemError where the file does not run, PrerequisiteError
    where no size that was found runs on the CPU in reasonable time.
    """
    for init in (True, False):
        *_, sizes = Search(problem, init=init).steps()
        needed = sizes.bytes + 4 * sizes.peak
        if sizes.flop > _MOST_FLOP or needed > _MOST_BYTES:
            why = (
                f"it takes {sizes.flop / 1e9:.3g} GFLOP a call and {gigabytes(needed)}; the limits are "
                f"{_MOST_FLOP / 1e9:.2g} GFLOP and {gigabytes(_MOST_BYTES)}"
            )
            remedy = "Use a GPU, or try other constants: --shapes NAME=VALUE"
        else:
            why, remedy = _fault(problem.at(sizes.overrides))
            if not why:
                return sizes
    raise PrerequisiteError(
        f"no reduced size of {problem.key} runs on the CPU",
        f"at the smallest found ({constants.listed(sizes.overrides) or 'the published one'}) {why}",
        remedy,
    )


# -- memory -----------------------------------------------------------------------------------------------------------

# What the judge's and a worker's process take before anything is allocated for a problem: on the CPU interpreters with
# torch, on a GPU contexts.
BASE_BYTES = 1 << 30
# The judge's chunk of inputs, outputs and intermediate results where a problem can be split into rows.
_CHUNK_BYTES = 512 << 20
# Bytes of one weight in the models of a fixture, one for each precision, and in the fp64 reference alone.
_MODELS_BYTES, _REFERENCE_BYTES = 8 + 4 + 4 + 2, 8


def needed_bytes(problem: Problem, sizes: Sizes, device: str) -> tuple[int, int]:
    """Bytes that judging takes at least: on the host, and on the GPU (0 where there is none).

    Counted are the inputs, the reference in fp64 with its intermediate results, the outputs that are compared, the
    weights of every precision, and one worker.
    """
    size = ITEMSIZE[problem.dtype]
    wide = sizes.input_bytes * (1 + 8 // size) + 8 * (sizes.peak + 2 * sizes.output_elements)
    if problem.batch_inputs:
        wide = min(wide, _CHUNK_BYTES)
    kept = 2 * size * sizes.weights  # published and perturbed, on the host
    fixture = wide + _MODELS_BYTES * sizes.weights
    worker = size * (sizes.weights + sizes.output_elements)
    judging = sizes.input_bytes + worker + max(wide + _REFERENCE_BYTES * sizes.weights, size * sizes.peak)
    if device == "cpu":
        return BASE_BYTES + kept + max(fixture, judging), 0
    return BASE_BYTES + kept + _REFERENCE_BYTES * sizes.weights, BASE_BYTES + max(fixture, judging)


def listed(taken: Sizes) -> tuple[str, str]:
    """Return traffic in GB and arithmetic in GFLOP of one call, as text."""
    return f"{taken.bytes / 1e9:.3g}", f"{taken.flop / 1e9:.3g}"


def free_bytes() -> int:
    """Memory that this process may still take: what the host has available, or what its control group leaves."""
    fields = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
    free = [int(fields["MemAvailable"].split()[0]) << 10]
    for folder, limit, used, cache in _CGROUPS:
        with contextlib.suppress(OSError, ValueError, KeyError):  # no such control group, or no limit
            kinds = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            taken = int((folder / used).read_text()) - int(kinds[cache])  # what files take is given back when asked
            free.append(int((folder / limit).read_text()) - taken)
    return max(0, min(free))


def settle(problem: Problem, given: Overrides, *, known: bool) -> Problem:
    """The problem at the sizes at which it is judged: with the overrides that were given, and at smoke size with
    derived ones unless its small sizes are known. Raises JudgeError where no size runs."""
    problem = problem.at(given)
    if problem.size == "smoke" and not known:
        problem = problem.at(derive(problem).overrides)
    return problem


def require_memory(problem: Problem, measured: Sizes, device: str) -> None:
    """Raises PrerequisiteError where judging needs more memory than is free, before any is taken.

    measured: what a call takes.
    """
    host, gpu = needed_bytes(problem, measured, device)
    memories = [(host, free_bytes(), "this machine")]
    if gpu:
        memories.append((gpu, torch.cuda.mem_get_info()[0], "this GPU"))
    changed = f" ({constants.listed(problem.overrides)})" if problem.overrides else ""
    for needed, free, where in memories:
        if needed > free:
            raise PrerequisiteError(
                f"problem {problem.key} at {problem.size} size{changed} needs about {gigabytes(needed)}; {where} has "
                f"{gigabytes(free)} free",
                remedy="Use --size smoke, or shrink it: --shapes NAME=VALUE",
            )


def gigabytes(count: float) -> str:
    """Bytes as people read them."""
    return f"{count / 1e9:.2g} GB" if count < 10e9 else f"{count / 1e9:.0f} GB"
