"""Distances of an output from the fp64 reference, accumulated over chunks of rows; and the digest of its bits.

rel_l2   ||y - r|| / ||r|| over everything
max      max |y - r| / rms(r): one destroyed element cannot hide in the average
row      max over rows of ||y_i - r_i||, over the root mean square row norm of r: one destroyed row cannot hide
bias     the largest mean of y - r over elements of one sign and one power of two of r, over the larger of their mean
         |r| and that of all elements: rounding averages out there, an approximation of a function does not
zero     max |y| where r is exactly 0, over the rms of the other elements of r: a region of zeros filled with small
         values cannot hide. Only where the reference has zeros, and limited only where a fixture sets a limit.
differ   of integers and booleans: the share that is another one. Of indices of a maximum or a sort, the share that
         points to nothing or stands twice; the guards above are then of the values that they point to.

`Change` measures one more, for inputs that equal the last ones except a few elements:

edit     ||y - r|| / ||r - r0|| over elements that the change of inputs changes clearly; r0: the reference before. An
         output that missed the change has 1
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from repro.judge.correctness.indices import Pointed
from repro.judge.gpu import driver

# Guard -> distance or limit.
Values = dict[str, float]
# Measured for every output. `zero` joins them where the reference has zeros.
GUARDS = ("rel_l2", "max", "row")
ZERO, BIAS, EDIT, DIFFER = "zero", "bias", "edit", "differ"
# Between a guard and the place of its output.
_OF = "@"
# Guard -> reason code of an output that exceeds its limit.
CODES = {name: name for name in GUARDS} | {ZERO: "zero_region", BIAS: BIAS, EDIT: "stale", DIFFER: "differs"}
_LEGACY = {"allclose_1e-2": 1e-2, "allclose_1e-4": 1e-4}
# Powers of two of |r| that `bias` tells apart, from 2**-EXPONENTS to 2**EXPONENTS, and the fewest elements that it
# averages over: a mean of fewer is rounding still.
EXPONENTS, FEWEST = 48, 256
_BINS = 2 * (2 * EXPONENTS + 1)
# About the most elements of a slice that `bias` looks at: of a larger slice, a secret sample.
_BINNED = 1 << 18
# An element changes clearly if it changes by this share of itself, and of the largest change.
CLEARLY, LARGEST_SHARE = 2.0**-5, 2.0**-10
# An output is wrong as a whole from this norm on, if its worst element and row are within a factor of it.
WHOLE, FEW_ELEMENTS = 0.5, 100.0
# fp64 elements that are compared at once: 32 MiB for each temporary.
SLICE_ELEMENTS = 1 << 22
# Elements that are digested at once: two temporaries of 64 MiB.
DIGEST_STEP = 1 << 23
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Odd multipliers of SplitMix64 (Steele et al., OOPSLA'14), as signed 64-bit integers.
GOLDEN, MIX = 0x9E3779B97F4A7C15 - (1 << 64), 0xBF58476D1CE4E5B9 - (1 << 64)


def _change(reference: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    return (reference - before).abs_().nan_to_num_(0.0, 0.0, 0.0)


@dataclass
class Change:
    """Running sums for `edit` over chunks. On a GPU they stay there, so that no chunk waits for the one before."""

    error_sq: float | torch.Tensor = 0.0
    change_sq: float | torch.Tensor = 0.0

    def add(self, output: torch.Tensor, reference: torch.Tensor, before: torch.Tensor) -> None:
        """Add a chunk, in slices. reference, before: fp64, for the inputs after and before the change; of one shape."""
        ours, after, old = (x.reshape(-1).split(SLICE_ELEMENTS) for x in (output, reference, before))
        zero = reference.new_zeros(())
        largest = torch.stack([zero, *(_change(a, b).max() for a, b in zip(after, old, strict=True) if len(a))]).max()
        for x, a, b in zip(ours, after, old, strict=True):
            change = _change(a, b)
            clear = (change >= CLEARLY * torch.maximum(a.abs(), b.abs())) & (change > LARGEST_SHARE * largest)
            error = (x.to(torch.float64) - a).nan_to_num_(0.0, 0.0, 0.0)
            self.error_sq += error.masked_fill_(~clear, 0.0).square_().sum()
            self.change_sq += change.masked_fill_(~clear, 0.0).square_().sum()

    def values(self) -> Values:
        """Return the guard, or nothing if the change of inputs changes nothing clearly."""
        error_sq, change_sq = float(self.error_sq), float(self.change_sq)
        return {EDIT: math.sqrt(error_sq / change_sq)} if change_sq else {}


# Of an output of integers: the reference as it is, or where indices point to.
Whole = torch.Tensor | Pointed | None


@dataclass
class Distance:
    """Running sums over chunks.

    Rows are the entries of dimension 0. A chunk's sums are `pending` until `settle`, so that the next chunk is prepared
    while a GPU works.
    """

    error_sq: float = 0.0
    reference_sq: float = 0.0
    max_error: float = 0.0
    max_row_sq: float = 0.0
    rows: int = 0
    elements: int = 0
    zeros: int = 0
    max_at_zero: float = 0.0
    finite: bool = True
    others: float | torch.Tensor = 0.0  # integers that differ, or indices that cannot be
    whole: bool = False  # integers
    legacy: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(_LEGACY, True))
    change: Change = field(default_factory=Change)  # only of edited inputs
    usual: float = 0.0  # root mean square over draws, of a sum that cancels: its own size says nothing of its rounding
    bins: torch.Tensor | None = None  # by sign and exponent of r: count, sum of y - r, sum of |r|
    pending: list[torch.Tensor] = field(default_factory=list)

    def add(
        self, output: torch.Tensor, reference: torch.Tensor, whole: Whole = None, before: torch.Tensor | None = None
    ) -> None:
        """Add a chunk, in slices of columns.

        output: any dtype; reference: fp64; both (rows, ...), on one device. whole: of integers, the reference as
        integers, or where these point to. before: the reference before an edit of the inputs.
        """
        if whole is not None:
            self.whole = True
            self.others += whole.impossible(output) if isinstance(whole, Pointed) else (output != whole).sum()
        if isinstance(whole, Pointed):
            output, reference = whole.at(output), whole.at(reference)
            before = whole.at(before) if before is not None else None
        if before is not None:
            self.change.add(output, reference, before)
        rows = max(1, reference.shape[0]) if reference.dim() else 1
        ours, expected = output.reshape(rows, -1), reference.reshape(rows, -1)
        self.rows += rows
        self.elements += expected.numel()
        if ours.is_cuda and ours.dtype in driver.KINDS and expected.numel():
            self._whole(ours.contiguous(), expected.contiguous())
            return
        step = max(1, SLICE_ELEMENTS // rows)
        if expected.numel():
            slices = zip(ours.split(step, 1), expected.split(step, 1), strict=True)
            row_sq = functools.reduce(torch.add, itertools.starmap(self._slice, slices))
            self.pending.append(torch.nn.functional.pad(row_sq.max().view(1), (0, 8)))

    def _whole(self, ours: torch.Tensor, expected: torch.Tensor) -> None:
        """Do what `add` does for a chunk on a GPU, without temporaries and without waiting for it."""
        if self.bins is None:
            self.bins = torch.zeros((3, _BINS), dtype=torch.float64, device=expected.device)
        step = _step(min(expected.numel(), SLICE_ELEMENTS))
        first = random.SystemRandom().randrange(step)
        kernel, tolerances = driver.comparison(expected.device), list(_LEGACY.values())
        sums = kernel(ours, expected, tolerances, step, first, self.bins)
        row_sq = sums[:, :, 0].sum(1)
        added, largest = sums.sum((0, 1)), sums.amax((0, 1))
        self.pending.append(torch.stack([row_sq.max(), largest[2], largest[4], *added[[0, 1, 3, 5, 6, 7]]]))

    def settle(self) -> None:
        """Wait for the chunks that a GPU still works on, and add their sums in their order."""
        sums = torch.stack(self.pending).tolist() if self.pending else []
        self.pending.clear()
        for row, error, at_zero, error_sq, reference_sq, zeros, odd, *beyond in sums:
            self.error_sq += error_sq
            self.reference_sq += reference_sq
            self.max_row_sq, self.max_error = max(self.max_row_sq, row), max(self.max_error, error)
            self.zeros, self.max_at_zero = self.zeros + int(zeros), max(self.max_at_zero, at_zero)
            self.finite = self.finite and not odd
            for name, count in zip(_LEGACY, beyond, strict=True):
                self.legacy[name] = self.legacy[name] and not count

    def _slice(self, ours: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """Add one slice (rows, columns) and return the squared error of each row."""
        error, known = ours.to(torch.float64) - expected, expected
        self._bin(error, expected)
        size, odd = error.abs_(), expected.new_zeros(())
        if not math.isfinite(float(size.max())):
            size.masked_fill_((ours == expected) | (ours.isnan() & expected.isnan()), 0.0)
            odd = (~torch.isfinite(size)).any()
            known = expected.masked_fill(~torch.isfinite(expected), 0.0)
        row_sq, zero = size.square().sum(1), expected == 0
        beyond = [(~(size <= expected.abs().mul_(least).add_(least))).any() for least in _LEGACY.values()]
        sums = (row_sq.sum(), known.square().sum(), zero.sum(), odd, *beyond)
        largest = (row_sq.new_zeros(()), size.max(), size.masked_fill(~zero, 0.0).max())
        self.pending.append(torch.stack([x.double() for x in (*largest, *sums)]))
        return row_sq

    def _bin(self, error: torch.Tensor, expected: torch.Tensor) -> None:
        """Add up errors by sign and power of two of the reference, of a sample of a large slice."""
        step = _step(expected.numel())
        first = random.SystemRandom().randrange(step)
        error, expected = (x.reshape(-1)[first::step] for x in (error, expected))
        exponent = torch.frexp(expected).exponent.clamp_(-EXPONENTS, EXPONENTS).add_(EXPONENTS)
        place = torch.where(expected < 0, exponent, exponent + 2 * EXPONENTS + 1)
        finite = torch.isfinite(error) & (expected != 0)  # `zero` is for these
        weights = (finite, error, expected.abs())
        sums = [torch.bincount(place, torch.where(finite, w, 0.0).double(), minlength=_BINS) for w in weights]
        self.bins = torch.stack(sums) if self.bins is None else self.bins + torch.stack(sums)

    def _bias(self) -> Values:
        """Return `bias`, or nothing if no magnitude has elements enough."""
        if self.bins is None:
            return {}
        count, error, size = self.bins.cpu()
        some, usual = count >= FEWEST, float(size.sum() / count.sum().clamp_min(1.0))
        if not bool(some.any()) or not usual:
            return {}
        count, error, size = count[some], error[some], size[some]
        return {BIAS: float(((error / count).abs() / (size / count).clamp_min(usual)).max())}

    @property
    def size(self) -> float:
        """Return the root mean square of the reference."""
        self.settle()
        return math.sqrt(self.reference_sq / max(1, self.elements))

    def values(self) -> Values:
        """Return the guards; infinity if the output is not finite where the reference is."""
        self.settle()
        if not self.finite or self.elements == 0:
            return dict.fromkeys(GUARDS, math.inf)
        differ = {DIFFER: float(self.others) / self.elements} if self.whole else {}
        norm = max(math.sqrt(self.reference_sq), self.usual * math.sqrt(self.elements))
        if norm == 0.0:
            return differ | {name: 0.0 if self.error_sq == 0.0 else math.inf for name in GUARDS}
        guards = (
            differ
            | {
                "rel_l2": math.sqrt(self.error_sq) / norm,
                "max": self.max_error / (norm / math.sqrt(self.elements)),
                "row": math.sqrt(self.max_row_sq) / (norm / math.sqrt(self.rows)),
            }
            | self._bias()
            | self.change.values()
        )
        if self.zeros:
            guards[ZERO] = self.max_at_zero / (norm / math.sqrt(max(1, self.elements - self.zeros)))
        return guards


def _step(elements: int) -> int:
    """Return how far apart the elements are that `bias` looks at: odd, so that they do not keep to some columns."""
    return max(1, elements // _BINNED) | 1


@dataclass
class Distances:
    """The distances of every output of a call."""

    outputs: list[Distance]

    @classmethod
    def of(cls, count: int) -> Distances:
        """Return the empty distances of a call with `count` outputs."""
        return cls([Distance() for _ in range(count)])

    def add(
        self,
        outputs: Iterable[torch.Tensor],
        expected: list[torch.Tensor],
        wholes: list[Whole],
        before: list[torch.Tensor],
    ) -> None:
        """Add a chunk of every output, each taken when its turn comes. before: empty where inputs are not edited."""
        old = before or itertools.repeat(None)
        for distance, due, whole, last, output in zip(self.outputs, expected, wholes, old, outputs, strict=False):
            distance.add(output, due, whole, last)

    @classmethod
    def endless(cls) -> Distances:
        """Return the distances of an output that is not finite where the reference is."""
        return cls([Distance(finite=False, legacy=dict.fromkeys(_LEGACY, False))])

    def values(self) -> Values:
        """Return the guards of all outputs."""
        return joined([distance.values() for distance in self.outputs])

    @property
    def legacy(self) -> dict[str, bool]:
        """Return what the published comparison says of all outputs together."""
        return {name: all(each.legacy[name] for each in self.outputs) for name in _LEGACY}


def joined(outputs: list[Values], *, largest: bool = True) -> Values:
    """Return the guards of all outputs: of several, those of each by its place, and the largest of each guard."""
    if len(outputs) == 1:
        return outputs[0]
    found: Values = {}
    for place, values in enumerate(outputs):
        for name, value in values.items():
            found[at(name, place)] = value
            if largest:
                found[name] = max(found.get(name, value), value)
    return found


def rounded(values: Values) -> Values:
    """Return values with six digits, which are enough for a file and make it a quarter of the size."""
    return {name: float(f"{value:.6g}") for name, value in values.items()}


def of_output(values: Values, place: int) -> Values:
    """Return the guards of one of several outputs, by their own names."""
    return {name.partition(_OF)[0]: value for name, value in values.items() if name.endswith(f"{_OF}{place}")}


def split(values: Values) -> list[Values]:
    """Return the guards of each output, from those of all. It undoes `joined`."""
    places = {int(place) for _, _, place in (name.partition(_OF) for name in values) if place}
    return [of_output(values, place) for place in sorted(places)] or [values]


def at(name: str, place: int | None) -> str:
    """Return the key of a guard of one output; place: of several, or None."""
    return name if place is None else f"{name}{_OF}{place}"


def of_row(values: Values) -> Values:
    """Return the guards of one row that was compared alone: a row has a limit of its own."""
    kept = {name.replace("rel_l2", "row"): value for name, value in values.items() if name.startswith("rel_l2")}
    return kept | {name: value for name, value in values.items() if name.startswith(DIFFER)}


def score(values: Values, limits: Values) -> float:
    """Return the worst guard as a fraction of its limit: at most 1 passes."""
    return max((values[name] / limit for name, limit in limits.items() if name in values), default=math.inf)


def named(values: Values, limits: Values) -> tuple[str, int | None]:
    """Return the guard to name for outputs that are over their limits, and of several outputs the place of the one that
    is over most."""
    ours, theirs = split(values), split(limits)
    place = max(range(len(theirs)), key=lambda i: score(ours[i], theirs[i]))
    return _named(ours[place], theirs[place]), place if len(theirs) > 1 else None


def _named(values: Values, limits: Values) -> str:
    """Return the guard of one output to name: the one that is over its limit most. `bias` and `edit` are named where no
    other one is over: they are small where others say more of the mistake. An output that is wrong as a whole, such as
    zeros or that of another call, is named by its norm, not by its worst element or its zeros."""
    norm = values.get("rel_l2", 0.0)
    if (
        "rel_l2" in limits
        and norm >= WHOLE
        and max(values.get(name, 0.0) for name in ("max", "row")) <= FEW_ELEMENTS * norm
    ):
        return "rel_l2"
    ratio = {
        name: math.inf if math.isnan(value := values.get(name, 0.0) / limit) else value
        for name, limit in limits.items()
    }
    plain = {name: value for name, value in ratio.items() if name not in (BIAS, EDIT) and value > 1}
    return max(plain or ratio, key=lambda name: ratio[name])


def digest(tensor: torch.Tensor) -> int:
    """Return 64 bits that depend on every bit of the tensor and its position, equal on every device and chunking.

    It is a sum modulo 2**64. Bits are mixed with their position before they are added, because plain weights let small
    differences cancel. Do not compare digests of tensors of different dtypes.
    """
    flat = tensor.contiguous().view(-1)
    flat = flat.view(_BITS.get(flat.element_size(), torch.uint8))
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for begin in range(0, flat.numel(), DIGEST_STEP):
        part = flat[begin : begin + DIGEST_STEP]
        places = torch.arange(begin + 1, begin + 1 + part.numel(), dtype=torch.int64, device=flat.device)
        mixed = places.mul_(GOLDEN)
        mixed.bitwise_xor_(part).mul_(MIX)
        mixed.bitwise_xor_(mixed >> 31)
        total += mixed.sum()
    return int(total.item()) % (1 << 64)
