"""Recipes: inputs that are plain random draws. Any range of their elements can be made on any device at any time."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from repro.inputs import philox
from repro.inputs import stress as stresses
from repro.inputs.stress import FAR, SPIKE_FACTOR, TOUCHED, Stress

Dims = tuple[int, ...]  # the shape of a tensor
# Spiked inputs have one spike in each run of this many elements. It is prime, so that spikes hit every column.
_SPIKE_RUN = 8191
# The same for tensors of fewer elements than SMALL, which would otherwise hold almost none.
SMALL_SPIKE_RUN, SMALL = 509, 1 << 20
# The generator's stream for the position of spikes; its kinds of draw use lower streams.
_SPIKE_STREAM = 16
# The same for the positions of elements that an edit changes.
_EDIT_STREAM = 17
# From an input's index to those of the draws that choose the signs and the tails of its elements.
_SIGNS, _TAILS, _BANDS = 1 << 20, 1 << 21, 3 << 20
# Regions of a tensor of mixed signs, and how many deviations the last one lies away from zero.
_REGIONS, _AWAY = 4, 4.0
# A tensor of at most this many values holds codes.
FEW_VALUES = 16
# How many deviations the least element of a tensor of mixed signs lies below zero: 10,000 times it is finite in fp16.
_LEAST = 6.0
# How many deviations a tensor that is far from zero lies away from it.
_SPREAD = 9.0
# How many deviations slices of 16 bits lie apart at most: beyond, the elements of one are equal.
_APART = 30.0
# The largest elements of heavy tails lie below 2**_TOP: operands in fp16 must stay finite.
_TOP = 15
# Elements that are changed at once: temporaries of 16 MiB.
_STEP = 1 << 22
# From an input's seed to the seed of the whole numbers that an edit puts in.
_EDIT_SEED = 1 << 40
# Standard deviation of a uniform draw from [0, 1).
_UNIFORM_STD = 12**-0.5


def spike_run(total: int) -> int:
    """Return how many elements of a tensor of `total` elements share one spike."""
    return _SPIKE_RUN if total >= SMALL else SMALL_SPIKE_RUN


def spike(out: torch.Tensor, amplitude: float, seed: int, index: int, total: int, start: int = 0) -> torch.Tensor:
    """Set one element in each run to +amplitude or -amplitude, alternately; return `out`.

    out: elements [start, start + out.numel()) of tensor `index`, which has `total` elements; contiguous. The position
    in a run is the same in every run and is drawn from seed and index. In a tensor shorter than a run it lies within
    the tensor.
    """
    if total == 0:
        return out
    length = spike_run(total)
    word = philox.philox_numpy(np.zeros(1, dtype=np.uint64), seed, index, _SPIKE_STREAM)[0]
    place = int(word[0]) % min(length, total)
    flat, run = out.view(-1), -(-(start - place) // length)
    for first in (run, run + 1):
        at = place + first * length - start
        flat[at :: 2 * length] = amplitude if first % 2 == 0 else -amplitude
    return out


def touched(seed: int, index: int, total: int, count: int) -> list[int]:
    """Return the secret positions of `count` elements of tensor `index`, one in each equal part of it."""
    words = philox.philox_numpy(np.arange(count, dtype=np.uint64), seed, index, _EDIT_STREAM)[0]
    bounds = [total * part // count for part in range(count + 1)]
    parts = zip(bounds, bounds[1:], words.tolist(), strict=False)
    return [low + word % (high - low) for low, high, word in parts if high > low]


def move(
    out: torch.Tensor, stress: str, deviation: float, seed: int, index: int, shape: Dims, start: int = 0
) -> torch.Tensor:
    """Change drawn elements as a stress says; return `out`.

    out: elements [start, start + out.numel()) of tensor `index`, which has this shape; contiguous. deviation: of the
    draw.
    """
    word, number = stresses.parts(stress)
    flat = out.view(-1)
    if word in ("signed", "heavy", "tailed"):
        change = _signs if word == "signed" else functools.partial(_tails, reach=int(number))
        for begin in range(0, flat.numel(), _STEP):
            change(flat[begin : begin + _STEP], deviation, seed, index, shape, start + begin)
    if word == "bands":
        return _bands(out, number, deviation, seed, shape, start)
    if word in ("times", "signed"):
        return out.mul_(number)
    if word == "negative":
        return out.neg_()
    if word == "near":
        return out.mul_(1 / (number * deviation)).add_(1.0)
    if word == "unit":
        return out.copy_(torch.copysign(torch.ones_like(out), out))
    if word == "shift":
        if abs(number) >= FAR:  # finite in fp16, and elements differ clearly in bf16
            return out.mul_(number / _SPREAD / deviation).add_(-number if index % 2 else number)
        turn = min(max(0, math.prod(shape) // 2 - start), flat.numel()) if number < 0 else flat.numel()
        by = abs(number) * deviation * (-1 if number < 0 and index % 2 else 1)
        flat[:turn].add_(by)
        flat[turn:].sub_(by)
    return out


def _signs(part: torch.Tensor, deviation: float, seed: int, index: int, shape: Dims, start: int) -> None:
    """Change a piece of a tensor region by region: as it is, below zero, with random signs, above zero. The first
    element of all is zero, the last one below all others."""
    total = math.prod(shape)
    for region in range(start * _REGIONS // total, (start + part.numel() - 1) * _REGIONS // total + 1):
        first, last = (min(max(0, -(-total * r // _REGIONS) - start), part.numel()) for r in (region, region + 1))
        own = part[first:last]
        if region == 0:
            own[: start == 0] = 0.0
        elif region == 1:
            own.abs_().neg_()
        elif region == 2:
            own.copy_(torch.where(_word(own, seed, index + _SIGNS, start + first) < 0.5, own, -own))
        elif region == 3:
            own.div_(_AWAY).add_(deviation)  # no larger than the others: operands in fp16 must stay finite
            own[max(0, total - 1 - start - first) :] = -_LEAST * deviation


def _tails(part: torch.Tensor, deviation: float, seed: int, index: int, shape: Dims, start: int, *, reach: int) -> None:
    """Replace one element in two by powers of two, one in 2**t by larger ones, up to 2**reach for the rarest of all.

    Half of the last elements of a dimension are as large as the largest of its others, so that a remainder that is left
    out shows. Equal powers tie in any precision and unlike ones are far apart, so that rounding decides no comparison.
    The last element of all is positive and twice as large as all others, so that a maximum hangs on it.
    """
    mantissa, tier = torch.frexp(_word(part, seed, index + _TAILS, start))
    tier.neg_()
    place = torch.arange(start, start + part.numel(), device=part.device)
    for size in reversed(shape):
        tier += (size.bit_length() - 1) * ((place % size == size - 1) & (mantissa < 0.75))
        place //= size
    last = min(24, max(1, math.prod(shape).bit_length() - 3))
    exponent = math.frexp(deviation)[1]
    least = min(0, _TOP - reach - exponent)
    sizes = [2.0 ** (exponent - 1 + least + round(reach * min(t, last) / last)) for t in range(25)]
    large = torch.tensor(sizes, device=part.device)[tier.clamp_(0, 24).long()]
    own = part.float()
    part.copy_(torch.where(tier > 0, torch.copysign(large, own), own * 2.0**least))
    if shape:
        part[max(0, math.prod(shape) - 1 - start) :] = 2 * sizes[-1]


def _bands(out: torch.Tensor, number: float, deviation: float, seed: int, shape: Dims, start: int) -> torch.Tensor:
    """Move every slice along one dimension, which hangs on the seed, up or down by at most `number` deviations: of all
    inputs alike, so that two of one shape are close to each other. Twice as far one way as the other, for a mean over
    them that nearly cancels has a large error in every kernel."""
    reach = deviation * (number if out.element_size() > 2 else min(number, _APART))
    dims = [dim for dim, size in enumerate(shape) if dim and size > 1] or [0][: len(shape)]
    if not dims:
        return out
    dim = dims[seed % len(dims)]
    slices = torch.empty(shape[dim : dim + 1], dtype=torch.float32, device=out.device)
    by = philox.fill(slices, "uniform", seed, _BANDS).mul_(1.5).sub_(0.5).mul_(reach if seed & 256 else -reach)
    flat, width = out.view(-1), math.prod(shape[dim + 1 :])
    for begin in range(0, flat.numel(), _STEP):
        part = flat[begin : begin + _STEP]
        place = torch.arange(start + begin, start + begin + part.numel(), device=out.device)
        part.add_(by[place // width % len(by)])
    return out


def _word(part: torch.Tensor, seed: int, index: int, start: int) -> torch.Tensor:
    """Return a uniform draw for every element of a piece of a tensor."""
    word = torch.empty(part.shape, dtype=torch.float32, device=part.device)
    return philox.fill(word, "uniform", seed, index, start=start)


@dataclass(frozen=True)
class Recipe:
    """One input that is a plain draw.

    std: for kind normal. low, high: for kind integer. moved: a stress that `move` knows. amplitude: of spikes, 0 for
    none. run: how many consecutive elements are equal. edits: how many elements are replaced, by +edit and -edit
    alternately, or by other whole numbers of the draw. often: whether the last half of the elements are
    the least number. last: the last element, where it is not drawn.
    """

    kind: str
    index: int
    shape: Dims
    dtype: torch.dtype
    low: int = 0
    high: int = 1
    std: float = 1.0
    moved: str = ""
    amplitude: float = 0.0
    run: int = 1
    edits: int = 0
    edit: float = 0.0
    often: bool = False
    last: int | None = None

    @property
    def deviation(self) -> float:
        """Return the standard deviation of a floating-point draw."""
        return self.std if self.kind == "normal" else _UNIFORM_STD

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def fill(self, out: torch.Tensor, seed: int, start: int = 0) -> torch.Tensor:
        """Write elements [start, start + out.numel()) into `out` (contiguous, of this dtype); return it."""
        if self.edits:
            replace(self, edits=0).fill(out, seed, start)
            return self._edited(out, seed, start)
        if self.run > 1 and out.numel():
            first, last = start // self.run, (start + out.numel() - 1) // self.run
            drawn = replace(self, run=1).fill(out.new_empty(last - first + 1), seed, first)
            repeated = drawn.repeat_interleave(self.run)[start - first * self.run :]
            out.view(-1).copy_(repeated[: out.numel()])
            return out
        philox.fill(out, self.kind, seed, self.index, start=start, low=self.low, high=self.high, std=self.std)
        if self.often:
            out.view(-1)[max(0, self.numel // 2 - start) :] = self.low
        if self.last is not None:
            out.view(-1)[max(0, self.numel - 1 - start) :] = self.last
        if self.amplitude:
            return spike(out, self.amplitude, seed, self.index, self.numel, start)
        return move(out, self.moved, self.deviation, seed, self.index, self.shape, start) if self.moved else out

    def _edited(self, out: torch.Tensor, seed: int, start: int) -> torch.Tensor:
        flat, sign = out.view(-1), 1
        for place in touched(seed, self.index, self.numel, self.edits):
            if start <= place < start + flat.numel():
                one = flat[place - start : place - start + 1]
                if self.kind == "integer":
                    philox.fill(
                        one, "integer", seed + _EDIT_SEED, self.index, start=place, low=self.low, high=self.high
                    )
                else:
                    one.fill_(sign * self.edit)
            sign = -sign
        return out

    def stressed(self, stress: Stress, factor: float = SPIKE_FACTOR, run: int = 1) -> Recipe:
        """Return the form of the recipe that a stress (`repro.inputs.stress`) names. Whole numbers of many values come
        from one half of their range, the last one from the end of the other: signed ones below, spiked ones above. The
        last half of spiked ones, also of few values, are equal: a number may be frequent, and alone in a row.

        factor: height of spikes in deviations. run: of signed normal draws, how many consecutive elements are equal.
        `edit` and `special` apply to the recipe as it is.
        """
        word, number = stresses.parts(stress)
        if word == "edit":
            return replace(self, edits=TOUCHED, edit=number * self.deviation)
        if self.kind == "integer":
            middle, few = (self.low + self.high) // 2, self.high - self.low <= FEW_VALUES
            if word == "spike":
                return replace(self, often=True) if few else replace(self, low=middle, often=True, last=self.low)
            return self if few or word else replace(self, high=middle, last=self.high - 1)
        if word == "special":
            return replace(self, edits=1, edit=math.nan)
        if stress == "spike":
            return replace(self, amplitude=factor * self.deviation)
        if word:
            return replace(self, moved=str(stress))
        return Recipe("normal", self.index, self.shape, self.dtype, std=float(stress), run=run)
