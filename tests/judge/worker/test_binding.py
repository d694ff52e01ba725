"""The binder: what a `kernel_function` is called with, and which signatures are refused."""

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
    """Layers' biases, and one of the model itself."""

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
        self.conv = nn.Conv2d(2, 2, kernel_size, stride or kernel_size, bias=bias)


class Deeper(nn.Module):
    """Its arguments have the names of what its layers have, with other values."""

    def __init__(self, in_features: int, out_features: int, *more: int, eps: float = 0.5) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(in_features, 7), nn.Linear(7, out_features)
        self.norm = nn.LayerNorm(out_features, eps=0.25)


class Network(nn.Module):
    """Two layers, a norm with statistics and a mask: nothing that the first layer alone could tell."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(3, 5)
        self.fc2 = nn.Linear(5, 2)
        self.bn = nn.BatchNorm1d(2)
        self.register_buffer("mask", torch.ones(2))


def convolutions() -> nn.Module:
    """Two layers of one kind with different strides."""
    return nn.Sequential(nn.Conv2d(3, 3, 1, stride=2), nn.Conv2d(3, 3, 1))


def built_with(init: list[Any], function: Callable[..., Any], model: Callable[..., nn.Module]) -> Any:
    """What `function` gets of an input and a model of these arguments."""
    return binding.bind(function, model(*init), 1, init)("x")


def called_with(function: Callable[..., Any], model: nn.Module, *values: Any) -> Any:
    """What `function` gets; it returns its arguments."""
    return binding.bind(function, model, len(values))(*values)


def refused(function: Callable[..., Any], model: nn.Module, count: int = 1) -> str:
    """Why a function is refused."""
    with pytest.raises(TypeError) as error:
        binding.bind(function, model, count)
    return str(error.value)


def test_named_parameters_take_the_models_values_by_name():
    model = Conv()
    x, weight, *rest = called_with(
        lambda x, weight, stride, padding, *, dilation, groups: (x, weight, stride, padding, dilation, groups),
        model, "x",
    )  # fmt: skip
    assert x == "x" and weight is model.conv.weight and rest == [2, 1, 1, 4], "tuples of equal numbers as the number"


def test_inputs_come_first_and_where_the_model_has_no_value():
    assert called_with(lambda weight, stride: (weight, stride), Conv(), "x") == ("x", 2)
    assert called_with(lambda A, B: (A, B), nn.Identity(), "a", "b") == ("a", "b")
    assert called_with(lambda q, k, v, scale=None: (q, k, v, scale), nn.Identity(), 1, 2, 3) == (1, 2, 3, None)


def test_defaults_give_way_to_the_model_and_stay_where_it_has_nothing():
    """As published kernels declare them: (x, num_features, eps=1e-5), eps from the model."""
    found = called_with(lambda x, num_features=1, eps=1e-5, out=None: (x, num_features, eps, out), RMSNorm(), "x")
    assert found == ("x", 64, 1e-3, None)


def test_a_bias_that_is_none_is_passed_as_none():
    assert called_with(lambda x, weight, bias: bias, Conv(), "x") is None
    assert called_with(lambda x, weight, bias=7: bias, Conv(), "x") == 7
    model = Conv(bias=True)
    assert called_with(lambda x, weight, bias=None: bias, model, "x") is model.conv.bias


def test_a_name_that_could_be_several_values_is_refused_until_the_others_are_asked_for_by_full_names():
    model, network = Biased(), Network()
    assert "could be fc1_weight, fc2_weight, bn_weight" in refused(lambda x, weight: x, network)
    assert "could be bias, matmul_bias, group_norm_bias: use the full name" in refused(lambda x, bias: x, model)
    layers, norms, own = called_with(
        lambda x, matmul_bias, bias, group_norm_bias: (matmul_bias, group_norm_bias, bias), model, "x"
    )
    assert layers is model.matmul.bias and norms is model.group_norm.bias and own is model.bias
    assert "could be 0_stride, 1_stride" in refused(lambda x, stride=1: x, convolutions()), "also with a default"
    assert called_with(lambda x, groups: groups, convolutions(), "x") == 1, "equal values are one"


@pytest.mark.parametrize("name", ["w", "b", "W", "params", "temperature", "gn_weight", "batch_mean"])
def test_a_name_that_says_nothing_is_refused_with_the_names_that_would_do(name):
    """Weights called `w` or `W`, a dictionary of all, a number: each had another value before, without a word."""
    scope = {}
    exec(f"def function(x, {name}): return {name}", scope)
    why = refused(scope["function"], Conv())
    assert f"parameter '{name}' of kernel_function is no input and no value of the model" in why
    assert "bound are x = input 1." in why and "conv_weight" in why and "stride" in why


def test_signatures_without_names_or_with_too_few_inputs_are_refused():
    assert "takes *args: name each parameter" in refused(lambda *args: args, Conv())
    assert "takes *args: name each parameter" in refused(lambda x, *args: x, Conv())
    assert "could be 0_weight, 1_weight" in refused(lambda x, **kwargs: x, convolutions())
    assert "takes 1 of the problem's 2 inputs" in refused(lambda x: x, Conv(), 2)
    assert "has no readable signature: define it with def" in refused(torch.rms_norm, Conv())


def test_stars_behind_a_named_parameter_take_what_the_published_driver_gives():
    """KernelAgent's kernels are often `kernel_function(x, *args, **kwargs)`."""
    model, names = Conv(bias=True), {"weight", "bias", "kernel_size", "stride", "padding", "dilation", "groups"}
    x, args, given = called_with(lambda x, *args, **kwargs: (x, args, kwargs), model, "x", "y")
    assert (x, args, given["stride"]) == ("x", ("y",), 2) and given["weight"] is model.conv.weight
    assert names <= given.keys() <= names | {"output_padding"}
    few = functools.partial(lambda x, weight, **kwargs: (weight, kwargs), stride=7)
    weight, given = called_with(few, model, "x")
    assert weight is model.conv.weight and given["stride"] == 7 and "weight" not in given
    assert called_with(lambda x, **kwargs: kwargs, nn.Identity(), "x") == {}


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.MaxPool3d(3, stride=2, dilation=3), {"kernel_size": 3, "stride": 2, "padding": 0, "dilation": 3}),
        (nn.AvgPool2d((2, 4)), {"kernel_size": (2, 4), "stride": (2, 4), "padding": 0}),
        (nn.GroupNorm(2, 6, eps=0.5), {"num_groups": 2, "eps": 0.5, "num_channels": 6}),
        (nn.LayerNorm((4, 6)), {"normalized_shape": (4, 6), "eps": 1e-5}),
        (nn.ConvTranspose2d(4, 6, 3, stride=(2, 1), output_padding=(1, 0), dilation=2),
         {"stride": (2, 1), "output_padding": (1, 0), "dilation": 2, "in_channels": 4, "out_channels": 6}),
        (nn.Linear(3, 5), {"in_features": 3, "out_features": 5}),
        (nn.LeakyReLU(0.5), {"negative_slope": 0.5}),
    ],
)  # fmt: skip
def test_every_kind_of_layer_gives_its_configuration(layer, expected):
    scope = {}
    names = ", ".join(expected)
    exec(f"def function(x, {names}): return dict(zip({list(expected)}, ({names},)))", scope)
    assert called_with(scope["function"], nn.Sequential(layer), "x") == expected


def test_everything_is_found_under_its_full_name():
    model = Network()
    names = (model.fc1.weight, model.fc2.bias, model.bn.running_var, model.mask)
    found = called_with(
        lambda x, fc1_weight, fc2_bias, running_var, mask: (fc1_weight, fc2_bias, running_var, mask), model, "x"
    )
    assert all(a is b for a, b in zip(found, names, strict=True))
    assert called_with(lambda x, bn_eps, fc2_in_features: (bn_eps, fc2_in_features), model, "x") == (1e-5, 5)


def test_plain_attributes_are_found_by_name():
    model = nn.Identity()
    model.dim, model.keepdim, model.reduction, model.dims = 1, True, "mean", [1, 2]
    found = called_with(lambda x, dim, keepdim, reduction, dims: (dim, keepdim, reduction, dims), model, "x")
    assert found == (1, True, "mean", [1, 2])


def test_arguments_filled_by_a_partial_are_kept():
    model = Conv(bias=True)
    block = functools.partial(lambda x, block, y, stride: (x, block, y, stride), block=128)
    assert called_with(block, model, "x", "y") == ("x", 128, "y", 2)
    first = functools.partial(lambda block, x, stride: (block, x, stride), 128)
    assert called_with(first, model, "x") == (128, "x", 2)
    assert called_with(functools.partial(lambda x, stride: (x, stride), stride=7), model, "x") == ("x", 7)


def test_wrappers_are_bound_by_the_parameters_of_the_wrapped_function():
    """Modules and compiled functions. Where `(*args, **kwargs)` stands for the parameters, that is refused."""

    class Kernel(nn.Module):
        def forward(self, x: torch.Tensor, stride: int, padding: int = 7) -> torch.Tensor:
            return x * stride + padding

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, scale: float = 1.0, stride: int = 7, padding: int = 7) -> torch.Tensor:
            return x * scale * stride + padding

    x, model = torch.tensor([5.0]), Conv()
    kernel = Kernel()
    for function in (
        kernel, kernel.forward, torch.compile(kernel, backend="eager"), torch.compile(kernel.forward, backend="eager"),
        torch.no_grad()(kernel.forward), functools.partial(kernel.forward),
    ):  # fmt: skip
        assert called_with(function, model, x).item() == 11, function
    assert "takes *args: name each parameter" in refused(Function.apply, model)


def test_positional_only_parameters_keep_their_places():
    scope = {}
    exec("def function(x, scale=1.5, stride=7, /, *, padding): return x, scale, stride, padding", scope)
    assert called_with(scope["function"], Conv(), "x") == ("x", 1.5, 2, 1)


def test_the_constructors_arguments_are_found_by_name_whether_the_model_kept_them_or_not():
    """An eps behind what the model did not keep took the first argument's value, a shape matched nothing."""
    init = [3, 5, 2.0, 0.25]
    found = built_with(init, lambda x, gemm_weight, n_out, bn_eps, shape: (n_out, bn_eps, shape), Normalised)
    assert found == (5, 0.25, (1,)), "a shape stays a shape"
    assert built_with(init, lambda x, bn_eps=7, other=8: (bn_eps, other), Normalised) == (0.25, 8)
    assert built_with(init[:3], lambda x, bn_eps: bn_eps, Normalised) == 0.5, "the constructor's default"
    assert built_with(init, lambda x, factor: factor, Normalised) == 3.0, "the model's own attribute comes first"


def test_the_constructors_arguments_come_before_what_the_layers_have_under_their_names():
    """`out_features` was the first layer's, as if there were no other."""
    found = built_with([3, 5, 9], lambda x, in_features, out_features, eps: (in_features, out_features, eps), Deeper)
    assert found == (3, 5, 0.5)


def test_a_constructor_argument_that_means_less_than_its_layer_gives_way_to_it():
    """A stride of None is the window's, and whether there is a bias is no bias."""
    assert built_with([3], lambda x, kernel_size, stride, limit: (kernel_size, stride, limit), Pooled) == (3, 3, None)
    assert isinstance(built_with([3], lambda x, weight, bias: bias, Pooled), torch.Tensor)
    assert built_with([3, 2, False], lambda x, weight, bias: bias, Pooled) is None
    assert built_with([3, 2, False], lambda x, weight, bias=7: bias, Pooled) == 7
