"""The parameters of a callable, also of one that is no plain function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

_IN_ORDER = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters that a call can fill; those that a partial has filled are left out.

    Wrappers, partials, modules, custom operators, TorchScript and the `apply` of an autograd function have the
    parameters of the function behind them. Raises TypeError if they cannot be determined.
    """
    function = inspect.unwrap(function, stop=lambda f: hasattr(f, "__signature__"))
    if isinstance(function, functools.partial):
        return _of_partial(function)
    if isinstance(function, torch.nn.Module):
        return parameters_of(getattr(function, "_orig_mod", function).forward)
    if isinstance(function, CustomOpDef):
        return parameters_of(function._init_fn)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) and function.__name__ == "apply":
        return _of_apply(owner)
    if (arguments := _schema_arguments(function)) is not None:
        return [_of_argument(argument) for argument in arguments]
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        raise TypeError("kernel_function has no readable signature: define it with def") from None


def _of_partial(function: functools.partial[Any]) -> list[Parameter]:
    parameters = parameters_of(function.func)
    in_order = [p.name for p in parameters if p.kind in _IN_ORDER]
    filled = {*in_order[: len(function.args)], *function.keywords}
    return [p for p in parameters if p.name not in filled]


def _of_apply(owner: type[torch.autograd.Function]) -> list[Parameter]:
    """Return the parameters of its `forward` after the context, positional only: `apply` takes no keywords."""
    parameters = parameters_of(owner.forward)
    if owner.setup_context is torch.autograd.Function.setup_context:
        parameters = parameters[1:]
    return [p.replace(kind=Parameter.POSITIONAL_ONLY) if p.kind in _IN_ORDER else p for p in parameters]


def _schema_arguments(function: Any) -> list[Any] | None:
    """Return the arguments of an operator or a TorchScript function, or None for other callables."""
    if isinstance(function, torch._ops.OpOverloadPacket):
        function = getattr(function, function.overloads()[0])
    schema = getattr(function, "_schema" if isinstance(function, torch._ops.OpOverload) else "schema", None)
    if not isinstance(schema, torch._C.FunctionSchema):
        return None
    return list(schema.arguments[isinstance(function, torch._C.ScriptMethod) :])


def _of_argument(argument: Any) -> Parameter:
    kind = Parameter.KEYWORD_ONLY if argument.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD
    default = argument.default_value if argument.has_default_value() else Parameter.empty
    return Parameter(argument.name, kind, default=default)
