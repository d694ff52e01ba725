"""Where a wrong output is wrong: the simplest input case that failed is run again and looked at element by element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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


@dataclass
class _Seen:
    """One output of one call beside the reference. rows, columns: wrong elements by row, and by place in a row."""

    shape: list[int]
    dims: int  # leading dimensions that are rows
    wrong: int = 0
    odd: int = 0  # of these not finite
    blank: int = 0  # of these never written
    tainted: int = 0  # of these computed from memory that was never written
    zeros: int = 0  # of these 0
    first: int = -1
    last: int = -1
    values: tuple[float, float] = (0.0, 0.0)  # expected and got at `first`
    rows: list[torch.Tensor] = field(default_factory=list)
    columns: torch.Tensor | None = None
    products: torch.Tensor | None = None  # sums of y y, y r, r r over wrong elements
    squares: torch.Tensor | None = None  # sums of y y, r r over all finite ones
    shuffled: bool = False  # the same values in another order
    sums: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def index(self, flat: int) -> list[int]:
        """Return the index of an element of the flattened output."""
        found = []
        for size in reversed(self.shape):
            flat, at = divmod(flat, size)
            found.append(at)
        return found[::-1]

    def add(self, output: torch.Tensor, reference: torch.Tensor, start: int, limit: float) -> None:
        """Add a chunk of rows from the element `start` on. limit: an error relative to an element that is too large."""
        rows = output.shape[0] if output.dim() else 1
        limit = limit if output.is_floating_point() else 0.0
        ours, due = output.reshape(rows, -1), reference.reshape(rows, -1)
        usual = due.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()
        for at in range(0, rows, step := max(1, _SLICE // max(1, ours.shape[1]))):
            self._add(ours[at : at + step], due[at : at + step], start + at * ours.shape[1], limit, usual)
        if list(reference.shape) == self.shape or (self.dims == 1 and not self.sums):
            self._sum_up(output.double(), reference, whole=list(reference.shape) == self.shape)

    def _add(
        self, output: torch.Tensor, due: torch.Tensor, start: int, limit: float, usual: torch.Tensor
    ) -> None:  # fmt: skip
        ours, known = output.double(), torch.isfinite(due)
        size = due.nan_to_num(0.0, 0.0, 0.0).abs()
        same = ((ours - due).abs() <= limit * (size + usual)) | (~known & ~torch.isfinite(ours))
        bad, finite = ~same, torch.isfinite(ours) & known
        y, r = ours.masked_fill(~finite, 0.0), due.masked_fill(~finite, 0.0)
        flat = bad.reshape(-1).nonzero()
        if len(flat) and not self.wrong:
            at = int(flat[0])
            self.first, self.values = start + at, (float(due.reshape(-1)[at]), float(ours.reshape(-1)[at]))
        self.last = start + int(flat[-1]) if len(flat) else self.last
        self.wrong += len(flat)
        self.odd += int((bad & ~torch.isfinite(ours)).sum())
        self.zeros += int((bad & (ours == 0)).sum())
        self.blank += int((marked(output).reshape(bad.shape) & bad).sum())
        self.rows.append(bad.sum(1).cpu())
        self.columns = bad.sum(0) if self.columns is None else self.columns + bad.sum(0)
        products = torch.stack([(a * b)[bad].sum() for a, b in ((y, y), (y, r), (r, r))])
        self.products = products if self.products is None else self.products + products
        squares = torch.stack([y.square().sum(), due.masked_fill(~known, 0.0).square().sum()])
        self.squares = squares if self.squares is None else self.squares + squares

    def _sum_up(self, y: torch.Tensor, r: torch.Tensor, *, whole: bool) -> None:
        """Note the mean and the spread of sums and mean squares along every dimension of the first chunk."""
        if whole and y.numel() <= _SLICE:
            ours, due = (x.flatten().sort().values for x in (y, r))
            self.shuffled = bool((ours - due).square().mean() < _STEADY**2 * due.square().mean())
        for dim, size in enumerate(r.shape):
            if size > 1 and (dim >= self.dims or whole):
                for name, of in (("the sum", torch.sum), ("the mean square", _mean_square)):
                    self.sums[f"{name} along dimension {dim}"] = [_steady(of(x, dim)) for x in (r, y)]

    # -- what wrong elements have in common

    def patterns(self) -> Iterator[str]:
        """Yield sentences on the values, and on the places, of the wrong elements."""
        values, places = list(self._values()), list(self._places())
        yield from values
        yield from places
        if not places and not (self.odd or self.zeros == self.wrong):
            yield from self._normalised()
            if self.shuffled:
                yield "the output has the expected values in another order: look for indices, strides, a transposition"

    def _values(self) -> Iterator[str]:
        counts = {
            "were never written": self.blank,
            "are computed from memory that was never written": self.tainted,
            "are NaN or infinite: look for overflow, 0 / 0, or the root of a negative number":
                self.odd - self.blank - self.tainted,
            "are 0": self.zeros,
        }  # fmt: skip
        for text, count in counts.items():
            if count > _ALL * self.wrong:
                yield f"all of them {text}"
            elif count:
                yield f"{count:,} of them {text}"
        assert self.products is not None
        ours, both, due = self.products.tolist()
        if (
            max(counts.values()) <= _ALL * self.wrong
            and both
            and both * both > (1 - _ALIKE) * ours * due
            and abs(both / due - 1) > _CLEAR
        ):
            yield f"they are about {both / due:.3g} times the expected values"

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
        found = sorted(self._groups(), key=lambda one: (one[0], len(one[1])))
        taken = set[int]()
        for _, dims, text in found:
            if not taken & {*dims}:
                taken |= {*dims}
                yield text

    def _groups(self) -> Iterator[tuple[float, range, str]]:
        """Yield (share of the places, dimensions, text) of dimensions with a pattern."""
        assert self.columns is not None
        counts = torch.cat(self.rows), self.columns.cpu()
        for at, (begin, end) in enumerate(((0, self.dims), (self.dims, len(self.shape)))):
            sizes = self.shape[begin:end]
            if math.prod(sizes) != len(counts[at]):
                continue
            for low, high in itertools.combinations(range(len(sizes) + 1), 2):
                hit = counts[at].reshape(math.prod(sizes[:low]), -1, math.prod(sizes[high:])).sum((0, 2)) > 0
                if text := _described(hit.nonzero().flatten().tolist(), len(hit)):
                    dims = range(begin + low, begin + high)
                    yield float(hit.double().mean()), dims, f"{_named(dims)} {text}"
        if self.wrong == self.last - self.first + 1 < self.elements:
            text = _described(range(self.first, self.last + 1), self.elements)
            yield self.wrong / self.elements, range(len(self.shape)), f"of the output as one row {text}"


def _mean_square(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.square().mean(dim)


def _steady(x: torch.Tensor) -> tuple[float, float]:
    """Return the mean, and the largest distance from it over its size."""
    mean = float(x.mean())
    return mean, float((x - mean).abs().max()) / abs(mean) if mean else math.inf


def _named(dims: range) -> str:
    if len(dims) == 1:
        return f"in dimension {dims[0]}"
    return f"in dimensions {dims[0]} to {dims[-1]}, taken as one,"


def _described(hit: Sequence[int], size: int) -> str:
    """Say which of `size` places are hit, if they are a run or evenly spaced."""
    count = len(hit)
    if not 0 < count < size:
        return ""
    low, high = hit[0], hit[-1]
    steps = {b - a for a, b in itertools.pairwise(hit[: 1 << 16])}
    if count == 1:
        return f"only index {low} of {size:,}" + ", the last" * (low == size - 1)
    if high - low == count - 1:
        return _run(low, high, size)
    return f"one of every {steps.pop()} of {size:,}, from {low} on" if len(steps) == 1 else ""


def _run(low: int, high: int, size: int) -> str:
    """Describe the places from low to high; at an end of all places also by how many there are, and by blocks."""
    at_end = high == size - 1
    start = low if at_end else high - low + 1
    block = math.gcd(start, 1 << 20)
    blocks = f" ({start} = {start // block} x {block})" if _LEAST_BLOCK <= block < start else ""
    end = f", the last {high - low + 1:,}" if at_end else "" if low else f", the first {high + 1:,}"
    return f"only {low:,} to {high:,} of {size:,}{end}{blocks}"


def look(evaluation: Evaluation, planned: list[Trial], solution: Implementation, reasons: list[Reason]) -> Where:
    """Return where a solution is wrong. reasons: of its verdict, the simplest first."""
    printed = solution.printed()
    failed = list(dict.fromkeys(reason.trial for reason in reasons))
    kinds = {trial.kind for trial in planned if trial.decides}
    told = Where(
        trial=failed[0] if failed else "", failed=len(failed), trials=len(kinds),
        trace=solution.trace, printed=printed,
    )  # fmt: skip
    trials = [trial for trial in planned if trial.kind == told.trial and trial.decides]
    if solution.failed == "error" and told.trial in kinds and solution.trace:
        return told.model_copy(update={"trial": _simplest(evaluation, planned, solution, reasons[0])})
    if solution.failed not in ("", "incorrect"):
        return told
    for far, trial in itertools.product(_FAR, trials):
        try:
            with evaluation.workers.gpu.trial():
                found = _Look(evaluation, solution, trial, far).found()
        except (SolutionError, torch.cuda.OutOfMemoryError):
            return told
        if found is not None:
            patterns = [*found.patterns, *alone(failed)]
            return told.model_copy(update=found.to_json() | {"example": found.example, "patterns": patterns})
    return told.model_copy(update={"patterns": [_SMALL, *alone(failed)] if trials else []})


def _simplest(evaluation: Evaluation, planned: list[Trial], solution: Implementation, reason: Reason) -> str:
    """Return the kind of the simplest input case at which an error comes again, or the one at which it came first."""
    trial = min((trial for trial in planned if trial.decides), key=lambda trial: ORDER.index(trial.kind))
    try:
        with evaluation.workers.gpu.trial():
            _Look(evaluation, solution, trial).once()
    except SolutionError as error:
        return trial.kind if error.code == reason.code else reason.trial
    return reason.trial


class _Look:
    """Calls of a solution on the inputs of one trial."""

    def __init__(
        self, evaluation: Evaluation, solution: Implementation, trial: Trial, far: float = _FAR[0]
    ) -> None:  # fmt: skip
        self.evaluation, self.solution, self.trial = evaluation, solution, trial
        fixture = evaluation.fixture
        limits = fixture.trials[trial.kind].limits
        loosest = [limits[klass] for klass in CLASSES[fixture.dtype] if limits.get(klass)][-1:]
        self.limit = far * loosest[0].get("rel_l2", 0.02) if loosest else 0.1

    def found(self) -> Where | None:
        """Return what is wrong; None if every call is right."""
        bits, seen = self._calls()
        wrong = [of for of in bits if seen[of] is not None]
        if not wrong:
            return None
        at = seen[wrong[0]]
        assert at is not None
        place, one = at
        place, one = self._unwritten() or (place, one)
        patterns = [*one.patterns(), *self._by_call(bits, [seen[of] is not None for of in bits], one)]
        assert one.squares is not None
        ours, due = one.squares.sqrt().tolist()
        return Where(
            output=place, shape=one.shape, elements=one.elements, wrong=one.wrong, first=one.index(one.first),
            last=one.index(one.last), norm=ours, expected_norm=due, patterns=patterns, example=self._example(one),
        )  # fmt: skip

    def _unwritten(self) -> tuple[int, _Seen] | None:
        """Return what is wrong where new memory is marked, if marks or what is computed of them reach the output."""
        found, clean = (self._seen(fill) for fill in ("marks", "zeros"))
        if found is None:
            return None
        one = found[1]
        one.tainted = max(0, one.odd - one.blank - (clean[1].odd if clean else 0))
        return found if one.blank or one.tainted else None

    def _example(self, one: _Seen) -> Example | None:
        if self.evaluation.options.trust != "dev":
            return None
        expected, got = one.values
        trial = self.trial
        return Example(expected=expected, got=got, seed=trial.seed, stress=trial.stress, perturbed=trial.perturbed)

    def _fresh(self) -> None:
        """Put the solution into a new process, if it has one of its own. Raises SolutionError."""
        workers = self.evaluation.workers
        if self.evaluation.options.trust != "dev":
            workers.end(self.solution)
        if self.solution.worker is None:
            workers.start(self.solution)
        if self.solution.worker is None:
            raise SolutionError("exception", "it did not start again")
        self.evaluation.trials.load(self.solution, self.trial)

    def once(self) -> None:
        """Make one call in a new process."""
        self._fresh()
        self._call()

    def _calls(self) -> tuple[list[tuple[int, ...]], dict[tuple[int, ...], tuple[int, _Seen] | None]]:
        """Return digests of the output of each of some calls in a new process, and what is wrong by these digests."""
        self._fresh()
        bits, seen = [], dict[tuple[int, ...], tuple[int, _Seen] | None]()
        for _ in range(CALLS):
            self._call()
            bits.append(tuple(self.evaluation.comparison.digests(self.solution)))
            if bits[-1] not in seen:
                seen[bits[-1]] = self._compared()
        return bits, seen

    def _call(self, fill: str = "") -> None:
        evaluation = self.evaluation
        evaluation.trials.fill(self.solution, self.trial)
        answer = evaluation.workers.call(self.solution, fill=fill)
        evaluation.comparison.check(answer.get("output"))

    def _seen(self, fill: str) -> tuple[int, _Seen] | None:
        self._call(fill)
        return self._compared()

    def _compared(self) -> tuple[int, _Seen] | None:
        """Return the place of the output of the last call that has most wrong elements, and what was seen of it."""
        shape = self.evaluation.expected.shape
        sizes, dims = [leaf["shape"] for _, leaf in leaves(shape.spec)], shape.plan.problem.batch_dims
        every = [_Seen(size, dims if shape.rows else min(1, len(size))) for size in sizes]
        for place, part, output, reference in self.evaluation.comparison.pairs(self.solution):
            one = every[place]
            start = part.start * (one.elements // max(1, math.prod(one.shape[: one.dims]))) if part else 0
            one.add(output, reference, start, self.limit)
        place = max(range(len(every)), key=lambda at: every[at].wrong)
        return (place, every[place]) if every[place].wrong else None

    def _by_call(self, bits: list[tuple[int, ...]], wrong: list[bool], one: _Seen) -> Iterator[str]:
        """Say which calls on the same inputs are wrong, and whether they are so again in a new process."""
        if len(set(bits)) == 1 or one.blank or one.tainted:
            return
        if all(wrong):
            which = "calls on the same inputs give different outputs"
        elif wrong == [call % 2 == int(wrong[1]) for call in range(CALLS)]:
            which = "every second call on the same inputs is wrong"
        elif not any(wrong[:1]) and all(wrong[1:]):
            which = "the first call is right, and every later one on the same inputs is wrong"
        else:
            numbers = " and ".join(str(call + 1) for call, bad in enumerate(wrong) if bad)
            which = f"of {CALLS} calls on the same inputs {numbers} is wrong"
        if self.evaluation.options.trust == "dev":
            yield which
            return
        again, _ = self._calls()
        yield which + (
            ", and the same again in a new process: something is kept from call to call, such as a buffer that is "
            "never cleared; it is no race" if again == bits else
            ", and others in a new process: a race"
        )  # fmt: skip
