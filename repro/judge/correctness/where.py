"""Where a wrong output is wrong: the simplest input case that failed is run again and looked at element by element."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from repro.errors import SolutionError
from repro.judge.correctness.input_cases import Trial
from repro.judge.correctness.tolerances import CLASSES
from repro.judge.correctness.verification import Evaluation
from repro.judge.implementation import Implementation
from repro.judge.worker.outputs import marked
from repro.problems.meta import leaves
from repro.records.verdict import Reason
from repro.records.where import Example, Where
from repro.records.wording import CASES, alone

# Input cases from simple to strange.
ORDER = list(CASES)
# Calls on the same inputs.
CALLS = 4
# An element is wrong beyond this many times the relative L2 limit of the loosest class, of its size and the usual one.
# Where none is, the second number shows an error that is small and everywhere.
_FAR = (4.0, 0.5)
# Shares from which on a pattern holds, and the largest spread of a sum or a ratio that is called one.
_ALL, _ALIKE, _STEADY = 0.99, 0.02, 0.002
# A ratio or a sum is named if it is at least this far from the expected one.
_CLEAR = 0.01
# Least power of two that is called a block.
_LEAST_BLOCK = 16
# Elements that are looked at together: about ten temporaries of 32 MiB.
_SLICE = 1 << 22
_SMALL = "no element is far off: the error is small and everywhere, or it did not come again"


class _Totals(NamedTuple):
    """Counts of wrong elements, and sums over them of y y, y r and r r; sums of y y and r r over all finite ones."""

    wrong: float = 0.0
    odd: float = 0.0  # not finite
    blank: float = 0.0  # never written
    zeros: float = 0.0
    ours: float = 0.0
    both: float = 0.0
    due: float = 0.0
    all_ours: float = 0.0
    all_due: float = 0.0


@dataclass
class _Seen:
    """One output of one call beside the reference. rows, columns: wrong elements by row, and by place in a row."""

    shape: list[int]
    dims: int  # leading dimensions that are rows
    of: _Totals = _Totals()
    tainted: int = 0  # wrong elements computed from memory that was never written
    first: int = -1
    last: int = -1
    values: tuple[float, float] = (0.0, 0.0)  # expected and got at `first`
    rows: list[torch.Tensor] = field(default_factory=list)
    columns: torch.Tensor | int = 0
    shuffled: bool = False  # the same values in another order
    sums: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def index(self, flat: int) -> list[int]:
        """Return the index of an element of the flattened output."""
        return [int(at) for at in torch.unravel_index(torch.tensor(flat), self.shape)]

    def add(self, output: torch.Tensor, reference: torch.Tensor, start: int, limit: float) -> None:
        """Add a chunk of rows from the element `start` on. limit: an error relative to an element that is too large."""
        rows = output.shape[0] if output.dim() else 1
        limit = limit if output.is_floating_point() else 0.0
        ours, due = output.reshape(rows, -1), reference.reshape(rows, -1)
        usual = due.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()
        step = max(1, _SLICE // max(1, ours.shape[1]))
        for y, r in zip(ours.split(step), due.split(step), strict=True):
            self._add(y, r, start, limit * (r.nan_to_num(0.0, 0.0, 0.0).abs() + usual))
            start += y.numel()
        whole = list(reference.shape) == self.shape
        if whole or (self.dims == 1 and not self.sums):
            self._sum_up(output.double(), reference, whole=whole)

    def _add(self, output: torch.Tensor, due: torch.Tensor, start: int, limit: torch.Tensor) -> None:
        ours, known = output.double(), torch.isfinite(due)
        odd = ~torch.isfinite(ours)
        bad = ~((ours - due).abs() <= limit) & (known | ~odd)
        y, r = ours.masked_fill(odd | ~known, 0.0), due.masked_fill(~known, 0.0)
        if len(flat := bad.reshape(-1).nonzero()):
            if self.first < 0:
                at = int(flat[0])
                self.first, self.values = start + at, (float(due.reshape(-1)[at]), float(ours.reshape(-1)[at]))
            self.last = start + int(flat[-1])
        masks = bad, bad & odd, bad & marked(output), bad & (ours == 0)
        sums = *masks, bad * y * y, bad * y * r, bad * ~odd * r * r, y * y, r * r
        more = torch.stack([x.sum(dtype=torch.float64) for x in sums]).tolist()
        self.of = _Totals(*map(sum, zip(self.of, more, strict=True)))
        self.rows.append(bad.sum(1).cpu())
        self.columns = bad.sum(0) + self.columns  # on its device: a row of L1_36 has 17 million

    def _sum_up(self, y: torch.Tensor, r: torch.Tensor, *, whole: bool) -> None:
        """Note the mean and the spread of sums and mean squares along every dimension of the first chunk."""
        if whole and y.numel() <= _SLICE:
            ours, due = (x.flatten().sort().values for x in (y, r))
            self.shuffled = bool((ours - due).square().mean() < _STEADY**2 * due.square().mean())
        for dim, size in enumerate(r.shape):
            if 1 < size < r.numel() and (dim >= self.dims or whole):
                self.sums[f"the sum along dimension {dim}"] = [_steady(x.sum(dim)) for x in (r, y)]
                self.sums[f"the mean square along dimension {dim}"] = [_steady(x.square().mean(dim)) for x in (r, y)]

    # -- what wrong elements have in common

    def patterns(self) -> Iterator[str]:
        """Yield sentences on the values, and on the places, of the wrong elements."""
        yield from self._values()
        places = list(self._places())
        yield from places
        if not places and not self.of.odd and self.of.zeros < self.of.wrong:
            yield from self._normalised()
            if self.shuffled:
                yield "the output has the expected values in another order: look for indices, strides, a transposition"

    def _values(self) -> Iterator[str]:
        of, most = self.of, _ALL * self.of.wrong
        counts = {
            "were never written": of.blank,
            "are computed from memory that was never written": self.tainted,
            "are NaN or infinite: look for overflow, 0 / 0, or the root of a negative number":
                of.odd - of.blank - self.tainted,
            "are 0": of.zeros,
        }  # fmt: skip
        for text, count in counts.items():
            if count:
                yield f"{'all' if count > most else f'{count:,.0f}'} of them {text}"
        alike = of.both and of.both**2 > (1 - _ALIKE) * of.ours * of.due and max(counts.values()) <= most
        if alike and abs(of.both / of.due - 1) > _CLEAR:
            yield f"{'they are' if of.wrong > 1 else 'it is'} about {of.both / of.due:.3g} times the expected values"

    def _normalised(self) -> Iterator[str]:
        """Say where the reference has the same sum everywhere and the output has not, and where that has one."""
        theirs = [name for name, ((_, spread), _) in self.sums.items() if spread < _STEADY]
        ours = [name for name, (_, (_, spread)) in self.sums.items() if spread < _STEADY and name not in theirs]
        for name in theirs:
            (due, _), (mean, spread) = self.sums[name]
            if spread > _ALIKE or abs(mean - due) > _CLEAR * abs(due):
                instead = f"{ours[0]} is: a wrong dimension" if ours else f"it is {mean:.3g} on average"
                yield f"{name} is {due:.3g} everywhere in the reference, in the output {instead}"

    def _places(self) -> Iterator[str]:
        """Yield where the wrong elements lie in dimensions, and in dimensions taken together, the narrowest first."""
        taken = set[int]()
        for _, dims, text in sorted(self._groups(), key=lambda one: (one[0], len(one[1]))):
            if taken.isdisjoint(dims):
                taken |= {*dims}
                yield text

    def _groups(self) -> Iterator[tuple[float, range, str]]:
        """Yield (share of the places, dimensions, text) of dimensions with a pattern."""
        for counts, begin, end in (
            (torch.cat(self.rows), 0, self.dims), (torch.as_tensor(self.columns), self.dims, len(self.shape))
        ):  # fmt: skip
            sizes = self.shape[begin:end]
            if math.prod(sizes) != len(counts):
                continue
            for low, high in itertools.combinations(range(len(sizes) + 1), 2):
                hit = counts.reshape(math.prod(sizes[:low]), -1, math.prod(sizes[high:])).sum((0, 2)) > 0
                if text := _described(hit.nonzero().flatten().tolist(), len(hit)):
                    first, last = begin + low, begin + high - 1
                    several = f"in dimensions {first} to {last}, taken as one,"
                    named = f"in dimension {first}" if first == last else several
                    yield float(hit.double().mean()), range(first, last + 1), f"{named} {text}"
        if self.of.wrong == self.last - self.first + 1 < self.elements:
            text = _described(range(self.first, self.last + 1), self.elements)
            yield self.of.wrong / self.elements, range(len(self.shape)), f"of the output as one row {text}"


def _steady(x: torch.Tensor) -> tuple[float, float]:
    """Return the mean, and the largest distance from it over its size."""
    mean = float(x.mean())
    return mean, float((x - mean).abs().max()) / abs(mean) if mean else math.inf


def _described(hit: Sequence[int], size: int) -> str:
    """Say which of `size` places are hit, if they are a run or evenly spaced; a run at an end also by its length."""
    if not 0 < len(hit) < size:
        return ""
    low, high, count = hit[0], hit[-1], len(hit)
    at_end = high == size - 1
    if count == 1:
        return f"only index {low} of {size:,}" + ", the last" * at_end
    if high - low == count - 1:
        start = low if at_end else count
        block = math.gcd(start, 1 << 20)
        blocks = f" ({start} = {start // block} x {block})" if _LEAST_BLOCK <= block < start else ""
        end = f", the last {count:,}" if at_end else "" if low else f", the first {count:,}"
        return f"only {low:,} to {high:,} of {size:,}{end}{blocks}"
    steps = {b - a for a, b in itertools.pairwise(hit[: 1 << 16])}
    return f"one of every {steps.pop()} of {size:,}, from {low} on" if len(steps) == 1 else ""


def look(evaluation: Evaluation, planned: list[Trial], solution: Implementation, reasons: list[Reason]) -> Where:
    """Return where a solution is wrong. reasons: of its verdict, the simplest first."""
    deciding = sorted((trial for trial in planned if trial.judged), key=lambda trial: ORDER.index(trial.kind))
    failed = list(dict.fromkeys(reason.trial for reason in reasons))
    where = Where(
        trial=next(iter(failed), ""), failed=len(failed), trials=len({trial.kind for trial in deciding}),
        trace=solution.trace, printed=solution.printed(),
    )  # fmt: skip
    trials = [trial for trial in deciding if trial.kind == where.trial]
    with contextlib.suppress(SolutionError, torch.cuda.OutOfMemoryError), evaluation.workers.gpu.trial():
        if trials and solution.failed in ("", "incorrect"):
            return where.model_copy(update=_wrong(evaluation, solution, trials, reasons))
        if trials and solution.failed == "error" and (solution.trace or reasons[0].code == "exception"):
            return where.model_copy(update={"trial": _simplest(evaluation, solution, deciding[0], reasons[0])})
    return where


def _wrong(
    evaluation: Evaluation, solution: Implementation, trials: list[Trial], reasons: list[Reason]
) -> dict[str, object]:
    """Return what is wrong on the first of some trials on which anything is."""
    more = alone(list(dict.fromkeys(reason.trial for reason in reasons)))
    named = [int(reason.output.split()[1]) - 1 for reason in reasons if reason.output]
    for far, trial in itertools.product(_FAR, trials):
        if (found := _Look(evaluation, solution, trial, far, named).found()) is not None:
            return found.to_json() | {"example": found.example, "patterns": [*found.patterns, *more]}
    return {"patterns": [_SMALL, *more]}


def _simplest(evaluation: Evaluation, solution: Implementation, trial: Trial, reason: Reason) -> str:
    """Return the kind of the simplest input case if an error comes again there, or that at which it came first."""
    try:
        _Look(evaluation, solution, trial).calls(1)
    except SolutionError as error:
        return trial.kind if error.code == reason.code else reason.trial
    return reason.trial


_Bits = tuple[int, ...]
_Found = tuple[int, _Seen]  # an output's place, and what was seen of it


@dataclass
class _Look:
    """Calls of a solution on the inputs of one trial.

    far: an element is wrong beyond this many times the limit. named: the outputs that its verdict names, the first
    first.
    """

    evaluation: Evaluation
    solution: Implementation
    trial: Trial
    far: float = _FAR[0]
    named: Sequence[int] = ()

    def __post_init__(self) -> None:
        fixture = self.evaluation.fixture
        self.dev = self.evaluation.options.trust == "dev"
        limits = fixture.trials[self.trial.kind].limits
        loosest = [limits[klass] for klass in CLASSES[fixture.dtype] if limits.get(klass)][-1:]
        self.limit = self.far * loosest[0].get("rel_l2", 0.02) if loosest else 0.1

    def found(self) -> Where | None:
        """Return what is wrong; None if every call is right."""
        bits, seen = self.calls()
        wrong = next(filter(None, (seen[of] for of in bits)), None)
        if wrong is None:
            return None
        place, one = self._unwritten() or wrong
        example = None
        if self.dev:
            (expected, got), trial = one.values, self.trial
            example = Example(
                expected=expected, got=got, seed=trial.seed, stress=trial.stress, perturbed=trial.perturbed
            )
        by_call = [] if one.of.blank or one.tainted else self._by_call(bits, [seen[of] is not None for of in bits])
        return Where(
            output=place, shape=one.shape, elements=one.elements, wrong=int(one.of.wrong), first=one.index(one.first),
            last=one.index(one.last), norm=math.sqrt(one.of.all_ours), expected_norm=math.sqrt(one.of.all_due),
            patterns=[*one.patterns(), *by_call], example=example,
        )  # fmt: skip

    def calls(self, count: int = CALLS) -> tuple[list[_Bits], dict[_Bits, _Found | None]]:
        """Return digests of the output of each of some calls in a new process, and what is wrong by these digests.

        Raises SolutionError.
        """
        workers = self.evaluation.workers
        if not self.dev:
            workers.end(self.solution)
        if self.solution.worker is None:
            workers.start(self.solution)
        if self.solution.worker is None:
            raise SolutionError("exception", "it did not start again")
        self.evaluation.trials.load(self.solution, self.trial)
        bits, seen = [], dict[_Bits, _Found | None]()
        for _ in range(count):
            self._call()
            bits.append(tuple(self.evaluation.comparison.digests(self.solution)))
            if bits[-1] not in seen:
                seen[bits[-1]] = self._compared()
        return bits, seen

    def _unwritten(self) -> _Found | None:
        """Return what is wrong where new memory is marked, if marks or what is computed of them reach the output."""
        self._call("marks")
        found = self._compared()
        self._call("zeros")
        clean = self._compared()
        if found is None:
            return None
        one = found[1]
        one.tainted = max(0, int(one.of.odd - one.of.blank - (clean[1].of.odd if clean else 0)))
        return found if one.of.blank or one.tainted else None

    def _call(self, fill: str = "") -> None:
        self.evaluation.trials.fill(self.solution, self.trial)
        self.evaluation.comparison.check(self.evaluation.workers.call(self.solution, fill=fill))

    def _compared(self) -> _Found | None:
        """Return the place of the first wrong output of the last call, of those named or of all that with most wrong
        elements, and what was seen of it."""
        shape = self.evaluation.expected.shape
        sizes, dims = [leaf["shape"] for _, leaf in leaves(shape.spec)], shape.plan.problem.batch_dims
        every = [_Seen(size, dims if shape.rows else min(1, len(size))) for size in sizes]
        for place, part, output, reference in self.evaluation.comparison.pairs(self.solution):
            one = every[place]
            start = part.start * (one.elements // max(1, math.prod(one.shape[: one.dims]))) if part else 0
            one.add(output, reference, start, self.limit)
        most = max(range(len(every)), key=lambda at: every[at].of.wrong)
        place = next((at for at in self.named if every[at].of.wrong), most)
        return (place, every[place]) if every[place].of.wrong else None

    def _by_call(self, bits: list[_Bits], wrong: list[bool]) -> Iterator[str]:
        """Say which calls on the same inputs are wrong, and whether they are so again in a new process."""
        if len(set(bits)) == 1:
            return
        if all(wrong):
            which = "calls on the same inputs give different outputs"
        elif wrong == [call % 2 == int(wrong[1]) for call in range(CALLS)]:
            which = "every second call on the same inputs is wrong"
        else:
            numbers = " and ".join(str(call + 1) for call, bad in enumerate(wrong) if bad)
            which = f"of {CALLS} calls on the same inputs {numbers} is wrong"
        if not self.dev:
            which += (
                ", and the same again in a new process: something is kept from call to call, such as a buffer that is "
                "never cleared; it is no race" if self.calls()[0] == bits else
                ", and others in a new process: a race"
            )  # fmt: skip
        yield which
