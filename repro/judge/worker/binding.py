"""Calls of a solution: `ModelNew(*inputs)`, or `kernel_function` with the model's values bound by parameter name.

Verification, timing and profiling all call solutions through this binder. It guesses nothing: a parameter whose name
says too little is refused, with the names that would do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

import torch
from torch import nn
from torch._library.custom_ops import CustomOpDef

from repro.records.wording import listed

_Values = dict[str, Any]
# Name of a parameter, index of its input or None, its value.
_Bound = tuple[str, int | None, Any]
_TENSORS = ("weight", "bias")
# What a kernel may ask of a layer: by the layer's name and this one, and by this one alone where all layers agree.
_LAYER = (*_TENSORS, "stride", "padding", "dilation", "output_padding", "groups", "kernel_size", "ceil_mode", "eps",
          "num_groups", "normalized_shape", "num_features", "num_channels", "in_channels", "out_channels",
          "in_features", "out_features", "negative_slope", "running_mean", "running_var")  # fmt: skip
# What a kernel with `**kwargs` is given by name: the names that KernelAgent's published driver passes.
_STARRED = (*_TENSORS, "kernel_size", "stride", "padding", "dilation", "output_padding", "groups", "eps")
_STARS = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_PLAIN = (int, float, str, tuple, list)
_UNKNOWN = object()
# Names that an error lists.
_LISTED = 24


@dataclass(frozen=True)
class _Several:
    """Values under one name that differ, by their full names."""

    full_names: tuple[str, ...]


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters that a call can fill, without those that a partial has filled by name.

    Wrappers, modules and custom operators have those of the function behind them. Raises TypeError where Python cannot
    read them.
    """
    if isinstance(function, nn.Module):
        function = getattr(function, "_orig_mod", function).forward
    try:
        signature = inspect.signature(function._init_fn if isinstance(function, CustomOpDef) else function)
    except ValueError:
        raise TypeError("kernel_function has no readable signature: define it with def") from None
    return [p for p in signature.parameters.values() if p.name not in getattr(function, "keywords", ())]


def _scalar(value: Any) -> Any:
    """Return a tuple of equal numbers as the number, since published kernels accept either."""
    if isinstance(value, tuple) and value and all(v == value[0] for v in value):
        return value[0]
    return value


def _usable(name: str, value: object) -> bool:
    """Return whether a layer's value can be asked for. A layer without a bias has the bias None."""
    if name in _TENSORS:
        return value is None or isinstance(value, torch.Tensor)
    return value is not None and not isinstance(value, str) and not callable(value)


def _layers(model: nn.Module) -> dict[str, _Values]:
    """Return for each name of _LAYER the values of all layers by full names, such as `conv1_stride`."""
    values: dict[str, _Values] = {}
    for path, layer in model.named_modules():
        for name in _LAYER if path else ():
            if hasattr(layer, name) and _usable(name, value := getattr(layer, name)):
                values.setdefault(name, {})[f"{path.replace('.', '_')}_{name}"] = _scalar(value)
    return values


def _constructor(model: nn.Module, init: Sequence[Any]) -> _Values:
    """Return the model's constructor arguments by name, with their defaults."""
    signature = inspect.signature(type(model).__init__)
    bound = signature.bind_partial(model, *init)
    bound.apply_defaults()
    arguments: _Values = {}
    for name, value in list(bound.arguments.items())[1:]:
        variable = signature.parameters[name].kind in _STARS
        if not variable and name not in _TENSORS:  # `bias=False` says whether there is one
            arguments[name] = _scalar(value) if name in _LAYER else value
    return arguments


def _agreed(name: str, full: _Values, asked: set[str]) -> Any:
    """Return the one value under a name, or what differs. full: by full names; those that are asked for are no
    candidates."""
    left = {key: value for key, value in full.items() if key == name or key not in asked}
    if not left:
        return _UNKNOWN
    one = next(iter(left.values()))
    same = all(value is one or not isinstance(value, torch.Tensor) and value == one for value in left.values())
    return one if same else _Several(tuple(left))


def _by_name(model: nn.Module, init: Sequence[Any], asked: set[str]) -> _Values:
    """Return the model's values by name.

    These are, the first of a name counting: plain attributes of the model, parameters and buffers with underscores in
    their names, constructor arguments, and values of layers. asked: the names of all parameters.
    """
    tensors = {name.replace(".", "_"): value for name, value in [*model.named_parameters(), *model.named_buffers()]}
    values: _Values = {}
    for name, full in _layers(model).items():
        own = {name: tensors[name]} if name in tensors else {}
        values |= full | {name: _agreed(name, own | full, asked)}
    arguments = _constructor(model, init)
    values |= {name: value for name, value in arguments.items() if value is not None or name not in values}
    values |= {name: value for name, value in tensors.items() if name not in values or name not in _TENSORS}
    values |= _attributes(model)
    return {name: value for name, value in values.items() if value is not _UNKNOWN}


def _attributes(model: nn.Module) -> _Values:
    """Return the model's own plain attributes."""
    plain = {name: value for name, value in vars(model).items() if isinstance(value, _PLAIN) and name != "training"}
    return {name: _scalar(value) for name, value in plain.items() if not name.startswith("_")}


def bind(function: Callable[..., Any], model: nn.Module, count: int, init: Sequence[Any] = ()) -> Callable[..., Any]:
    """Bind everything but the problem's `count` inputs, and return a callable of these. init: the model's arguments.

    The first parameter is an input. Any other takes the model's value of its name, else the next input, else its
    default. A None takes the default too. Arguments that a partial filled are kept. Behind a named parameter `**kwargs`
    takes the values called as in _STARRED, and an `*args` before it the inputs that are left. Raises TypeError if a
    parameter has no value or could have several, if inputs are left over, or if the parameters have no names.
    """
    named, stars = _split(parameters_of(function))
    values = _by_name(model, init, {parameter.name for parameter in named})
    order = _order(named, values, count, rest=len(stars) == 2)
    used = sum(at is not None for _, at, _ in order)
    by_place = (Parameter.POSITIONAL_ONLY, *([Parameter.POSITIONAL_OR_KEYWORD] if len(stars) == 2 else []))
    first = [parameter.name for parameter in named if parameter.kind in by_place]
    extra = _starred(values, {*(name for name, _, _ in order), *getattr(function, "keywords", ())}) if stars else {}

    def call(*inputs: Any) -> Any:
        given = {name: value if at is None else inputs[at] for name, at, value in order}
        return function(*[given.pop(name) for name in first], *inputs[used:], **given, **extra)

    return call


def _split(parameters: list[Parameter]) -> tuple[list[Parameter], list[Parameter]]:
    """Return the named parameters, and `*args` and `**kwargs`. Raises TypeError if these say too little."""
    named = [parameter for parameter in parameters if parameter.kind not in _STARS]
    stars = [parameter for parameter in parameters if parameter.kind in _STARS]
    if stars and (not named or stars[-1].kind is not Parameter.VAR_KEYWORD):
        raise TypeError(f"kernel_function takes {str(stars[0]).partition(':')[0]}: name each parameter, inputs first")
    return named, stars


def _starred(values: _Values, taken: set[str]) -> _Values:
    """Return what `**kwargs` takes. Raises TypeError where a name has several values."""
    extra = {name: values[name] for name in _STARRED if values.get(name) is not None and name not in taken}
    for name, value in extra.items():
        _refuse(Parameter(name, Parameter.KEYWORD_ONLY), value, values, [])
    return extra


def _order(parameters: list[Parameter], values: _Values, count: int, *, rest: bool) -> list[_Bound]:
    """Return (parameter name, input index or None, value) for every parameter. rest: inputs may be left over.

    Raises TypeError.
    """
    order: list[_Bound] = []
    used = 0
    for parameter in parameters:
        value = values.get(parameter.name, _UNKNOWN)
        if used < count and (used == 0 or value is _UNKNOWN):
            order.append((parameter.name, used, None))
            used += 1
            continue
        if (value is None or value is _UNKNOWN) and parameter.default is not Parameter.empty:
            value = parameter.default
        _refuse(parameter, value, values, order)
        order.append((parameter.name, None, value))
    if used < count and not rest:
        raise TypeError(f"kernel_function takes {used} of the problem's {count} inputs")
    return order


def _refuse(parameter: Parameter, value: Any, values: _Values, order: list[_Bound]) -> None:
    """Raise TypeError for a parameter without a value, or with several. order: what those before it were bound to."""
    name = f"parameter {parameter.name!r} of kernel_function"
    if value is _UNKNOWN:
        known = sorted(name for name, one in values.items() if not isinstance(one, _Several))
        remedy = f"Rename it, or give it a default; values have these names: {listed(known, _LISTED)}"
        bound = ", ".join(f"{taken} = {_shown(one) if at is None else f'input {at + 1}'}" for taken, at, one in order)
        raise TypeError(f"{name} is no input and no value of the model; bound are {bound}. {remedy}")
    if isinstance(value, _Several):
        raise TypeError(f"{name} could be {listed(value.full_names, _LISTED)}: use the full name of each that you need")


def _shown(value: Any) -> str:
    return f"a tensor {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)[:40]
