"""The problem's own Model at each precision, computed in chunks of rows. At fp64 it is the reference."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from repro.errors import JudgeError
from repro.judge.correctness.distance import Distance, Distances, Whole
from repro.judge.correctness.indices import Pointers
from repro.judge.correctness.precision import TF32Operands, exact_float32
from repro.problems.meta import Outputs, Widened, leaves, tensors
from repro.problems.plan import Functions, Plan, Rows, Weights, build

# Device memory for one chunk, with the reference's intermediates and the comparison.
CHUNK_BYTES = 384 << 20
CPU_CHUNK_BYTES = 256 << 20
# Rows that are run to learn what a row needs.
_FEW_ROWS = 4
# Copies of a chunk's fp64 output that exist at once during the comparison.
_COMPARISON_COPIES = 2


# Parameters of torch's convolutions, in order.
_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")


class SplitConvolutions(Functions):
    """Computes large fp64 convolutions without groups in parts of output channels.

    Each part has at most about `part_bytes` of output, and of a transposed convolution on the CPU as much of columns:
    the products of one sample's inputs with all weights, which torch keeps there before it adds them up.
    """

    def __init__(self, part_bytes: int = CHUNK_BYTES) -> None:
        super().__init__()
        self.part_bytes = part_bytes

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if not re.fullmatch(r"conv(_transpose)?[123]d", name):
            return func(*args, **kwargs)
        names, dims = _TRANSPOSED if "transpose" in name else _CONVOLUTION, int(name[-2])
        given = dict(zip(names, args, strict=False)) | kwargs
        x, weight = given["input"], given["weight"]
        if x.dtype is not torch.float64 or given.get("groups", 1) > 1:
            return func(*args, **kwargs)
        whole = func(**{n: v.to("meta") if isinstance(v, torch.Tensor) else v for n, v in given.items()})
        kept = "transpose" in name and x.device.type == "cpu"
        columns = weight[0].numel() * math.prod(x.shape[-dims:]) if kept else 0
        parts = -(-max(whole.numel(), columns) * x.element_size() // self.part_bytes)
        return func(*args, **kwargs) if parts < 2 else _in_parts(func, given, whole, parts, -1 - dims)


def _in_parts(func: Any, given: dict[str, Any], whole: torch.Tensor, parts: int, channels: int) -> torch.Tensor:
    """Return a convolution computed in about `parts` parts of the dimension `channels` of its output.

    whole: the output without memory.
    """
    result = torch.empty(whole.shape, dtype=whole.dtype, device=given["input"].device)
    count = whole.shape[channels]
    step = max(1, count // parts)
    of_weight = 1 if "transpose" in func.__name__ else 0
    for first in range(0, count, step):
        outputs = (first, min(step, count - first))
        part = given | {"weight": given["weight"].narrow(of_weight, *outputs)}
        if given.get("bias") is not None:
            part["bias"] = given["bias"].narrow(0, *outputs)
        result.narrow(channels, *outputs).copy_(func(**part))
    return result


@dataclass
class Shape:
    """A problem at one shape: its inputs, its output spec, and how many rows fit a chunk.

    usual: as of a fixture. sums: of each output, whether it is a sum that cancels; only while a fixture is measured.
    """

    plan: Plan
    spec: Any
    rows: int | None
    usual: dict[str, list[float]] = field(default_factory=dict)
    sums: list[bool] = field(default_factory=list)

    def distances(self, drawn: str) -> Distances:
        """Return the empty distances of a call, whose outputs know their usual size; drawn: its weights and stress."""
        return Distances([Distance(usual=size) for size in self.usual.get(drawn, [0.0] * len(leaves(self.spec)))])

    def parts(self) -> list[Rows]:
        """Return the ranges of rows of all chunks, or a single None for the whole."""
        return list(chunks(self.plan, self.rows))

    def sizes(self, part: Rows) -> list[tuple[int, ...]]:
        """Return the shapes of the rows `part` of every output."""
        dims, sizes = self.plan.problem.batch_dims, [leaf["shape"] for _, leaf in leaves(self.spec)]
        if part is None:
            return [tuple(size) for size in sizes]
        return [(part.stop - part.start, *[1] * (dims - 1), *size[dims:]) for size in sizes]

    def random_row(self) -> tuple[Rows, bool]:
        """Return a secret random row of the batch, or (None, True) for the whole if it cannot be split."""
        if self.rows is None or self.plan.batch is None:
            return None, True
        row = random.SystemRandom().randrange(self.plan.batch)
        return slice(row, row + 1), False


# Bytes of fp16 and bf16. A scale that moves a seventh of all weights by their last bit when multiplied in and out;
# it is below 1, so that none overflows.
_HALF, _FOLDED = 2, 0.7


class Reference:
    """The problem's Model with given weights at one precision: fp64, fp32, tf32, fp16 or bf16.

    wholes: of the latest call, for each output of integers these, or in fp64 where they point to; else None.
    """

    DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32,
              "fp16": torch.float16, "bf16": torch.bfloat16}  # fmt: skip

    def __init__(self, plan: Plan, weights: Weights, device: torch.device, precision: str = "fp64") -> None:
        self.plan, self.device, self.precision = plan, device, precision
        self.dtype = self.DTYPES[precision]
        self.init: list[Any] | None = None
        self.loaded: Weights | None = None
        self.versions: list[int] = []
        self.wholes: list[Whole] = []
        self.load(weights)

    def load(self, weights: Weights) -> None:
        """Load these weights, unless they are there unchanged. Other constructor arguments need a new model."""
        if self.loaded is weights and self.versions == self._versions():
            return
        if self.init != weights.init:
            model = build(self.plan.problem, self.plan.module, weights.init, drawn=False)
            self.model = model.to(self.device).to(self.dtype)  # wide weights on the device alone
            self.init = weights.init
        # Moved first, and then converted to fp64: `load_state_dict` converts on the CPU, 0.4 s for 67 million weights.
        state = {name: self._rounded(value.to(self.device)) for name, value in weights.state.items()}
        self.model.load_state_dict(state, strict=True)
        self.loaded, self.versions = weights, self._versions()

    def _rounded(self, value: torch.Tensor) -> torch.Tensor:
        """Round a weight that has the class's 16 bits once more, as a kernel does that folds a scale into it."""
        again = value.dtype == self.dtype and value.dtype.itemsize == _HALF
        return value.mul(_FOLDED).div_(_FOLDED) if again else value

    def _versions(self) -> list[int]:
        """Return how often each weight was written to."""
        return [tensor._version for tensor in self.model.state_dict().values()]

    def __call__(self, inputs: list[Any]) -> Outputs:
        """Return the outputs in the model's precision (integers in fp64), as a flat list.

        `inputs` is emptied: each input is freed as soon as it is cast, which saves 0.2 GB of L1_97's chunk. Raises
        JudgeError if the problem itself fails.
        """
        cast = []
        while inputs:
            x = inputs.pop(0)
            if isinstance(x, torch.Tensor):
                x = x.to(self.dtype if x.is_floating_point() else x.dtype, copy=self.plan.problem.writes_inputs)
            cast.append(x)
            del x
        modes = {"tf32": TF32Operands, "fp64": SplitConvolutions}
        pointers = Pointers()
        pointing = pointers if self.precision == "fp64" else nullcontext()
        try:
            precise = modes.get(self.precision, nullcontext)()
            with torch.no_grad(), exact_float32(), precise, Widened(self.dtype), pointing:
                value = self.model(*cast)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            if "ALLOC_FAILED" in str(error):  # of cuBLAS or cuDNN
                raise torch.cuda.OutOfMemoryError(str(error)) from error
            name = self.plan.problem.file_name
            raise JudgeError(
                f"Model of {name} fails at {self.precision}", f"{type(error).__name__}: {error}"
            ) from error
        outputs = tensors(value)
        self.wholes = [pointers.of(x) or (None if x.is_floating_point() else x) for x in outputs]
        exact = self.precision == "fp64"  # also of a Model that rounds its output itself
        return [x if x.is_floating_point() and not exact else x.double() for x in outputs]


def _row_bytes(plan: Plan, spec: Any) -> int | None:
    """Return the bytes of a row of inputs and its comparison in fp64; None if the problem cannot be split into rows."""
    outputs, dims = leaves(spec), plan.problem.batch_dims
    if plan.batch is None:
        return None
    if any(len(leaf["shape"]) < dims or math.prod(leaf["shape"][:dims]) != plan.batch for _, leaf in outputs):
        return None
    row_out = sum(math.prod(leaf["shape"][dims:]) for _, leaf in outputs)
    row_in = sum(math.prod(plan.spec[i][0][dims:]) for i in plan.problem.batch_inputs)
    return int(8 * (row_in + _COMPARISON_COPIES * row_out))


def rows_per_chunk(plan: Plan, spec: Any, device: torch.device, reference: Reference | None = None) -> int | None:
    """Return how many rows of the batch fit a chunk; None if the problem cannot be split, so that all is one chunk.

    reference: on a GPU a few rows are run. What one row needs more is counted, not what every chunk needs: another
    whole input. Without it, and on the CPU, it is estimated from the sizes.
    """
    batch, estimate = plan.batch, _row_bytes(plan, spec)
    if batch is None or estimate is None:
        return None
    if device.type != "cuda":
        room = CPU_CHUNK_BYTES // (2 * estimate)
    elif reference is None:
        room = CHUNK_BYTES // estimate
    else:
        few = min(batch, _FEW_ROWS)
        _peak_bytes(plan, reference, few)  # libraries allocate workspace at their first call
        most = _peak_bytes(plan, reference, few)
        row = (most - _peak_bytes(plan, reference, 1)) / (few - 1) if few > 1 else most
        room = int(CHUNK_BYTES // max(1, estimate + max(0, row)))
    return int(max(1, min(batch, room)))


def _peak_bytes(plan: Plan, reference: Reference, rows: int) -> int:
    """Return the most device memory that the reference of some rows takes, with their inputs."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    reference(plan.chunk(slice(0, rows), 0, reference.device, None))
    peak = torch.cuda.max_memory_allocated() - before
    torch.cuda.empty_cache()
    return peak


def chunks(plan: Plan, rows: int | None) -> Iterator[Rows]:
    """Yield ranges of rows that cover the batch, or a single None for the whole."""
    if rows is None or plan.batch is None:
        yield None
        return
    for start in range(0, plan.batch, rows):
        yield slice(start, min(start + rows, plan.batch))
