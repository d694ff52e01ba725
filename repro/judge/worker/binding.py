"""Calls of a solution: `ModelNew(*inputs)`, or `kernel_function` with the model's parameters bound by name.

Verification, timing and profiling all call solutions through this binder.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any

import torch
from torch import nn

from repro.judge.worker.signatures import parameters_of

# Values of the first layer that has them: all are passed to a kernel with **kwargs, any may be requested by name.
CONFIGURATION = ("stride", "padding", "dilation", "output_padding", "groups", "kernel_size", "eps", "num_groups")
LAYER = (*CONFIGURATION, "normalized_shape", "num_features", "num_channels", "in_channels", "out_channels",
         "in_features", "out_features", "ceil_mode", "running_mean", "running_var")  # fmt: skip
ALIASES = {
    "w": "weight",
    "weights": "weight",
    "kernel": "weight",
    "conv_weight": "weight",
    "b": "bias",
    "conv_bias": "bias",
    "add_bias": "model_bias",
    "epsilon": "eps",
}
PLAIN = (int, float, str, tuple, list)
# A parameter with such an ending is a tensor: it never takes one of the remaining constructor arguments.
TENSORS = ("weight", "bias", "mean", "var")


def _scalar(value: Any) -> Any:
    """Return a tuple of equal numbers as the number, since published kernels accept either."""
    if isinstance(value, tuple) and value and all(v == value[0] for v in value):
        return value[0]
    return value


def model_values(model: nn.Module) -> dict[str, Any]:
    """Return the model's values by the names that a kernel may request.

    The first convolution or linear layer gives weight, bias and configuration; norms add weight, bias, eps and groups;
    pooling layers their window. Plain attributes of the model and its direct parameters keep their names.
    """
    values: dict[str, Any] = {}
    for name, value in vars(model).items():
        if isinstance(value, PLAIN) and not name.startswith("_") and name != "training":
            values[name] = _scalar(value)
    for module in model.modules():
        if module is model:
            continue
        for name in ("weight", "bias"):
            tensor = getattr(module, name, None)
            if isinstance(tensor, torch.Tensor):
                values.setdefault(name, tensor)
        for name in CONFIGURATION:
            if hasattr(module, name) and not isinstance(getattr(module, name), str):
                values.setdefault(name, _scalar(getattr(module, name)))
    for name, parameter in model.named_parameters(recurse=False):
        values["model_bias" if name == "bias" and "bias" in values else name] = parameter
    return values


def _by_name(model: nn.Module, values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` with those found by name only: layers' sizes and statistics, and every parameter and buffer.

    Parameters and buffers have their full names with underscores, such as `fc1_weight`.
    """
    found = dict(values)
    for module in model.modules():
        for name in LAYER:
            value = getattr(module, name, None)
            if value is not None and not isinstance(value, str | Callable):
                found.setdefault(name, _scalar(value))
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        found.setdefault(name.replace(".", "_"), tensor)
    return found


def _constructor(model: nn.Module, found: dict[str, Any], init: Sequence[Any] | None) -> dict[str, Any]:
    """Return the model's constructor arguments in order.

    With `init`: its values and the defaults; for a None, the value that the layers chose. Without `init`: the
    attributes that the model kept, up to the first argument that it did not keep.
    """
    signature = inspect.signature(type(model).__init__)
    plain = {name: value for name, value in found.items() if not isinstance(value, torch.Tensor)}
    if init is None:
        kept = itertools.takewhile(plain.__contains__, list(signature.parameters)[1:])
        return {name: plain[name] for name in kept}
    bound = signature.bind(model, *init)
    bound.apply_defaults()
    given: dict[str, Any] = {}
    for name, value in list(bound.arguments.items())[1:]:
        if signature.parameters[name].kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            value = plain.get(name) if value is None else value
            given[name] = _scalar(value) if name in LAYER else value
    return given


def _with_constructor(model: nn.Module, found: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return `found` with the constructor's arguments.

    They replace layers' values of the same name, but not tensors or the model's own attributes. A boolean `bias`
    argument is not used as a bias.
    """
    kept = {name for name, value in found.items() if name in vars(model) or isinstance(value, torch.Tensor)}
    kept |= {name for name, value in given.items() if ALIASES.get(name, name) == "bias" and isinstance(value, bool)}
    return found | {name: value for name, value in given.items() if name not in kept}


def bind(
    function: Callable[..., Any], model: nn.Module, count: int, init: Sequence[Any] | None = None
) -> Callable[..., Any]:
    """Bind everything but the problem's `count` inputs, and return a callable of these. init: the model's arguments.

    A named parameter takes the model's value of that name, else the next input, else its default. A parameter that is
    still missing takes the remaining constructor arguments in order, as in `kernel_function(*inputs, *init_inputs)`,
    unless it has the name of a constructor argument or of a tensor. `bias` is the first layer's; it is the model's own
    if another parameter takes the layer's.

    `*args` takes all inputs and then the weights; keyword-only parameters take configuration. `**kwargs` takes weights
    and configuration that no parameter took. A None bias is passed as None. Arguments that a partial filled are kept.
    Raises TypeError if a parameter without a default stays unbound, or the signature cannot be determined.
    """
    parameters, filled = parameters_of(function)
    values = model_values(model)
    kinds = {p.kind for p in parameters}
    found = _by_name(model, values)
    given = _constructor(model, found, init)
    found = _with_constructor(model, found, given)
    configuration = {k: v for k, v in values.items() if not isinstance(v, torch.Tensor) and k not in filled}
    if Parameter.VAR_POSITIONAL in kinds:
        weights = [v for v in values.values() if isinstance(v, torch.Tensor)]
        extra = configuration if Parameter.VAR_KEYWORD in kinds else {}
        named = configuration | {k: v for k, v in found.items() if k in given and not isinstance(v, torch.Tensor)}
        for parameter in parameters:
            name = ALIASES.get(parameter.name, parameter.name)
            if parameter.kind is Parameter.KEYWORD_ONLY and name in named:
                extra = extra | {parameter.name: named[name]}
        return lambda *inputs: function(*inputs, *weights, **extra)
    order = _order(parameters, values, found, given, model, count)
    taken = {taken for name in filled.union(p.name for p in parameters) for taken in (name, ALIASES.get(name))}
    extra = {k: v for k, v in values.items() if k not in taken} if Parameter.VAR_KEYWORD in kinds else {}
    first = [p.name for p in parameters if p.kind is Parameter.POSITIONAL_ONLY]

    def call(*inputs: Any) -> Any:
        named = {name: value if at is None else inputs[at] for name, at, value in order}
        return function(*[named.pop(name) for name in first if name in named], **named, **extra)

    return call


def _order(
    parameters: list[Parameter],
    values: dict[str, Any],
    found: dict[str, Any],
    given: dict[str, Any],
    model: nn.Module,
    count: int,
) -> list[tuple[str, int | None, Any]]:
    """Return (parameter name, input index or None, value) for every parameter that is passed. Raises TypeError."""
    order: list[tuple[str, int | None, Any]] = []
    used = 0
    names = {ALIASES.get(p.name, p.name) for p in parameters}
    left_over = [value for name, value in given.items() if name not in names]
    arguments = inspect.signature(type(model).__init__).parameters

    def value_of(parameter: Parameter) -> Any:
        name = ALIASES.get(parameter.name, parameter.name)
        exact = found.get(parameter.name)
        return exact if name not in found or isinstance(exact, torch.Tensor) else found[name]

    own, layers = getattr(model, "bias", None), values.get("bias")
    apart = isinstance(own, torch.Tensor) and isinstance(layers, torch.Tensor)
    apart = apart and any(value_of(p) is layers for p in parameters[1:] if p.name != "bias")
    for parameter in parameters:
        if parameter.kind is Parameter.VAR_KEYWORD:
            continue
        name = ALIASES.get(parameter.name, parameter.name)
        known = own if apart and parameter.name == "bias" else value_of(parameter)
        required = parameter.default is Parameter.empty
        left = count - used
        if known is not None and not (left and used == 0):
            order.append((parameter.name, None, known))
        elif left:
            order.append((parameter.name, used, None))
            used += 1
        elif required and (name == "bias" or parameter.name in given):
            order.append((parameter.name, None, None))
        elif required:
            if not left_over or parameter.name in arguments or parameter.name.endswith(TENSORS):
                why = "matches no input and no model value"
                raise TypeError(f"parameter {parameter.name!r} of kernel_function {why}")
            order.append((parameter.name, None, left_over.pop(0)))
        elif parameter.kind is Parameter.POSITIONAL_ONLY:
            order.append((parameter.name, None, parameter.default))  # keeps the position of later parameters
    if used < count:
        raise TypeError(f"kernel_function takes {used} of the problem's {count} inputs")
    return order
