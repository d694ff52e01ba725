"""Runs of a problem on torch's meta device: shapes, arithmetic and traffic without memory.

A Model that reads values of tensors is run on the CPU.
"""

from __future__ import annotations

import re
import sys
import types
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from repro.errors import ProblemError
from repro.problems.plan import Functions, Plan, Weights, build, dense, refuse_dtype, torch_dtype

# What errors say of a Model that reads values, which tensors of the meta device lack.
_READS = re.compile(r"(?i)meta\b|__format__")
_SEED = 0
# The most bytes of inputs of such a Model.
_MOST_BYTES = 2 << 30
# What a Model returned, tensor by tensor.
Outputs = list[torch.Tensor]


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Stand in for torch._dynamo, which meta functions written in Python import at their first call. The import takes
    a second, and nothing is compiled here."""
    name = "torch._dynamo"
    if name in sys.modules:
        yield
        return
    asked = []

    def disable(function: Any, *_: Any, **__: Any) -> Any:
        asked.append(function)
        return function

    stand_in = types.ModuleType(name)
    stand_in.disable = disable  # type: ignore[attr-defined]
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
        for function in asked:  # each notes that it was left out
            with suppress(AttributeError):
                del function.__dynamo_disable


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a nest of lists, tuples and dictionaries."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def cast(x: Any, dtype: torch.dtype) -> Any:
    """Return an input in another precision; integers and what is no tensor stay as they are."""
    return x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def model(plan: Plan, init: list[Any]) -> torch.nn.Module:
    """The Model with these constructor arguments, without memory. One whose constructor reads values of tensors is
    built on the CPU. Raises ProblemError where it cannot be built there either."""
    for around in (_uncompiled, nullcontext):
        with suppress(Exception), around(), torch.device("meta"):
            built: torch.nn.Module = plan.module.Model(*init)
            return built.to(torch_dtype(plan.problem.dtype)).eval()
    return build(plan.problem, plan.module, init).to("meta")


@dataclass(frozen=True)
class Run:
    """A run of a Model: its state dict, the inputs that it was given, and what it returned."""

    state: dict[str, torch.Tensor]
    inputs: list[Any]
    value: Any


class Widened(Functions):
    """Runs a Model at one precision although it names a lower one: casts and new tensors get that of the run."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.lower = [each for each in (torch.float32, torch.float16, torch.bfloat16) if each.itemsize < dtype.itemsize]
        self.dtype = dtype

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name in ("half", "bfloat16", "float") and getattr(torch, name) in self.lower:
            return args[0].to(self.dtype)
        if self.lower and name != "view":  # which takes the bits as they are
            args = tuple(map(self._widened, args))
            kwargs = {key: self._widened(value) for key, value in kwargs.items()}
        return func(*args, **kwargs)

    def _widened(self, value: Any) -> Any:
        return self.dtype if isinstance(value, torch.dtype) and value in self.lower else value


class _Recurrent(Functions):
    """Gives outputs of recurrent layers by their shapes. Step by step on the meta device an LSTM of 6 layers and 512
    steps takes a minute."""

    NAMES = frozenset("lstm gru rnn_tanh rnn_relu".split())

    def __init__(self, tally: Tally | None) -> None:
        super().__init__()
        self.tally = tally

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        # a packed sequence has its batch sizes in second place, and is left to torch
        if name not in self.NAMES or len(args) != 9 or not isinstance(args[2], list):
            return func(*args, **kwargs)
        x, states, weights, _, _, _, _, bidirectional, _ = args
        states = list(states) if isinstance(states, list | tuple) else [states]
        width = states[0].shape[-1] * (2 if bidirectional else 1)
        if self.tally is not None:
            steps = x.numel() // x.shape[-1]
            self.tally.flop += sum(2 * w.numel() * steps for w in weights if w.dim() == 2)
        return (x.new_empty((*x.shape[:-1], width)), *map(torch.empty_like, states))


def run(
    plan: Plan, init: list[Any], mode: Tally | None = None, built: torch.nn.Module | None = None, *,
    turned: Sequence[int] = (),
) -> Run:  # fmt: skip
    """Run the Model with these constructor arguments, or one that is built. mode: counts what it computes. turned:
    inputs that are not contiguous. Raises ProblemError where it fails."""
    built = built or model(plan, init)
    inputs = [torch.empty(s[0], dtype=s[1], device="meta") if i in plan.tensors else s for i, s in enumerate(plan.spec)]
    for i in turned:
        inputs[i] = torch.empty_like(inputs[i].mT).mT
    what = f"Model of {plan.problem.file_name} fails"
    # The second: it failed by itself, or because of the stand-in.
    for around in (_uncompiled, nullcontext):
        try:
            with around(), _Recurrent(mode):
                return _called(built, inputs, mode)
        except Exception as error:
            fault = plan.problem.fault(what, error)
            reads = _READS.search(str(error))
    if reads is None or turned:
        raise fault
    if (needed := plan.input_bytes) > _MOST_BYTES:
        remedy = "Make them smaller: --shapes NAME=VALUE"
        raise ProblemError(f"{what} without values", f"with them its inputs take {needed / 1e9:.2g} GB", remedy)
    try:
        return _called(build(plan.problem, plan.module, init), plan.make(_SEED, torch.device("cpu")), mode)
    except Exception as error:
        raise plan.problem.fault(what, error) from error


def _called(built: torch.nn.Module, inputs: list[Any], mode: Tally | None) -> Run:
    if mode is not None:
        mode.begin()
    given = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]  # nothing has written to them
    with torch.no_grad(), mode or nullcontext():
        return Run(built.state_dict(), given, built(*given))


def output_spec(plan: Plan, weights: Weights) -> Any:
    """Return the structure, shapes and dtypes that a solution must return, by a meta run in the problem's dtype."""
    return _spec(run(plan, weights.init).value)


def liberties(plan: Plan, init: list[Any]) -> tuple[bool, bool]:
    """Return whether the problem's own Model writes to its inputs, and whether an output lies in one's memory, by a
    meta run."""
    ran = run(plan, init)
    given = tensors(ran.inputs)
    memory = {x.untyped_storage()._cdata for x in given}
    return any(x._version for x in given), any(x.untyped_storage()._cdata in memory for x in tensors(ran.value))


def _spec(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        refuse_dtype(value, "the problem's Model")
        if not value.numel():
            why = f"its shape is {tuple(value.shape)}"
            raise ProblemError("the problem's Model returns an empty tensor", why, "Let every size be 1 or more.")
        leaf = {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
        return leaf if dense(value) else leaf | {"gaps": True}
    if isinstance(value, tuple | list):
        return [_spec(item) for item in value]
    raise ProblemError(f"the problem's Model returns {type(value).__name__}", "only tensors can be judged",
                       "Let it return a tensor, or tuples and lists of tensors.")  # fmt: skip


class Leaf(TypedDict):
    """One tensor of an output spec. gaps: its elements overlap or have gaps between them, so a solution's may too."""

    shape: list[int]
    dtype: str
    gaps: NotRequired[bool]


Place = tuple[int, ...]  # of a tensor in an output spec: an index for each level of lists


def leaves(spec: Any, path: Place = ()) -> list[tuple[Place, Leaf]]:
    """Return (path, tensor spec) of every tensor in an output spec."""
    if not isinstance(spec, list):
        return [(path, spec)]
    return [leaf for i, item in enumerate(spec) for leaf in leaves(item, (*path, i))]


@dataclass
class Tally(TorchDispatchMode):
    """What a run computes: operations, elements that it writes, and the most elements that lived at once.

    casts: whether it makes integers of floats. Of a NaN they are any number, which as an index ends a process on a GPU.
    """

    flop: int = 0
    written: int = 0
    peak: int = 0
    casts: bool = False
    live: dict[int, tuple[int, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        """Count anew."""
        self.flop = self.written = self.peak = self.now = 0
        self.live.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in tensors((args, kwargs)):
            self._note(tensor, written=False)  # an input or a weight: it is there already
        out = func(*args, **kwargs)
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.flop += int(count(*args, **kwargs, out_val=out))
        for tensor in tensors(out):
            self._note(tensor)
        if func is torch.ops.aten._to_copy.default and args[0].is_floating_point():
            self.casts |= not (out.is_floating_point() or out.is_complex() or out.dtype == torch.bool)
        return out

    def _note(self, tensor: torch.Tensor, *, written: bool = True) -> None:
        """Counts a tensor that is no view of one that is known."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.live:
            return
        count = storage.nbytes() // max(1, tensor.element_size()) if written else 0
        self.written += count
        self.now += count
        self.peak = max(self.peak, self.now)

        def gone(_: Any) -> None:
            self.now -= self.live.pop(key, (0,))[0]

        self.live[key] = (count, weakref.ref(storage, gone))
