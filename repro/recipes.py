"""Recipes: inputs that are bare random draws, any range of whose elements can be made anywhere at any time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from repro import philox
from repro.problems import SPIKE_FACTOR, Stress

# Spiked inputs: one element in each run of this many. A prime, so that spikes fall on every column of any layout.
SPIKE_RUN = 8191
# Likewise in tensors of fewer elements than SMALL, which would hold next to none.
SMALL_SPIKE_RUN, SMALL = 509, 1 << 20
# The generator's stream for their place; its kinds of draw have the lower ones.
SPIKE_STREAM = 16
# Deviation of a uniform draw from [0, 1).
UNIFORM_STD = 12**-0.5


def spike_run(total: int) -> int:
    """Elements of a tensor of `total` among which one is a spike."""
    return SPIKE_RUN if total >= SMALL else SMALL_SPIKE_RUN


def spike(out: torch.Tensor, amplitude: float, seed: int, index: int, total: int, start: int = 0) -> torch.Tensor:
    """Puts +amplitude and -amplitude, by turns, on one element in each run of SPIKE_RUN (small: SMALL_SPIKE_RUN);
    returns `out`.

    out: elements [start, start + out.numel()) of tensor `index`, which has `total`, contiguous. The same place in every
    run, drawn from the seed and the index; in a tensor shorter than a run it lies within the tensor.
    """
    if total == 0:
        return out
    length = spike_run(total)
    word = philox.philox_numpy(np.zeros(1, dtype=np.uint64), seed, index, SPIKE_STREAM)[0]
    place = int(word[0]) % min(length, total)
    flat, run = out.view(-1), -(-(start - place) // length)
    for first in (run, run + 1):
        at = place + first * length - start
        flat[at :: 2 * length] = amplitude if first % 2 == 0 else -amplitude
    return out


@dataclass(frozen=True)
class Recipe:
    """One input that is a bare draw. `std` is for kind normal, `low` and `high` for kind integer, `sign` for all but
    integers, `amplitude` (0: none) for spikes; `run` elements in a row are equal."""

    kind: str
    index: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    low: int = 0
    high: int = 1
    std: float = 1.0
    sign: int = 1
    amplitude: float = 0.0
    run: int = 1

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    def fill(self, out: torch.Tensor, seed: int, start: int = 0) -> torch.Tensor:
        """Elements [start, start + out.numel()) into `out` (contiguous, this dtype)."""
        if self.run > 1 and out.numel():
            first, last = start // self.run, (start + out.numel() - 1) // self.run
            drawn = replace(self, run=1).fill(out.new_empty(last - first + 1), seed, first)
            repeated = drawn.repeat_interleave(self.run)[start - first * self.run :]
            out.view(-1).copy_(repeated[: out.numel()])
            return out
        philox.fill(out, self.kind, seed, self.index, start=start, low=self.low, high=self.high, std=self.std)
        if self.amplitude:
            return spike(out, self.amplitude, seed, self.index, self.numel, start)
        return out.neg_() if self.sign < 0 else out

    def stressed(self, stress: Stress, factor: float = SPIKE_FACTOR, run: int = 1) -> Recipe:
        """The stressed form: normal with that deviation in runs of `run` equal elements, the negated draw, or the draw
        with spikes of `factor` times its deviation. Integer draws stay as they are."""
        if self.kind == "integer":
            return self
        if stress == "negative":
            return replace(self, sign=-1)
        if stress == "spike":
            return replace(self, amplitude=factor * (self.std if self.kind == "normal" else UNIFORM_STD))
        return Recipe("normal", self.index, self.shape, self.dtype, std=float(stress), run=run)
