"""The one binder: what a `kernel_function` of any published signature is called with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from repro.judge.worker import binding


class Conv(nn.Module):
    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, (3, 3), stride=2, padding=(1, 1), dilation=1, groups=4, bias=bias)


class RMSNorm(nn.Module):
    def __init__(self, num_features: int = 64, eps: float = 1e-3) -> None:
        super().__init__()
        self.num_features, self.eps = num_features, eps


class Biased(nn.Module):
    """A layer's bias, and one of the model itself."""

    def __init__(self) -> None:
        super().__init__()
        self.matmul = nn.Linear(3, 5)
        self.bias = nn.Parameter(torch.zeros(5))
        self.scaling_factor = 1.5
        self.group_norm = nn.GroupNorm(5, 5, eps=0.25)


class Normalised(nn.Module):
    """Keeps nothing of its constructor but the third argument, which it changes, and in its layers."""

    def __init__(
        self, n_in: int, n_out: int, factor: float, bn_eps: float = 0.5, shape: tuple[int, ...] = (1,)
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(n_in, n_out)
        self.bn = nn.BatchNorm1d(n_out, eps=bn_eps)
        self.scale = nn.Parameter(torch.ones(shape))
        self.factor = factor + 1


class Pooled(nn.Module):
    """Arguments that mean less than what the layers made of them, and one that says whether there is a bias."""

    def __init__(
        self, kernel_size: int, stride: int | None = None, bias: bool = True, limit: float | None = None
    ) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(kernel_size, stride)
        self.conv = nn.Conv2d(2, 2, 1, bias=bias)


class Deeper(nn.Module):
    """Its arguments have the names of what its layers have, with other values."""

    def __init__(self, in_features: int, out_features: int, *more: int, eps: float = 0.5) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(in_features, 7), nn.Linear(7, out_features)
        self.norm = nn.LayerNorm(out_features, eps=0.25)


def built_with(init: list[Any], function: Callable[..., Any], model: Callable[..., nn.Module]) -> Any:
    """What `function` gets of an input and a model of these arguments."""
    return binding.bind(function, model(*init), 1, init)("x")


def called_with(function: Callable[..., Any], model: nn.Module, *values: Any) -> Any:
    """What `function` gets; it returns its arguments."""
    return binding.bind(function, model, len(values))(*values)


def test_named_parameters_take_the_models_values_by_name() -> None:
    def function(x, weight, stride, padding, dilation, groups):
        return x, weight, stride, padding, dilation, groups

    model = Conv()
    x, weight, *rest = called_with(function, model, "x")
    assert x == "x" and weight is model.conv.weight and rest == [2, 1, 1, 4], "tuples of equal numbers as the number"


def test_the_first_parameter_is_an_input_whatever_its_name() -> None:
    assert called_with(lambda weight, stride: (weight, stride), Conv(), "x") == ("x", 2)


def test_defaults_give_way_to_the_model_and_stay_where_it_has_nothing() -> None:
    """As published kernels declare them: (x, num_features, eps=1e-5), eps from the model."""
    found = called_with(lambda x, num_features=1, eps=1e-5, axis=1: (x, num_features, eps, axis), RMSNorm(), "x")
    assert found == ("x", 64, 1e-3, 1)


@pytest.mark.parametrize("alias", ["w", "weights", "kernel", "conv_weight"])
def test_aliases_of_the_weight(alias: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def function(x, {alias}): return {alias}", scope)
    model = Conv()
    assert called_with(scope["function"], model, "x") is model.conv.weight


def test_the_layers_bias_and_the_models_own() -> None:
    model = Biased()
    for function in (
        lambda x, weight, bias, model_bias: (bias, model_bias),
        lambda x, w, b, add_bias: (b, add_bias),
        lambda x, weight, conv_bias, add_bias: (conv_bias, add_bias),
    ):
        bias, own = called_with(function, model, "x")
        assert bias is model.matmul.bias and own is model.bias
    values = called_with(
        lambda x, scaling_factor, num_groups, epsilon: (scaling_factor, num_groups, epsilon), model, "x"
    )
    assert values == (1.5, 5, 0.25)


def test_a_bias_that_is_none_is_passed_as_none() -> None:
    assert called_with(lambda x, weight, bias: bias, Conv(), "x") is None
    assert called_with(lambda x, weight, bias=7: bias, Conv(), "x") == 7
    model = Conv(bias=True)
    assert called_with(lambda x, weight, bias=None: bias, model, "x") is model.conv.bias


def test_several_inputs_fill_the_parameters_that_the_model_has_no_value_for() -> None:
    assert called_with(lambda A, B: (A, B), nn.Identity(), "a", "b") == ("a", "b")
    assert called_with(lambda q, k, v, scale=None: (q, k, v, scale), nn.Identity(), 1, 2, 3) == (1, 2, 3, None)


def test_varargs_get_the_inputs_then_the_weights_and_kwargs_the_configuration() -> None:
    model = Conv(bias=True)
    args, kwargs = called_with(lambda *args, **kwargs: (args, kwargs), model, "x")
    assert args[0] == "x" and args[1] is model.conv.weight and args[2] is model.conv.bias and len(args) == 3
    assert kwargs == {"stride": 2, "padding": 1, "dilation": 1, "groups": 4, "kernel_size": 3, "output_padding": 0}
    assert called_with(lambda *args: len(args), Conv(), "x") == 2


def test_varargs_name_a_models_own_bias_once() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(5))

    assert called_with(lambda *args: len(args), Own(), "x") == 2


def test_keyword_only_parameters_get_the_configuration_too() -> None:
    """A stride that is silently left at its default is a wrong answer."""
    model = Conv()
    assert called_with(lambda *args, stride=1, padding=0: (stride, padding), model, "x") == (2, 1)
    assert called_with(lambda x, weight, *, stride, padding=0: (stride, padding), model, "x") == (2, 1)


def test_kwargs_beside_named_parameters_get_the_rest_of_the_configuration() -> None:
    assert called_with(lambda x, weight, stride, **kwargs: (stride, kwargs.get("padding")), Conv(), "x") == (2, 1)


def test_positional_only_parameters_are_bound() -> None:
    scope: dict[str, Any] = {}
    exec("def function(x, w, /, stride): return x, w, stride", scope)
    model = Conv()
    x, weight, stride = called_with(scope["function"], model, "x")
    assert x == "x" and weight is model.conv.weight and stride == 2


def test_an_unbound_parameter_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="'temperature' .* matches no input and no model value"):
        binding.bind(lambda x, temperature: x, Conv(), 1)
    with pytest.raises(TypeError, match="takes 1 of the problem's 2 inputs"):
        binding.bind(lambda x: x, Conv(), 2)


class Transposed(nn.Module):
    """Keeps none of its constructor's arguments but through its layer."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=False
        )


class Network(nn.Module):
    """Two layers, a norm with statistics and a mask: nothing that the first layer alone could tell."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(3, 5)
        self.fc2 = nn.Linear(5, 2)
        self.bn = nn.BatchNorm1d(2)
        self.register_buffer("mask", torch.ones(2))


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.MaxPool3d(3, stride=2, dilation=3), {"kernel_size": 3, "stride": 2, "padding": 0, "dilation": 3}),
        (nn.AvgPool2d((2, 4)), {"kernel_size": (2, 4), "stride": (2, 4), "padding": 0}),
        (nn.GroupNorm(2, 6, eps=0.5), {"num_groups": 2, "eps": 0.5, "num_channels": 6}),
        (nn.LayerNorm((4, 6)), {"normalized_shape": (4, 6), "eps": 1e-5}),
        (nn.LayerNorm(6), {"normalized_shape": 6}),
        (nn.ConvTranspose2d(4, 6, 3, stride=(2, 1), output_padding=(1, 0), dilation=2),
         {"stride": (2, 1), "output_padding": (1, 0), "dilation": 2, "in_channels": 4, "out_channels": 6}),
        (nn.Linear(3, 5), {"in_features": 3, "out_features": 5}),
    ],
)  # fmt: skip
def test_every_kind_of_layer_gives_its_configuration(layer: nn.Module, expected: dict[str, Any]) -> None:
    scope: dict[str, Any] = {}
    names = ", ".join(expected)
    exec(f"def function(x, {names}): return dict(zip({list(expected)}, ({names},)))", scope)
    assert called_with(scope["function"], nn.Sequential(layer), "x") == expected


def test_unknown_names_take_constructor_arguments_in_order() -> None:
    """`kernel_function(*inputs, *init_inputs)`, as profilers of published kernels call them."""
    assert called_with(lambda x, C: (x, C), RMSNorm(64), "x") == ("x", 64)
    assert called_with(lambda x, C, small: (x, C, small), RMSNorm(64, 1e-3), "x") == ("x", 64, 1e-3)
    found = called_with(lambda x, weight, cin, cout, stride: (cin, cout, stride), Transposed(4, 6, 3, 2), "x")
    assert found == (4, 6, 2), "what a name told is not given again"


def test_kwargs_after_named_parameters_get_the_weights_too() -> None:
    """`kernel_function(*inputs, **everything)`: a kernel that takes its weight out of the keywords."""
    model = Conv(bias=True)
    x, keywords = called_with(lambda x, **keywords: (x, keywords), model, "x")
    assert x == "x" and keywords["weight"] is model.conv.weight and keywords["bias"] is model.conv.bias
    assert keywords["stride"] == 2
    keywords = called_with(lambda x, w, **keywords: keywords, model, "x")
    assert "weight" not in keywords, "it was given as `w`"


def test_named_parameters_before_varargs_take_inputs_and_weights_in_their_order() -> None:
    model = Conv()
    x, weight, rest = called_with(lambda x, weight, *rest: (x, weight, rest), model, "x")
    assert x == "x" and weight is model.conv.weight and rest == ()


def test_parameters_and_buffers_are_found_under_their_full_names() -> None:
    model = Network()
    names = (model.fc1.weight, model.fc2.weight, model.fc2.bias, model.bn.running_var, model.mask)
    found = called_with(
        lambda x, fc1_weight, fc2_weight, fc2_bias, running_var, mask: (
            fc1_weight, fc2_weight, fc2_bias, running_var, mask), model, "x",
    )  # fmt: skip
    assert all(a is b for a, b in zip(found, names, strict=True))


def test_an_output_buffer_that_may_be_given_is_left_at_its_default() -> None:
    """`kernel_function(x, out=None)` works in place without one: the gates see it, the binder does not hide it."""
    assert called_with(lambda x, out=None: (x, out), RMSNorm(64), "x") == ("x", None)


def test_plain_values_of_other_kinds_are_found_by_name() -> None:
    model = nn.Identity()
    model.dim, model.keepdim, model.reduction, model.dims = 1, True, "mean", [1, 2]
    found = called_with(lambda x, dim, keepdim, reduction, dims: (dim, keepdim, reduction, dims), model, "x")
    assert found == (1, True, "mean", [1, 2])


def test_arguments_filled_by_a_partial_are_kept() -> None:
    """By place or by name, beside `**kwargs` and `*args` too: it had no `__name__`, and would have lost its value."""
    model = Conv(bias=True)
    block = functools.partial(lambda x, block, y, stride: (x, block, y, stride), block=128)
    assert called_with(block, model, "x", "y") == ("x", 128, "y", 2)
    first = functools.partial(lambda block, x, stride: (block, x, stride), 128)
    assert called_with(first, model, "x") == (128, "x", 2)
    assert called_with(functools.partial(lambda x, stride: (x, stride), stride=7), model, "x") == ("x", 7)
    keywords = called_with(functools.partial(lambda x, w, stride, **keywords: keywords, w=1, stride=7), model, "x")
    assert keywords.keys() & {"weight", "stride"} == set() and keywords["padding"] == 1
    _, keywords = called_with(functools.partial(lambda *args, **keywords: (args, keywords), stride=7), model, "x")
    assert keywords["stride"] == 7 and keywords["padding"] == 1


def test_wrappers_are_bound_by_the_parameters_of_the_wrapped_function() -> None:
    """Modules, compiled functions, TorchScript and autograd functions, in which `(*args, **kwargs)` stood for them."""

    class Kernel(nn.Module):
        def forward(self, x: torch.Tensor, stride: int, padding: int = 7) -> torch.Tensor:
            return x * stride + padding

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, scale: float = 1.0, stride: int = 7, padding: int = 7) -> torch.Tensor:
            return x * scale * stride + padding

    class Apart(torch.autograd.Function):
        @staticmethod
        def forward(x: torch.Tensor, stride: int, padding: int) -> torch.Tensor:
            return x * stride + padding

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

    x, model = torch.tensor([5.0]), Conv()
    kernel = Kernel()
    for function in (
        kernel, kernel.forward, torch.compile(kernel, backend="eager"), torch.compile(kernel.forward, backend="eager"),
        torch.jit.script(kernel), torch.jit.script(kernel).forward, torch.no_grad()(kernel.forward),
        functools.partial(kernel), Function.apply, Apart.apply,
    ):  # fmt: skip
        assert called_with(function, model, x).item() == 11, function


def test_a_positional_parameter_that_stays_at_its_default_keeps_its_place() -> None:
    """What followed it was given in its place."""
    scope: dict[str, Any] = {}
    exec("def function(x, scale=1.5, stride=7, /): return x, scale, stride", scope)
    assert called_with(scope["function"], Conv(), "x") == ("x", 1.5, 2)


def test_an_unreadable_signature_is_a_type_error_with_a_remedy() -> None:
    """A builtin of an extension was a ValueError about a signature."""
    with pytest.raises(TypeError, match="has no readable signature: define it with def"):
        binding.bind(torch.rms_norm, Conv(), 1)


def test_the_constructors_arguments_are_found_by_name_whether_the_model_kept_them_or_not() -> None:
    """An eps behind what the model did not keep took the first argument's value, a shape matched nothing."""
    init = [3, 5, 2.0, 0.25]
    found = built_with(init, lambda x, gemm_weight, n_out, bn_eps, shape: (n_out, bn_eps, shape), Normalised)
    assert found == (5, 0.25, (1,)), "a shape stays a shape"
    assert built_with(init, lambda x, bn_eps=7, other=8: (bn_eps, other), Normalised) == (0.25, 8)
    assert built_with(init[:3], lambda x, bn_eps: bn_eps, Normalised) == 0.5, "the constructor's default"
    assert built_with(init, lambda x, factor: factor, Normalised) == 3.0, "the model's own attribute comes first"
    assert built_with(init, lambda *args, bn_eps: (len(args), bn_eps), Normalised) == (4, 0.25)
    assert built_with(init, lambda x, a, z, factor, c: (a, z, c), Normalised) == (3, 5, 0.25), "in their order"


def test_the_constructors_arguments_come_before_what_the_layers_have_under_their_names() -> None:
    """`out_features` was the first layer's, as if there were no other."""
    found = built_with([3, 5, 9], lambda x, in_features, out_features, eps: (in_features, out_features, eps), Deeper)
    assert found == (3, 5, 0.5)


def test_a_constructor_argument_that_means_less_than_its_layer_gives_way_to_it() -> None:
    """A stride of None is the window's, and whether there is a bias is no bias."""
    assert built_with([3], lambda x, k, stride, limit: (k, stride, limit), Pooled) == (3, 3, None)
    assert built_with([3], lambda x, k, s: (k, s), Pooled) == (3, 3)
    assert isinstance(built_with([3], lambda x, weight, bias: bias, Pooled), torch.Tensor)
    assert built_with([3, 2, False], lambda x, weight, bias: bias, Pooled) is None
    assert built_with([3, 2, False], lambda x, weight, bias=7: bias, Pooled) == 7
    assert built_with([3, 2, False], lambda *args, bias=7: bias, Pooled) == 7


@pytest.mark.parametrize(("name", "init"), [(name, init) for name in ("gn_weight", "gn_bias", "batch_mean", "batch_var")
                                            for init in (None, [3])] + [("limit", None)])  # fmt: skip
def test_no_left_over_argument_is_given_where_a_tensor_or_another_argument_is_asked_for(name: str, init: Any) -> None:
    """They were given a number, the window's size, and torch complained about its type."""
    scope: dict[str, Any] = {}
    exec(f"def function(x, {name}): return {name}", scope)
    with pytest.raises(TypeError, match=f"'{name}' .* matches no input and no model value"):
        binding.bind(scope["function"], Pooled(3), 1, init)


def test_bias_is_the_models_own_where_the_layers_is_asked_for_too() -> None:
    """It was the layer's a second time; a mask that is called `bias` was out of reach."""
    model = Biased()
    for function in (
        lambda x, matmul_weight, matmul_bias, bias: (matmul_bias, bias),
        lambda x, bias, matmul_bias: (matmul_bias, bias),
        lambda x, w, b, bias: (b, bias),
        lambda x, weight, conv_bias, bias=None: (conv_bias, bias),
    ):
        layers, own = called_with(function, model, "x")
        assert layers is model.matmul.bias and own is model.bias
    assert called_with(lambda x, matmul_weight, bias: bias, model, "x") is model.matmul.bias, "where it is alone"
    masked = nn.Sequential(nn.Linear(3, 3))
    masked.register_buffer("bias", torch.ones(3))
    assert called_with(lambda x, w, b, bias: bias, masked, "x") is masked.bias
    network = Network()
    assert called_with(lambda x, fc1_bias, bias: bias, network, "x") is network.fc1.bias, "where it has none of its own"


def test_a_full_name_comes_before_an_alias() -> None:
    """`conv_weight` was the linear layer's where that came first, and the model's own `b` the layer's bias."""
    model = nn.Sequential()
    model.gemm, model.conv, model.b = nn.Linear(3, 3), nn.Conv2d(3, 3, 1), nn.Parameter(torch.ones(3))
    found = called_with(lambda x, conv_weight, conv_bias, b, w: (conv_weight, conv_bias, b, w), model, "x")
    expected = (model.conv.weight, model.conv.bias, model.b, model.gemm.weight)
    assert all(a is b for a, b in zip(found, expected, strict=True))
