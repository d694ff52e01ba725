"""Input buffers shared with workers, and the staging buffers through which outputs come back."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Sequence
from typing import Any

import torch

from repro.inputs.stress import Stress
from repro.judge.gpu import commitment
from repro.judge.gpu.shared_memory import Input, SharedBuffer
from repro.problems.meta import Leaf, leaves
from repro.problems.plan import Plan

# Least bytes of a staging buffer, and what of one output is fetched at once on a GPU.
_STAGING_BYTES, _WINDOW_BYTES = 16 << 20, 256 << 20
# Inputs lie at one of _SPOTS secret places of their buffers, another one from call to call: what a solution remembers
# of the last address is not this call's input, and addresses come back as they do in any program. Places are aligned
# as torch aligns its own tensors on a GPU, where those of _LARGE bytes and more have memory of their own.
_SPOTS, _LARGE = 4, 10 << 20
_ALIGNMENT, _PLACES = 512, 128
_LARGE_ALIGNMENT, _LARGE_PLACES = 2 << 20, 16
# Inputs are made again in pieces of this many bytes to be compared, on the CPU and on a GPU.
_CHECK_BYTES = {"cpu": 64 << 20, "cuda": 256 << 20}


class Slots:
    """One buffer ("slot") for each tensor input, shared by all workers, and one staging buffer for each worker.

    A staging buffer holds at least `rows` rows of the largest output, or a piece of weights. `seed`, `stress` and
    `plan` describe the inputs in the slots, `places` their first bytes. `spoiled`: the inputs are overwritten.
    `turned`: those that `fill` stores with their last two dimensions swapped.
    """

    def __init__(self, plan: Plan, spec: Any, rows: int | None, device: torch.device) -> None:
        self.plan, self.device = plan, device
        self.seed = 0
        self.stress: Stress | None = None
        self.spoiled = False
        self.turned: Sequence[int] = ()
        chunk = max(_chunk_bytes(leaf, rows, plan.problem.batch_dims) for _, leaf in leaves(spec))
        outputs = [_chunk_bytes(leaf, None, 1) for _, leaf in leaves(spec)]
        whole = max(outputs)
        # A chunk is fetched with the whole segments in which it begins and ends, in one piece if it is contiguous.
        if device.type == "cuda":
            chunk = max(chunk, min(whole, _WINDOW_BYTES))
        self.staging_bytes = max(_STAGING_BYTES, chunk) + 2 * commitment.segment_bytes(whole)
        self.buffers: dict[str, SharedBuffer] = {}
        self.output_bytes = sum(outputs)
        for i in plan.tensors:
            self.buffers[f"input{i}"] = SharedBuffer(plan.nbytes(i) + math.prod(_places(plan, i)), device)
        draw, steps = random.SystemRandom(), {i: _places(plan, i) for i in plan.tensors}
        self.spots = {i: [step * n for n in draw.sample(range(count), _SPOTS)] for i, (step, count) in steps.items()}
        self.places = {i: spots[0] for i, spots in self.spots.items()}

    def staging(self) -> SharedBuffer:
        """Return a staging buffer for one worker: no other worker may see or change what it returns."""
        return SharedBuffer(self.staging_bytes, self.device)

    def described(self) -> list[Input]:
        """Return the description of the inputs that a worker receives."""
        return [
            self._described(i) if i in self.plan.tensors else Input(value=spec) for i, spec in enumerate(self.plan.spec)
        ]

    def _described(self, i: int) -> Input:
        (*shape,), dtype = self.plan.spec[i]
        if i in self.turned:
            shape[-2:] = reversed(shape[-2:])
        return Input(slot=f"input{i}", dtype=str(dtype).removeprefix("torch."), shape=shape, offset=self.places[i],
                     turned=i in self.turned)  # fmt: skip

    def _slot(self, i: int) -> torch.Tensor:
        shape, dtype = self.plan.spec[i]
        return self.buffers[f"input{i}"].view(dtype, tuple(shape), self.places[i])

    def move(self) -> None:
        """Choose another secret place for every input of the next `fill`."""
        for i, place in self.places.items():
            self.places[i] = secrets.choice([spot for spot in self.spots[i] if spot != place])

    def fill(self, seed: int, stress: Stress | None, turned: Sequence[int] = ()) -> None:
        """Make the inputs of (seed, stress) in the slots. turned: those that are not contiguous."""
        self.seed, self.stress, self.turned, self.spoiled = seed, stress, turned, False
        made = None
        for i in self.plan.tensors:
            whole, place = self.buffers[f"input{i}"].bytes, self.places[i]
            for rest in (whole[:place], whole[place + self.plan.nbytes(i) :][: math.prod(_places(self.plan, i))]):
                rest.fill_(0xFF)  # NaN: nothing of earlier inputs is left beside these
            recipe = self.plan.recipe(i, stress)
            if recipe is not None:
                recipe.fill(self._slot(i), seed)
            else:
                made = made if made is not None else self.plan.make(seed, self.device, stress=stress)
                self._slot(i).copy_(made[i])
        for i in self.turned:
            slot = self._slot(i)
            slot.view(-1).copy_(slot.mT.flatten())
        self.synchronize()

    def spoil(self) -> None:
        """Overwrite the inputs, so that nothing can be computed from them. `seed` and `stress` stay."""
        for i in self.plan.tensors:
            self.buffers[f"input{i}"].poison()
        self.synchronize()
        self.spoiled = True

    def unchanged(self) -> bool:
        """Return whether every slot still holds the bits that `fill` made. They are made again, piece by piece."""
        made = None
        for i in self.plan.tensors:
            recipe = self.plan.recipe(i, self.stress)
            slot = self.buffers[f"input{i}"].bytes[self.places[i] :][: self.plan.nbytes(i)]
            if recipe is None:
                made = made if made is not None else self.plan.make(self.seed, self.device, stress=self.stress)
                if not _equal(slot, made[i].contiguous().view(-1).view(torch.uint8)):
                    return False
                continue
            step = _CHECK_BYTES[self.device.type] // recipe.dtype.itemsize
            for start in range(0, recipe.numel, step):
                part = torch.empty(min(step, recipe.numel - start), dtype=recipe.dtype, device=self.device)
                again = recipe.fill(part, self.seed, start).view(torch.uint8)
                begin = start * recipe.dtype.itemsize
                if not _equal(slot[begin : begin + again.numel()], again):
                    return False
        return True

    def synchronize(self) -> None:
        """Wait until other processes can read what the judge wrote."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def close(self) -> None:
        """Free the buffers."""
        for buffer in self.buffers.values():
            buffer.close()


def _places(plan: Plan, i: int) -> tuple[int, int]:
    """Return how far apart the places of input i are, in bytes, and how many there are."""
    return (_LARGE_ALIGNMENT, _LARGE_PLACES) if plan.nbytes(i) >= _LARGE else (_ALIGNMENT, _PLACES)


def _equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two flat uint8 tensors are equal, eight bytes at a time where they allow it."""
    if any(t.numel() % 8 or t.storage_offset() % 8 for t in (left, right)):
        return torch.equal(left, right)
    return torch.equal(left.view(torch.int64), right.view(torch.int64))


def _chunk_bytes(leaf: Leaf, rows: int | None, dims: int) -> int:
    """Return the bytes of `rows` rows (all if None) of one output tensor."""
    shape = list(leaf["shape"])
    if shape and rows is not None:
        shape = [rows, *shape[dims:]]
    return int(math.prod(shape) * getattr(torch, leaf["dtype"]).itemsize)
