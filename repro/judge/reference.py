"""The reference: the problem's own Model in fp64, computed in chunks of rows; and honest kernels at each precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from repro.errors import JudgeError
from repro.inputs import Plan, Weights, build

# What a chunk may take on the device, the reference's intermediates and the comparison included.
CHUNK_BYTES = 384 << 20
CPU_CHUNK_BYTES = 256 << 20
# A chunk's fp64 output lives several times at once while it is compared.
COMPARISON_COPIES = 6
CONTRACTIONS = frozenset(
    "linear matmul __matmul__ __rmatmul__ mm bmm addmm baddbmm einsum conv1d conv2d conv3d "
    "conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention".split()
)


def round_mantissa(value: torch.Tensor) -> torch.Tensor:
    """float32 rounded to 10 mantissa bits (nearest even): what TF32 and fp16 operands keep."""
    bits = value.view(torch.int32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return rounded.view(torch.float32)


class TF32Operands(TorchFunctionMode):
    """Rounds the float32 operands of every contraction, so that TF32 is the same on the CPU and on any GPU."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in CONTRACTIONS:
            args = tuple(
                round_mantissa(a) if isinstance(a, torch.Tensor) and a.dtype is torch.float32 else a for a in args
            )
        return func(*args, **(kwargs or {}))


class Reference:
    """The problem's Model with given weights at one precision: fp64, fp32, tf32 or bf16."""

    DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}

    def __init__(self, plan: Plan, weights: Weights, device: torch.device, precision: str = "fp64") -> None:
        self.plan, self.device, self.precision = plan, device, precision
        self.dtype = self.DTYPES[precision]
        with torch.random.fork_rng(devices=[]):
            model = build(plan.problem, plan.module, weights.init)
        model.load_state_dict(weights.state, strict=True)
        self.model = model.to(self.dtype).to(device)

    def __call__(self, inputs: list[Any]) -> list[torch.Tensor]:
        """Outputs in the model's precision, as a flat list. Raises JudgeError where the problem itself fails."""
        cast = [x.to(self.dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
        mode: AbstractContextManager[Any] = TF32Operands() if self.precision == "tf32" else nullcontext()
        try:
            with torch.no_grad(), exact_float32(), mode:
                value = self.model(*cast)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            name = self.plan.problem.path.name
            raise JudgeError(
                f"Model of {name} fails at {self.precision}", f"{type(error).__name__}: {error}"
            ) from error
        return flatten(value)


class exact_float32(AbstractContextManager[None]):  # noqa: N801
    """Turns TF32 off for cuDNN and matmul while active."""

    def __enter__(self) -> None:
        self._before = (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    def __exit__(self, *_: Any) -> None:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = self._before


def flatten(value: Any) -> list[torch.Tensor]:
    """The tensors of a reference's return value, depth first. Raises JudgeError for anything else in it."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in flatten(item)]
    raise JudgeError(f"the problem's Model returns {type(value).__name__}", "only tensors can be judged")


def output_spec(plan: Plan, weights: Weights) -> Any:
    """Structure, shapes and dtypes that a solution must return: a meta run of the Model in the problem's dtype."""
    with torch.device("meta"):
        model = plan.module.Model(*weights.init)
    first = next(iter(weights.state.values()), None)
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[plan.problem.dtype]
    model = model.to(dtype if first is None or first.is_floating_point() else first.dtype).eval()
    inputs = [torch.empty(s[0], dtype=s[1], device="meta") if i in plan.tensors else s for i, s in enumerate(plan.spec)]
    with torch.no_grad():
        return _spec(model(*inputs))


def _spec(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, tuple | list):
        return [_spec(item) for item in value]
    raise JudgeError(f"the problem's Model returns {type(value).__name__}", "only tensors can be judged")


def leaves(spec: Any, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], dict[str, Any]]]:
    """(path, tensor spec) of every tensor in an output spec."""
    if isinstance(spec, dict):
        return [(path, spec)]
    return [leaf for i, item in enumerate(spec) for leaf in leaves(item, (*path, i))]


def rows_per_chunk(plan: Plan, reference: Reference, spec: Any) -> int | None:
    """How many rows of the batch fit a chunk; None where the problem cannot be split, so that all is one chunk.

    On a GPU one chunk of two rows is run and its peak measured; on the CPU it is estimated from the sizes.
    """
    batch = plan.batch
    if batch is None:
        return None
    outputs = leaves(spec)
    if any(not leaf["shape"] or leaf["shape"][0] != batch for _, leaf in outputs):
        return None
    row_out = sum(math.prod(leaf["shape"][1:]) for _, leaf in outputs)
    row_in = sum(math.prod(plan.spec[i][0][1:]) for i in plan.problem.batch_inputs)
    estimate = 8 * (row_in + COMPARISON_COPIES * row_out)
    if reference.device.type != "cuda":
        return int(max(1, min(batch, CPU_CHUNK_BYTES // (2 * estimate))))
    rows = min(2, batch)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    reference(plan.chunk(slice(0, rows), 0, reference.device, None))
    measured = (torch.cuda.max_memory_allocated() - before) / rows
    return int(max(1, min(batch, CHUNK_BYTES // max(1, estimate + measured))))


def chunks(plan: Plan, rows: int | None) -> Iterator[slice | None]:
    """Ranges of rows that cover the batch, or a single None for the whole."""
    if rows is None or plan.batch is None:
        yield None
        return
    for start in range(0, plan.batch, rows):
        yield slice(start, min(start + rows, plan.batch))
