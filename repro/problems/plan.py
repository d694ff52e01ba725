"""Inputs and weights of a problem: the unmodified `get_inputs()`, with random draws from the counter-based generator.

`plan()` runs `get_inputs()` once on the meta device and records the random draw behind each input. An input that is a
plain draw becomes a recipe: any range of its elements can be made again in place, without the rest. Other inputs
(arithmetic on a draw, a mask, a Python number) are made again by running `get_inputs()`.
"""

from __future__ import annotations

import functools
import hashlib
import math
import random
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.random import bit_generator
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from repro.errors import ProblemError
from repro.inputs import philox
from repro.inputs import stress as stresses
from repro.inputs.recipes import FEW_VALUES, Dims, Recipe, move, spike, touched
from repro.inputs.stress import Stress
from repro.problems.catalogue import Problem

Rows = slice | None  # of the batch; None for the whole
WEIGHT_SEED = 42
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def torch_dtype(name: str) -> torch.dtype:
    """Return float32, bfloat16 or float16 as torch's dtype."""
    return _DTYPES[name]


def order(value: torch.Tensor) -> list[int]:
    """Return the dimensions by decreasing stride; dimensions of one element stay in place or go last."""
    if value.is_contiguous():
        return list(range(value.dim()))
    return sorted(range(value.dim()), key=lambda d: (value.shape[d] > 1, value.stride(d)), reverse=True)


def dense(value: torch.Tensor) -> bool:
    """Return whether the elements fill their memory without gaps or overlap, in some order of the dimensions."""
    return value.permute(order(value)).is_contiguous()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed what a problem file may draw from: torch, `random`, numpy, and numpy's generators that are given no seed.

    Afterwards their states are as before.
    """
    entropy = vars(bit_generator)  # numpy takes a seed from its function `randbits` where it is given none
    before = torch.random.get_rng_state(), random.getstate(), np.random.get_state(), entropy["randbits"]
    torch.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    entropy["randbits"] = lambda bits: seed % (1 << bits)
    try:
        yield
    finally:
        torch.random.set_rng_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])
        entropy["randbits"] = before[3]


def _shape(args: Sequence[Any]) -> Dims:
    if len(args) == 1 and isinstance(args[0], list | tuple | torch.Size):
        args = args[0]
    return tuple(map(int, args))


class Functions(TorchFunctionMode):
    """Passes every call of one of torch's functions to `call`, with the function's name."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.call(func, getattr(func, "__name__", ""), args, kwargs or {})

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Return what the call returns."""
        raise NotImplementedError


class _Served(Functions):
    """Serves torch's random functions from `philox` while active. `drawn` maps id(tensor) -> (tensor, recipe, version).

    On the meta device nothing is computed. Draws are numbered in order. Functions that it does not serve (multinomial,
    bernoulli, ...) use torch's own generator and are recorded in `foreign`.
    """

    FOREIGN = frozenset(
        "bernoulli bernoulli_ multinomial poisson normal normal_ uniform_ random_ "
        "exponential_ cauchy_ log_normal_ geometric_ dropout randint_like".split()
    )

    def __init__(self, device: torch.device, seed: int) -> None:
        super().__init__()
        self.device, self.seed = device, seed
        self.count = 0
        self.drawn: dict[int, tuple[torch.Tensor, Recipe, int]] = {}
        self.foreign: list[str] = []

    def _draw(self, kind: str, shape: Dims, dtype: torch.dtype | None, low: int = 0, high: int = 1) -> torch.Tensor:
        default = torch.int64 if kind == "integer" else torch.get_default_dtype()
        recipe = Recipe(kind, self.count, shape, dtype or default, low, high)
        self.count += 1
        out = torch.empty(shape, dtype=recipe.dtype, device=self.device)
        if self.device.type != "meta":
            recipe.fill(out, self.seed)
        self.drawn[id(out)] = (out, recipe, out._version)
        return out

    def _of_shape(self, kind: str, *args: Any, **given: Any) -> torch.Tensor:
        return self._draw(kind, _shape(args or (given["size"],)), given.get("dtype"))

    def _like(self, kind: str, *args: Any, **given: Any) -> torch.Tensor:
        like = args[0] if args else given["input"]
        return self._draw(kind, tuple(like.shape), given.get("dtype") or like.dtype)

    def _integers(self, *args: Any, **given: Any) -> torch.Tensor:
        values = list(args)
        shape = _shape((given["size"] if "size" in given else values.pop(),))
        high = int(given["high"] if "high" in given else values.pop())
        low = int(given["low"] if "low" in given else values.pop() if values else 0)
        return self._draw("integer", shape, given.get("dtype"), low, high)

    def _permutation(self, *args: Any, **given: Any) -> torch.Tensor:
        """Return a permutation of n, by a stable sort: of 100,000 keys of 24 bits some are equal."""
        n = int(args[0] if args else given["n"])
        return torch.argsort(self._draw("uniform", (n,), torch.float32), stable=True).to(
            given.get("dtype") or torch.int64
        )

    # Of the class: bound methods would keep a plan's draws until Python looks for circles.
    _SERVED: ClassVar[dict[Any, tuple[Any, ...]]] = {
        torch.rand: (_of_shape, "uniform"),
        torch.randn: (_of_shape, "normal"),
        torch.rand_like: (_like, "uniform"),
        torch.randn_like: (_like, "normal"),
        torch.randint: (_integers,),
        torch.randperm: (_permutation,),
    }

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if func in self._SERVED:
            serve, *kind = self._SERVED[func]
            return serve(self, *kind, *args, **kwargs)
        if name in self.FOREIGN:
            self.foreign.append(name)
        return func(*args, **kwargs)


# Inputs that every call of `get_inputs()` gives alike: making the others to have them would take as long as these.
PLAIN = (bool, int, float, str, type(None))
# An input with this share of exact zeros has them on purpose.
_ZERO_SHARE = 0.05
# A quarter of a constant mask turns, where a draw from -0.5 to 0.5 is above: hardly any row is left out as a whole.
_TURNED = 0.25
# The most bytes of an input that is also given transposed.
_TURNED_BYTES = 1 << 30


def structure(value: torch.Tensor) -> str:
    """Return what a problem may require of a computed input, and a change of single elements would break.

    `constant`, `few values`, `distributions` (rows that are not negative and sum to 1), `directions` (rows of length
    1), `zeros` (a pattern of them, as of a triangular matrix), `sorted` (rows that ascend), `symmetric`, or the empty
    string.
    """
    head = value.reshape(-1)[: 1 << 16]
    if value.numel() and bool((value == value.reshape(-1)[0]).all()):
        return "constant"
    if len(torch.unique(head)) <= min(FEW_VALUES, max(1, head.numel() // 4)):
        return "few values"
    if value.dim() and value.shape[-1] > 1 and (kind := _of_rows(value)):
        return kind
    if int((value == 0).sum()) > _ZERO_SHARE * value.numel():
        return "zeros"
    square = value.dim() >= 2 and value.shape[-1] == value.shape[-2]
    return "symmetric" if square and torch.equal(value, value.mT) else ""


def _ones(value: torch.Tensor) -> bool:
    """Return whether a constant of whole numbers is a mask: of one dimension it may be lengths."""
    return value.dim() > 1 and bool(value.reshape(-1)[0] == 1)


def _of_rows(value: torch.Tensor) -> str:
    """Return what all rows of an input are, or the empty string. Two elements may ascend by chance."""
    if bool((value >= 0).all()) and bool(((value.sum(-1) - 1).abs() < 1e-3).all()):
        return "distributions"
    if bool(((value.norm(dim=-1) - 1).abs() < 1e-3).all()):
        return "directions"
    return "sorted" if value.shape[-1] > 2 and bool((value[..., 1:] >= value[..., :-1]).all()) else ""


def _again(kept: str, value: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
    """Return a changed input with the structure that it had."""
    known = value.isfinite()
    if not known.all():
        moved = torch.where(known, moved, value)
    match kept:
        case "symmetric":
            return moved.tril() + moved.tril(-1).mT
        case "zeros":
            return moved.masked_fill(value == 0, 0.0)
        case "sorted":
            return moved.sort(-1).values
        case "directions":
            return torch.nn.functional.normalize(moved, dim=-1)
        case "distributions":
            return torch.nn.functional.normalize(moved.abs(), p=1.0, dim=-1)
    return moved


def _deviation(value: torch.Tensor) -> float:
    """Return the standard deviation of a computed input's finite elements, to four digits, because devices sum in
    different orders."""
    known = value.isfinite()
    return float(f"{float((value if known.all() else value[known]).double().std(correction=0)):.4g}")


@dataclass(frozen=True)
class Plan:
    """The inputs of a problem as recipes, or None for an input that only `get_inputs()` can make.

    spec: for each input (shape, dtype), or the plain Python value. foreign: random functions that torch itself served.
    """

    problem: Problem
    module: types.ModuleType
    recipes: tuple[Recipe | None, ...]
    spec: tuple[Any, ...]
    foreign: tuple[str, ...]

    @property
    def tensors(self) -> list[int]:
        """Return the indices of the inputs that are tensors."""
        return [i for i, spec in enumerate(self.spec) if isinstance(spec, tuple) and isinstance(spec[0], torch.Size)]

    @property
    def turnable(self) -> list[int]:
        """Return the tensors that a transpose makes not contiguous, without those too large for a copy."""
        small = (i for i in self.tensors if self.nbytes(i) <= _TURNED_BYTES)
        return [i for i in small if min((1, 1, *self.spec[i][0])[-2:]) > 1]

    @property
    def batch(self) -> int | None:
        """Return the rows, the product of the batch dimensions; None if the problem cannot be split."""
        chosen = self.problem.batch_inputs
        if not chosen or any(self.recipes[i] is None for i in chosen):
            return None
        return int(math.prod(self.spec[chosen[0]][0][: self.problem.batch_dims]))

    def nbytes(self, i: int) -> int:
        """Return the bytes of tensor input i."""
        shape, dtype = self.spec[i]
        return int(math.prod(shape) * dtype.itemsize)

    @property
    def input_bytes(self) -> int:
        """Return the bytes of all tensor inputs."""
        return sum(map(self.nbytes, self.tensors))

    def recipe(self, i: int, stress: Stress | None) -> Recipe | None:
        """Return the recipe of input i, stressed if `stress` is given; None without a recipe."""
        recipe, stress = self.recipes[i], stresses.of_input(stress, i, self.problem.stress)
        if recipe is None or stress is None:
            return recipe
        factor, run = self.problem.spike_of(i), self.problem.stress_run
        if (base := stresses.beneath(stress, self.problem.stress)) is not None:
            recipe = recipe.stressed(base, factor, run if stresses.edits(stress) else 1)
        return recipe.stressed(stress, factor, run)

    def make(self, seed: int, device: torch.device, *, stress: Stress | None = None) -> list[Any]:
        """Return all inputs, newly allocated."""
        return self.chunk(None, seed, device, stress)

    def _others(self, seed: int, device: torch.device) -> list[Any]:
        """Return the inputs without a recipe, made by `get_inputs()` unless all are plain; None for the others."""
        left = [i for i, recipe in enumerate(self.recipes) if recipe is None]
        if all(isinstance(self.spec[i], PLAIN) for i in left):
            return [self.spec[i] if i in left else None for i in range(len(self.recipes))]
        with seeded(seed):  # anew: it may draw, or make a generator, outside get_inputs()
            return list(_drawn(self.problem.module(), device, seed)[0])

    def rows(self, i: int, rows: Rows, made: Any, seed: int, device: torch.device, stress: Stress | None) -> Any:
        """Return input i, or its rows [rows.start, rows.stop) with the batch dimensions flattened into the first.

        made: the value of an input without a recipe.
        """
        recipe = self.recipe(i, stress)
        if recipe is None:
            return self._cast(made, stress, seed, i, device)
        shape, start = recipe.shape, 0
        if rows is not None and i in self.problem.batch_inputs:
            dims = self.problem.batch_dims
            start = rows.start * math.prod(shape[dims:])
            shape = (rows.stop - rows.start, *[1] * (dims - 1), *shape[dims:])
        return recipe.fill(torch.empty(shape, dtype=recipe.dtype, device=device), seed, start)

    def _cast(self, value: Any, stress: Stress | None, seed: int, i: int, device: torch.device) -> Any:
        """Return an input without a recipe, stressed, in the problem's dtype and on the device."""
        spec = self.spec[i]
        if not isinstance(value, torch.Tensor):
            return spec
        if value.shape != spec[0]:
            what, why = f"get_inputs() of {self.problem.file_name} draws its sizes", f"{spec[0]}, then {value.shape}"
            raise ProblemError(what, why, "Let its sizes be constants.")
        value = value.to(device)
        stress = stresses.of_input(stress, i, self.problem.stress)
        if not value.is_floating_point():
            if stress and structure(value) == "constant" and (value.dtype == torch.bool or _ones(value)):
                value = value ^ (self._stressed(0.0 * value, stress, seed, i) > _TURNED).to(value.dtype)
            return value.contiguous()
        if stress is not None and value.numel():
            value = self._stressed(value, stress, seed, i)
        return value.to(spec[1]).contiguous()

    def _stressed(self, value: torch.Tensor, stress: Stress, seed: int, i: int) -> torch.Tensor:
        """Return an input that `get_inputs()` computes, stressed so that what a problem requires of it still holds.

        Zeros stay zeros, symmetric matrices stay symmetric, rows that are sorted, distributions or of length 1 stay so,
        and inputs of few values, as signs and classes, stay as they are, and what is not finite. A constant becomes a
        draw about it, which says of a mask what turns. What a stress adds is in units of the input's own deviation.
        """
        word, number = stresses.parts(stress)
        kept = structure(value)
        if word == "negative":
            return -value
        if word == "times":
            return value if kept == "directions" else value * number
        if kept == "constant" and word not in ("spike", "edit", "special"):
            drawn = philox.fill(torch.empty_like(value), "uniform", seed, i)
            return torch.where(value == 0, drawn - 0.5, value * (1.0 + drawn))
        if (base := stresses.beneath(stress, self.problem.stress)) is not None:
            value = self._stressed(value, base, seed, i)
        if word == "special" or (word in ("spike", "edit") and not kept):
            return self._touched(value, word, number, seed, i)
        if word in ("spike", "edit") or kept == "few values":
            return value
        if not word:
            return _again(kept, value, (value - 0.5) * (math.sqrt(12) * float(stress)))
        if not 0 < (deviation := _deviation(value)) < math.inf:
            return value
        dense = value.clone(memory_format=torch.contiguous_format)
        return _again(kept, value, move(dense, str(stress), deviation, seed, i, value.shape))

    def _touched(self, value: torch.Tensor, word: str, number: float, seed: int, i: int) -> torch.Tensor:
        """Return an input with spikes, edited elements or one element that is no number."""
        deviation = _deviation(value)
        height = math.nan if word == "special" else (number or self.problem.spike_of(i)) * deviation
        if height == 0 or math.isinf(height):
            return value
        value = value.clone(memory_format=torch.contiguous_format)
        if word == "spike":
            return spike(value, height, seed, i, value.numel())
        places = touched(seed, i, value.numel(), 1 if word == "special" else stresses.TOUCHED)
        for turn, place in enumerate(places):
            value.view(-1)[place] = height * (-1) ** turn
        return value

    def chunk(self, rows: Rows, seed: int, device: torch.device, stress: Stress | None) -> list[Any]:
        """Return all inputs, the batched ones narrowed to `rows`. Without `rows`, the whole."""
        return [self.rows(i, rows, made, seed, device, stress) for i, made in enumerate(self._others(seed, device))]


def _drawn(module: types.ModuleType, device: torch.device, seed: int = 0) -> tuple[Any, _Served]:
    """Return what `get_inputs()` returns, and its draws."""
    served = _Served(device, seed)
    with torch.device(device), served:
        return module.get_inputs(), served


def plan(problem: Problem) -> Plan:
    """Run `get_inputs()` on the meta device and record each input's draw. Raises ProblemError if it fails.

    One that reads values of tensors runs on the CPU.
    """
    with seeded(0):
        module = problem.module()
        try:
            values, served = _drawn(module, torch.device("meta"))
        except Exception:
            try:
                values, served = _drawn(module, torch.device("cpu"))
            except Exception as error:
                raise problem.fault(f"get_inputs() of {problem.file_name} fails", error) from error
    listed = isinstance(values, list | tuple)
    direct = sum(isinstance(value, torch.Tensor) for value in values) if listed else 0
    if direct < max(1, sum(isinstance(value, torch.Tensor) for value in tree_leaves(values))):
        of_list = "a list with a list of tensors in it" if direct else "a list without a tensor"
        wrong = of_list if listed else type(values).__name__
        raise ProblemError(f"get_inputs() of {problem.file_name} returns {wrong}", "",
                           "Let it return a list of what Model.forward takes: tensors and plain values.")  # fmt: skip
    declared = getattr(module, "DECLARED_DTYPES", False)  # of a definition, whose inputs may differ in precision

    def kept(dtype: torch.dtype) -> torch.dtype:
        return torch_dtype(problem.dtype) if dtype.is_floating_point and not declared else dtype

    recipes = []
    spec = []
    for value in values:
        entry = served.drawn.get(id(value)) if isinstance(value, torch.Tensor) else None
        recipe = None
        if entry is not None and entry[0] is value and value._version == entry[2]:
            recipe = replace(entry[1], dtype=kept(entry[1].dtype))
        recipes.append(recipe)
        if isinstance(value, torch.Tensor):
            refuse_dtype(value, f"get_inputs() of {problem.file_name}")
            spec.append((value.shape, kept(value.dtype)))
        else:
            spec.append(value)
    return Plan(problem, module, tuple(recipes), tuple(spec), tuple(served.foreign))


def refuse_dtype(value: torch.Tensor, source: str) -> None:
    """Raise ProblemError if a tensor that `source` returns is fp8 or complex: no class of precision is for it."""
    if value.is_complex() or (value.is_floating_point() and value.dtype.itemsize == 1):
        name = str(value.dtype).removeprefix("torch.")
        raise ProblemError(f"{source} returns {name}", "not judged: fp8 and complex have no measured limits",
                           "Give inputs and outputs in float32, bfloat16 or float16, and convert inside.")  # fmt: skip


@dataclass
class Weights:
    """A state dict on the CPU, with the constructor arguments that it belongs to. Its tensors are never written to.

    perturbed: those that were made from it, or None. scaled: those of which some are larger, by their stress, or None.
    name: native, perturbed or scaled.
    """

    init: list[Any]
    state: dict[str, torch.Tensor]
    perturbed: Weights | None = None
    scaled: tuple[str, Weights] | None = None
    name: str = "native"

    @functools.cached_property
    def sha256(self) -> str:
        """Return the hash of names, dtypes, shapes and bytes, in the order of the state dict. It is computed once."""
        digest = hashlib.sha256()
        for name, value in self.state.items():
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.contiguous().view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


_latest: list[tuple[Problem, bytes, Weights]] = []  # one at most


def weights(problem: Problem, module: types.ModuleType) -> Weights:
    """Return the published weights: the problem's own initialisation on the CPU under a fixed seed, in its dtype.

    The latest are kept for a job that measures a fixture and then judges by it: 2 billion take 20 s to draw.
    """
    text = problem.source
    if not _latest or _latest[0][:2] != (problem, text):
        _latest.clear()  # before others are drawn, so that no two large ones exist
        init = problem.init_inputs(module)
        model = build(problem, module, init)
        drawn_weights = Weights(init, {name: value.detach() for name, value in model.state_dict().items()})
        _latest.append((problem, text, drawn_weights))
    return _latest[0][2]


class _Undrawn(TorchDispatchMode):
    """Leaves random draws into parameters out. harmless: nothing else was computed from what they would have held."""

    DRAWS = (torch.ops.aten.uniform_.default, torch.ops.aten.normal_.default)

    def __init__(self) -> None:
        super().__init__()
        self.parameters: dict[int, torch.nn.Parameter] = {}  # by their storage
        self.harmless = True

    def _holds(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.untyped_storage()._cdata in self.parameters

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.DRAWS and isinstance(args[0], torch.nn.Parameter):
            self.parameters[args[0].untyped_storage()._cdata] = args[0]
            return args[0]
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:  # it would have drawn other numbers
            self.harmless = False
        if self.parameters and any(map(self._holds, tree_leaves((args, kwargs)))):
            self.harmless = self.harmless and all(map(self._holds, tree_leaves(result)))
        return result


def build(problem: Problem, module: types.ModuleType, init: list[Any], *, drawn: bool = True) -> torch.nn.Module:
    """Return a new `Model` on the CPU, in the problem's dtype and in eval mode. drawn: as for `constructed`. Raises
    ProblemError."""
    try:
        model = constructed(module.Model, init, drawn=drawn)
    except Exception as error:
        raise problem.fault(f"Model of {problem.file_name} cannot be built", error) from error
    return model.to(torch_dtype(problem.dtype)).eval()


def constructed(made: Callable[..., torch.nn.Module], init: list[Any], *, drawn: bool = True) -> torch.nn.Module:
    """Return a new model, with draws under the fixed seed.

    drawn: without it parameters may hold anything, for a caller that loads a state dict. They are drawn all the same
    where something else depends on them.
    """
    model = None if drawn else _undrawn(made, init)
    if model is None:
        with seeded(WEIGHT_SEED):
            model = made(*init)
    return model


def _undrawn(made: Callable[..., torch.nn.Module], init: list[Any]) -> torch.nn.Module | None:
    """Return a new model whose parameters were not drawn, or None where that would change something else."""
    with suppress(Exception), seeded(WEIGHT_SEED), _Undrawn() as mode:  # its exception comes again without the mode
        model = made(*init)
        known = {id(parameter) for parameter in model.parameters()}
        own = all(id(parameter) in known for parameter in mode.parameters.values())
        if own and mode.harmless:
            return model
    return None
