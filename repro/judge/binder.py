"""Calls of a solution: `ModelNew(*inputs)`, or `kernel_function` with the model's parameters bound by name.

The one binder of the project: verification, timing and profiling all call solutions through it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

CONFIGURATION = ("stride", "padding", "dilation", "output_padding", "groups", "kernel_size", "eps", "num_groups")
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


def _scalar(value: Any) -> Any:
    """A tuple of equal numbers as the number: published kernels take either."""
    if isinstance(value, tuple) and value and all(v == value[0] for v in value):
        return value[0]
    return value


def model_values(model: nn.Module) -> dict[str, Any]:
    """Names a kernel may ask for -> the model's values.

    The first convolution or linear layer gives weight, bias and configuration; norms add weight, bias, eps and
    groups; pooling layers their window; plain attributes of the model and its direct parameters are found by name.
    """
    values: dict[str, Any] = {}
    for name, value in vars(model).items():
        if isinstance(value, int | float | tuple) and not name.startswith("_") and name != "training":
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


def bind(function: Callable[..., Any], model: nn.Module, count: int) -> Callable[..., Any]:
    """`function` as a callable of the problem's `count` inputs alone.

    Named parameters: the model's value where it has one of that name, else the next input, else the default.
    `*args`: all inputs, then the weights; `**kwargs`: the rest of the configuration. A None bias is passed as None.
    Raises TypeError where a parameter without a default stays unbound.
    """
    values = model_values(model)
    parameters = list(inspect.signature(function).parameters.values())
    kinds = {p.kind for p in parameters}
    configuration = {k: v for k, v in values.items() if not isinstance(v, torch.Tensor)}
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        weights = [v for v in values.values() if isinstance(v, torch.Tensor)]
        extra = configuration if inspect.Parameter.VAR_KEYWORD in kinds else {}
        for parameter in parameters:
            name = ALIASES.get(parameter.name, parameter.name)
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name in configuration:
                extra = extra | {parameter.name: configuration[name]}
        return lambda *inputs: function(*inputs, *weights, **extra)
    order: list[tuple[str, int | None, Any]] = []
    used = 0
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        name = ALIASES.get(parameter.name, parameter.name)
        required = parameter.default is inspect.Parameter.empty
        left = count - used
        if name in values and not (left and used == 0):
            order.append((parameter.name, None, values[name]))
        elif left:
            order.append((parameter.name, used, None))
            used += 1
        elif name == "bias" and required:
            order.append((parameter.name, None, None))
        elif required:
            raise TypeError(f"parameter {parameter.name!r} of {function.__name__} matches no input and no model value")
    if used < count:
        raise TypeError(f"{function.__name__} takes {used} of the problem's {count} inputs")
    taken = {p.name for p in parameters}
    extra = {k: v for k, v in configuration.items() if k not in taken}
    extra = extra if inspect.Parameter.VAR_KEYWORD in kinds else {}
    first = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY]

    def call(*inputs: Any) -> Any:
        named = {name: value if at is None else inputs[at] for name, at, value in order}
        return function(*[named.pop(name) for name in first if name in named], **named, **extra)

    return call
