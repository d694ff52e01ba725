"""The parameters of a callable, also of one that is no plain function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

GIVEN_IN_ORDER = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def parameters_of(function: Callable[..., Any]) -> tuple[list[Parameter], set[str]]:
    """Return the parameters that a call can fill, and the names that a partial has filled.

    Wrappers, partials, modules, custom operators, TorchScript and the `apply` of an autograd function have the
    parameters of the function behind them. Raises TypeError if they cannot be determined.
    """
    function = inspect.unwrap(function, stop=lambda f: hasattr(f, "__signature__"))
    owner = getattr(function, "__self__", None)
    if isinstance(function, functools.partial):
        found, filled = parameters_of(function.func)
        in_order = [p.name for p in found if p.kind in GIVEN_IN_ORDER]
        filled |= {*in_order[: len(function.args)], *function.keywords}
        return [p for p in found if p.name not in filled], filled
    if isinstance(function, torch.nn.Module):
        return parameters_of(getattr(function, "_orig_mod", function).forward)
    if isinstance(function, CustomOpDef):
        return parameters_of(function._init_fn)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) and function.__name__ == "apply":
        return _of_apply(owner), set()
    if isinstance(function, torch._ops.OpOverloadPacket):
        function = getattr(function, function.overloads()[0])
    schema = getattr(function, "_schema" if isinstance(function, torch._ops.OpOverload) else "schema", None)
    if isinstance(schema, torch._C.FunctionSchema):
        arguments = schema.arguments[isinstance(function, torch._C.ScriptMethod) :]
        return [_of_argument(argument) for argument in arguments], set()
    try:
        return list(inspect.signature(function).parameters.values()), set()
    except ValueError:
        raise TypeError("kernel_function has no readable signature: define it with def") from None


def _of_apply(owner: type[torch.autograd.Function]) -> list[Parameter]:
    """Return the parameters of its `forward` after the context, positional only: `apply` takes no keywords."""
    found, _ = parameters_of(owner.forward)
    if owner.setup_context is torch.autograd.Function.setup_context:
        found = found[1:]
    in_order = [p.replace(kind=Parameter.POSITIONAL_ONLY) for p in found if p.kind in GIVEN_IN_ORDER]
    return in_order + [p for p in found if p.kind is Parameter.VAR_POSITIONAL]


def _of_argument(argument: Any) -> Parameter:
    kind = Parameter.KEYWORD_ONLY if argument.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD
    default = argument.default_value if argument.has_default_value() else Parameter.empty
    return Parameter(argument.name, kind, default=default)
