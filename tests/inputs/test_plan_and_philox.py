"""Inputs and weights: the generator's bits, how `get_inputs()` is served, published and perturbed weights.

Run as a program under TRITON_INTERPRET=1 this file compares the GPU kernels with the CPU's numpy path and prints JSON;
a process of its own, because Triton decides at import whether it interprets.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from repro.errors import ProblemError  # noqa: E402
from repro.inputs import philox, recipes  # noqa: E402
from repro.judge.correctness import input_cases  # noqa: E402
from repro.problems import catalogue  # noqa: E402
from repro.problems import plan as inputs  # noqa: E402

CPU = torch.device("cpu")
STARTS = (0, 4095, 2**33 + 7)
SEED = 0x299F31D0A4093822
# name -> arguments of philox.fill: kind, then keywords
DRAWS = {
    "uniform": ("uniform", {}),
    "normal": ("normal", {}),
    "normal, std 4": ("normal", {"std": 4.0}),
    "integer": ("integer", {"low": -5, "high": 12}),
    "integer, wide": ("integer", {"low": -(2**31), "high": 2**31 - 1}),
}


def interpreted() -> dict[str, list[float]]:
    """name -> largest difference and number of differing elements between the interpreted kernels and numpy."""
    torch.cuda.device = lambda device: contextlib.nullcontext()  # type: ignore[misc, assignment]
    found = {}
    for name, (kind, keywords) in DRAWS.items():
        for dtype in (torch.float32, torch.int64) if kind == "integer" else (torch.float32,):
            for start in STARTS:
                for seed in (SEED, 2**64 - 1):
                    arguments = {"low": 0, "high": 1, "std": 1.0} | keywords
                    ours, theirs = torch.empty(6001, dtype=dtype), torch.empty(6001, dtype=dtype)
                    philox._gpu_fill(ours, kind, seed, 3, start, **arguments)
                    philox.fill(theirs, kind, seed, 3, start=start, **arguments)
                    difference = (ours.double() - theirs.double()).abs()
                    label = f"{name}, {dtype}, start {start}, seed {seed}"
                    found[label] = [float(difference.max()), int((ours != theirs).sum())]
    return found


if __name__ == "__main__":
    print(json.dumps(interpreted()))
    sys.exit()

import pytest  # noqa: E402 - the program above needs none

# -- the generator


@pytest.mark.parametrize(
    "counter, key, expected",
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_philox_known_answers(counter, key, expected):
    """The words are Philox 4x32-10 as Salmon et al. published it (known-answer vectors of Random123)."""
    low = np.array([counter[0] | counter[1] << 32], dtype=np.uint64)
    words = philox.philox_numpy(low, key[0] | key[1] << 32, counter[2], counter[3])
    assert [int(word[0]) for word in words] == list(expected)


@pytest.mark.slow
def test_gpu_kernels_in_the_interpreter_equal_the_cpu_path():
    """The Triton kernels, launched as on a GPU, make numpy's bits: every kind, seed and start, in float32 and int64."""
    env = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert len(found) == 6 * (len(DRAWS) + 2)
    assert {label: values for label, values in found.items() if values != [0.0, 0]} == {}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("start", STARTS)
def test_a_range_made_apart_equals_the_same_range_of_the_whole(name, dtype, start, monkeypatch):
    monkeypatch.setattr(philox, "_STEP", 3000)
    kind, keywords = DRAWS[name]
    whole = philox.fill(torch.empty(10000, dtype=dtype), kind, SEED, 1, start=start, **keywords)
    for first, last in ((0, 1), (1, 1024), (1023, 4097), (4097, 9999), (9999, 10000)):
        part = torch.empty(last - first, dtype=dtype)
        philox.fill(part, kind, SEED, 1, start=start + first, **keywords)
        assert torch.equal(part, whole[first:last]), (first, last)


def test_uniform_is_in_the_half_open_unit_interval_with_its_moments():
    x = philox.fill(torch.empty(1 << 20), "uniform", 5, 0).double()
    assert 0.0 <= float(x.min()) < 1e-5 and 1 - 1e-5 < float(x.max()) < 1.0
    assert float(x.mean()) == pytest.approx(0.5, abs=0.0015)
    assert float(x.var()) == pytest.approx(1 / 12, rel=0.005)


@pytest.mark.parametrize("std", [1.0, 4.0])
def test_normal_has_the_documented_moments(std):
    """Mean 0, the asked deviation, no skew, excess kurtosis -0.15, bounded by 4.9 deviations."""
    x = philox.fill(torch.empty(1 << 20), "normal", 5, 0, std=std).double() / std
    assert float(x.mean()) == pytest.approx(0, abs=0.005)
    assert float(x.std()) == pytest.approx(1, abs=0.004)
    assert float((x**3).mean()) == pytest.approx(0, abs=0.015)
    assert float((x**4).mean() - 3) == pytest.approx(-0.15, abs=0.03)
    assert float(x.abs().max()) < 4.9


def test_integers_reach_both_ends_of_their_range_evenly():
    x = philox.fill(torch.empty(1 << 18, dtype=torch.int64), "integer", 5, 0, low=-3, high=5)
    counts = torch.bincount(x + 3, minlength=8)
    assert len(counts) == 8
    assert float((counts / x.numel() * 8 - 1).abs().max()) < 0.03


def test_seeds_tensors_and_kinds_are_independent_streams():
    draws = [philox.fill(torch.empty(1 << 16), "uniform", seed, index) for seed, index in ((1, 0), (2, 0), (1, 1))]
    draws.append(philox.fill(torch.empty(1 << 16), "normal", 1, 0))
    draws.append(philox.fill(torch.empty(1 << 16), "uniform", 1 + (1 << 32), 0))
    correlation = torch.corrcoef(torch.stack(draws).double()) - torch.eye(len(draws))
    assert float(correlation.abs().max()) < 0.02


def test_fill_refuses_what_it_cannot_make():
    with pytest.raises(ValueError, match="span"):
        philox.fill(torch.empty(4), "integer", 0, 0, low=3, high=3)
    assert philox.fill(torch.empty(0), "uniform", 0, 0).numel() == 0


# -- get_inputs()

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, *inputs):
        return inputs[0] * 2


def get_init_inputs():
    return []


def get_inputs():
{body}
"""


@pytest.fixture
def plan_of(tmp_path: Path):
    """Plans a problem whose get_inputs() has this body."""

    def make(body: str, dtype: str = "float32", head: str = "") -> inputs.Plan:
        file = tmp_path / "problem.py"
        file.write_text(head + PROBLEM.format(body="\n".join(f"    {line}" for line in body.splitlines())))
        return inputs.plan(catalogue.load_file(file, dtype=dtype))

    return make


def drawn(kind: str, seed: int = 11, index: int = 0, dtype: torch.dtype = torch.float32, **keywords: int):
    """What the generator gives for a (3, 5) tensor."""
    return philox.fill(torch.empty(3, 5, dtype=dtype), kind, seed, index, **keywords)


@pytest.mark.parametrize(
    "expression, kind",
    [
        ("torch.rand(3, 5)", "uniform"),
        ("torch.rand((3, 5))", "uniform"),
        ("torch.rand([3, 5])", "uniform"),
        ("torch.rand(torch.Size([3, 5]))", "uniform"),
        ("torch.rand(size=(3, 5))", "uniform"),
        ("torch.rand(3, 5, dtype=torch.float64)", "uniform"),
        ("torch.rand(3, 5, device='cpu', requires_grad=False)", "uniform"),
        ("torch.rand(3, 5, generator=torch.Generator())", "uniform"),
        ("torch.randn(3, 5)", "normal"),
        ("torch.randn(size=[3, 5])", "normal"),
        ("torch.randn((3, 5), dtype=torch.float64)", "normal"),
        ("torch.rand_like(torch.empty(3, 5))", "uniform"),
        ("torch.randn_like(torch.empty(3, 5, dtype=torch.int32), dtype=torch.float32)", "normal"),
        ("torch.rand_like(input=torch.empty(3, 5))", "uniform"),
    ],
)
def test_float_draws_become_recipes_of_the_problems_dtype(plan_of, expression, kind):
    plan = plan_of(f"return [{expression}]")
    (recipe,) = plan.recipes
    assert recipe is not None and (recipe.kind, recipe.shape, recipe.dtype) == (kind, (3, 5), torch.float32)
    assert plan.spec == (((3, 5), torch.float32),)
    assert torch.equal(plan.make(11, CPU)[0], drawn(kind))
    half = plan_of(f"return [{expression}]", "bfloat16").make(11, CPU)[0]
    assert torch.equal(half, drawn(kind).to(torch.bfloat16))


@pytest.mark.parametrize(
    "expression, low, high",
    [
        ("torch.randint(10, (3, 5))", 0, 10),
        ("torch.randint(2, 10, (3, 5))", 2, 10),
        ("torch.randint(2, 10, size=(3, 5))", 2, 10),
        ("torch.randint(10, size=(3, 5))", 0, 10),
        ("torch.randint(low=2, high=10, size=(3, 5))", 2, 10),
        ("torch.randint(high=10, size=(3, 5))", 0, 10),
        ("torch.randint(2, high=10, size=(3, 5))", 2, 10),
    ],
)
def test_integer_draws_keep_their_bounds_in_every_spelling(plan_of, expression, low, high):
    plan = plan_of(f"return [{expression}]")
    (recipe,) = plan.recipes
    assert recipe is not None and (recipe.kind, recipe.low, recipe.high) == ("integer", low, high)
    (value,) = plan.make(11, CPU)
    assert torch.equal(value, drawn("integer", dtype=torch.int64, low=low, high=high))
    assert torch.equal(plan.make(11, CPU, stress=4.0)[0], value), "indices have no signed form"


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "complex64"])
def test_dtypes_without_a_class_of_precision_are_refused(plan_of, dtype):
    """A complex output would be compared by its real part alone."""
    assert plan_of("return [torch.rand(3).half()]").problem.dtype == "float16"
    with pytest.raises(ProblemError, match=f"returns {dtype}"):
        plan_of(f"return [torch.randn(3, 5).to(torch.{dtype})]")


def test_every_draw_has_its_own_number_whether_it_is_returned_or_not(plan_of):
    plan = plan_of("torch.rand(2)\na = torch.rand(3, 5)\nb = torch.randn(3, 5)\nreturn [b, a]")
    assert [r.index for r in plan.recipes] == [2, 1]
    b, a = plan.make(11, CPU)
    assert torch.equal(a, drawn("uniform", index=1)) and torch.equal(b, drawn("normal", index=2))


@pytest.mark.parametrize(
    "body, expected",
    [
        ("return [torch.rand(3, 5) * 2 - 1]", lambda: drawn("uniform") * 2 - 1),
        ("return [torch.rand(5, 3).T]", lambda: drawn("uniform").view(5, 3).T),
        ("x = torch.rand(3, 5)\nx[0] = 7\nreturn [x]", lambda: drawn("uniform").index_fill(0, torch.tensor(0), 7.0)),
        ("x = torch.rand(3, 5)\nx.mul_(2)\nreturn [x]", lambda: drawn("uniform") * 2),
        ("x = torch.rand(3, 5)\nx[0].zero_()\nreturn [x]", lambda: drawn("uniform").index_fill(0, torch.tensor(0), 0)),
        ("return [torch.rand(3, 5).double()]", lambda: drawn("uniform")),
        ("return [torch.ones(3, 5)]", lambda: torch.ones(3, 5)),
    ],
    ids=["arithmetic", "transposed", "item set", "in place", "view in place", "cast", "constant"],
)
def test_inputs_that_are_no_plain_draws_are_remade_by_the_problem(plan_of, body, expected):
    plan = plan_of(body)
    assert plan.recipes == (None,) and plan.batch is None
    (value,) = plan.make(11, CPU)
    assert value.is_contiguous() and value.dtype is torch.float32
    assert torch.equal(value, expected())
    assert torch.equal(plan.make(11, CPU)[0], value)
    half = plan_of(body, "bfloat16").make(11, CPU)[0]
    assert torch.equal(half, expected().to(torch.bfloat16))


def test_masks_and_python_values_pass_through(plan_of):
    plan = plan_of("return [torch.randn(3, 5), torch.rand(3, 5) > 0.5, 0.25, 3, True, None, 'mean', (2, 3)]")
    assert plan.tensors == [0, 1] and plan.spec[1] == ((3, 5), torch.bool)
    x, mask, *rest = plan.make(11, CPU)
    assert torch.equal(x, drawn("normal")) and torch.equal(mask, drawn("uniform", index=1) > 0.5)
    assert rest == [0.25, 3, True, None, "mean", (2, 3)]
    stressed, same, *_ = plan.make(11, CPU, stress=2.0)
    assert torch.equal(stressed, philox.fill(torch.empty(3, 5), "normal", 11, 0, std=2.0)) and torch.equal(same, mask)


@pytest.mark.parametrize("whole", ["ones", "zeros"])
def test_a_mask_of_one_value_turns_in_places_where_inputs_are_stressed(plan_of, whole):
    """An edit changes the others alone."""
    plan = plan_of(f"return [torch.randn(3, 5), torch.{whole}(64, 64, dtype=torch.bool)]")
    published = plan.make(11, CPU)[1]
    assert bool((published == (whole == "ones")).all())
    for stress in (None, "spike", "times 100", "negative"):
        assert torch.equal(plan.make(11, CPU, stress=stress)[1], published)
    signed = plan.make(11, CPU, stress=1.0)[1]
    assert signed.dtype is torch.bool and 0.2 < float((signed != published).float().mean()) < 0.3
    assert torch.equal(plan.make(11, CPU, stress="edit 16 0")[1], signed)
    assert torch.equal(plan.make(11, CPU, stress="edit 16 1")[1], signed)
    assert not torch.equal(plan.make(12, CPU, stress="heavy 24")[1], signed)


def test_what_a_call_draws_goes_with_its_result_not_when_python_looks_for_circles(plan_of):
    """Eight draws of 12 GB stayed on a GPU of 141 GB, which a masked sum then ran out of."""
    plan = plan_of("return [torch.rand(3, 5), torch.randint(0, 2, (100_003,)).bool()]")
    gc.collect()
    gc.disable()
    try:
        plan.make(11, CPU)
        left = [x.dtype for x in gc.get_objects() if isinstance(x, torch.Tensor) and x.shape == (100_003,)]
    finally:
        gc.enable()
    assert left == []


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_permutations_are_served_and_the_same_for_the_same_seed(plan_of, dtype):
    plan = plan_of(f"return [torch.rand(3, 5), torch.randperm(100000, dtype=torch.{dtype})]")
    assert plan.recipes[1] is None and plan.foreign == () and plan.spec[1] == ((100000,), getattr(torch, dtype))
    first, again, other = (plan.make(seed, CPU)[1] for seed in (11, 11, 12))
    assert first.dtype is getattr(torch, dtype)
    assert torch.equal(first.sort().values, torch.arange(100000, dtype=first.dtype))
    assert torch.equal(first, again) and not torch.equal(first, other)
    keys = philox.fill(torch.empty(100000), "uniform", 11, 1)[first.long()]
    tied = keys[1:] == keys[:-1]
    assert bool(tied.any()) and bool((first.diff()[tied] > 0).all()), "equal keys keep their order on every device"


@pytest.mark.parametrize(
    "expression, name",
    [
        ("torch.bernoulli(torch.full((3, 5), 0.5))", "bernoulli"),
        ("torch.multinomial(torch.ones(3, 9), 5).float()", "multinomial"),
        ("torch.poisson(torch.ones(3, 5))", "poisson"),
        ("torch.nn.functional.dropout(torch.ones(3, 5))", "dropout"),
        ("torch.empty(3, 5).exponential_()", "exponential_"),
        ("torch.empty(3, 5).uniform_(-1, 1)", "uniform_"),
        ("torch.empty(3, 5).normal_()", "normal_"),
        ("torch.empty(3, 5).random_(0, 9)", "random_"),
        ("torch.empty(3, 5).bernoulli_(0.5)", "bernoulli_"),
        ("torch.normal(0.0, 1.0, (3, 5))", "normal"),
    ],
)
def test_random_functions_that_torch_serves_itself_are_noted_and_follow_the_seed(plan_of, expression, name):
    plan = plan_of(f"return [{expression}]")
    assert name in plan.foreign and plan.recipes == (None,)
    first, again, other = (plan.make(seed, CPU)[0] for seed in (11, 11, 12))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize(
    ("outside", "expression"),
    [
        ("", "torch.from_numpy(np.random.randn(3, 5).astype(np.float32))"),
        ("", "torch.from_numpy(np.random.default_rng().normal(size=(3, 5)))"),
        ("", "torch.as_tensor(np.random.RandomState().rand(3, 5))"),
        ("", "torch.tensor([[random.random() for _ in range(5)] for _ in range(3)])"),
        ("drawn = np.random.rand(3, 5)", "torch.tensor(drawn)"),
        ("drawn = torch.randn(3, 5)", "drawn * 2"),
        ("rng = np.random.default_rng()", "torch.tensor(rng.random((3, 5)))"),
        ("generator = torch.Generator()", "torch.rand(3, 5)[:, torch.randperm(5).tolist()]"),
    ],
)
def test_whatever_a_file_draws_by_follows_the_seed(plan_of, outside, expression):
    head = f"import random, torch\nimport numpy as np\n{outside}\n"
    plan = plan_of(f"return [{expression}, random.random()]", head=head)
    (first, one), (again, same), (other, _) = (plan.make(seed, CPU) for seed in (11, 11, 12))
    assert torch.equal(first, again) and not torch.equal(first, other) and first.dtype is torch.float32
    assert one == same == plan.spec[1], "a worker is given the number of the plan"


def test_sizes_that_are_drawn_are_named(plan_of):
    plan = plan_of("n = torch.randint(3, 999, (1,)).item()\nreturn [torch.rand(n, 5) + 1]")
    with pytest.raises(ProblemError, match="draws its sizes: .*Let its sizes be constants"):
        plan.make(11, CPU)


def of_stress(stress: str, index: int = 0) -> torch.Tensor:
    recipe = recipes.Recipe("normal", index, (64, 300), torch.float32).stressed(stress)
    whole = recipe.fill(torch.empty(64, 300), SEED)
    assert torch.equal(recipe.fill(torch.empty(2000), SEED, 7001), whole.view(-1)[7001:9001])
    return whole


def test_stress_shows_remainders_and_rows_below_zero():
    """A part that is left out at the end of a dimension, and a maximum or padding that starts at zero."""
    last = (of_stress("heavy 24").abs().argmax(1) == 299).double().mean()
    assert 0.2 < last < 0.8
    assert bool((of_stress("signed 100")[16:32] <= 0).all()), "the second of four regions"
    assert of_stress("signed 100")[0, 0] == 0.0, "the sign of zero"
    assert bool((of_stress("shift 100") > 0).all())
    assert of_stress("bands 1000").std(0).max() < 2 < 400 < of_stress("bands 1000").std(1).min()
    assert of_stress("bands 1000").mean(1).abs().min() > 150, "a mean over slices does not cancel"
    assert bool((of_stress("shift -36000").add(35000).abs() < 25000).all())
    for index, sign in ((0, 1), (1, -1)):
        first, second = of_stress("shift -100", index).split(32)
        assert bool((first * sign > 0).all() and (second * sign < 0).all())


@pytest.mark.parametrize("shape", [(1000,), (64, 300), (4, 5, 60)])
@pytest.mark.parametrize(
    ("kind", "stress", "sign"),
    [("uniform", "heavy 24", 1), ("normal", "signed 100", -1), ("integer", 1.0, 1), ("integer", "spike", -1)],
)
def test_the_last_element_is_an_extreme_in_every_draw(kind, stress, sign, shape):
    """So a maximum or minimum that leaves out the end of any dimension is wrong."""
    dtype = torch.int32 if kind == "integer" else torch.float32
    recipe = recipes.Recipe(kind, 0, shape, dtype, -500, 500).stressed(stress)
    for seed in range(40):
        whole = recipe.fill(torch.empty(shape, dtype=dtype), seed).view(-1)
        assert torch.equal(recipe.fill(torch.empty(100, dtype=dtype), seed, recipe.numel - 100), whole[-100:])
        assert bool((sign * whole[:-1] < sign * whole[-1]).all())
        if kind == "integer":
            assert bool((sign * whole[:-1] <= 0).all()), "one half of the range, also for a maximum that begins at zero"
            assert len(whole[recipe.numel // 2 : -1].unique()) == 1 or sign > 0, "of spiked ones half are equal"


def test_stress_turns_signs_or_replaces_the_distribution(plan_of):
    plan = plan_of("return [torch.rand(3, 5), torch.rand(3, 5) * 1]")
    draw, remade = plan.make(11, CPU)
    signed, signed_remade = plan.make(11, CPU, stress="negative")
    assert torch.equal(signed, -draw) and torch.equal(signed_remade, -remade)
    wide, wide_remade = plan.make(11, CPU, stress=4.0)
    assert torch.equal(wide, philox.fill(torch.empty(3, 5), "normal", 11, 0, std=4.0))
    torch.testing.assert_close(wide_remade, (remade - 0.5) * 12**0.5 * 4.0)


def test_rows_made_apart_are_the_rows_of_the_whole():
    """The reference is computed in chunks of rows; each must see what a solution sees."""
    for key, stress in (("L1_97", None), ("L1_97", 2.0), ("L1_97", "spike"), ("L1_43", "negative")):
        plan = inputs.plan(catalogue.load(key, size="smoke"))
        whole = plan.make(11, CPU, stress=stress)
        for rows in (slice(0, 1), slice(1, plan.batch)):
            for part, value in zip(plan.chunk(rows, 11, CPU, stress), whole, strict=True):
                expected = value.flatten(0, plan.problem.batch_dims - 1)[rows]
                assert torch.equal(part.reshape(expected.shape), expected)


RUN = recipes.SMALL_SPIKE_RUN


def spiked(kind: str, count: int, dtype: torch.dtype = torch.float32, index: int = 0) -> recipes.Recipe:
    return recipes.Recipe(kind, index, (count,), dtype, std=2.0).stressed("spike")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind, deviation", [("uniform", 12**-0.5), ("normal", 2.0)])
def test_spikes_are_one_element_in_each_run_by_turns_up_and_down(kind, deviation, dtype):
    """16 deviations of the draw, at one place of every run (509 elements in a tensor of under a million); every other
    element is the published draw's."""
    count = 6 * RUN
    value = spiked(kind, count, dtype).fill(torch.empty(count, dtype=dtype), SEED)
    plain = philox.fill(torch.empty(count, dtype=dtype), kind, SEED, 0, std=2.0)
    places = (value != plain).nonzero().flatten().tolist()
    assert [place // RUN for place in places] == list(range(6))
    assert len({place % RUN for place in places}) == 1
    height = torch.tensor([16 * deviation, -16 * deviation] * 3, dtype=torch.float64).to(dtype)
    assert torch.equal(value[places], height)
    assert float(plain.float().abs().max()) < 16 * deviation


def test_the_place_of_spikes_follows_from_seed_and_tensor_and_lies_within_short_tensors():
    def place(seed: int, index: int, count: int) -> int:
        value = spiked("uniform", count, index=index).fill(torch.empty(count), seed)
        (found,) = (value.abs() > 1).nonzero().flatten().tolist()
        return int(found)

    assert len({place(seed, index, RUN) for seed in (1, 2, 3) for index in (0, 1, 2)}) == 9
    assert all(0 <= place(SEED, 0, count) < count for count in (1, 2, 7, 100, RUN - 1))
    assert spiked("uniform", 0).fill(torch.empty(0), 1).numel() == 0


@pytest.mark.parametrize("recipe", [
    spiked("uniform", 40000), spiked("normal", 40000),
    recipes.Recipe("uniform", 1, (40000,), torch.float32).stressed(3.0, run=128),
    recipes.Recipe("uniform", 1, (40000,), torch.float32).stressed("edit 16"),
])  # fmt: skip
def test_ranges_made_apart_equal_those_of_the_whole(recipe):
    """Whatever the chunk: none, one or several spikes in it, beginning on one, before it, behind it."""
    whole = recipe.fill(torch.empty(40000), SEED)
    if recipe.run > 1:
        assert torch.equal(
            whole[:1280], philox.fill(torch.empty(10), "normal", SEED, 1, std=3.0).repeat_interleave(128)
        )
    place = int(whole.abs().argmax()) % RUN
    edges = [0, place, place + 1, place + RUN - 1, place + RUN, place + RUN + 1, place + 3 * RUN, 39999]
    for first, count in itertools.product(edges, (0, 1, RUN, 129)):
        part = whole[first : first + count]
        assert torch.equal(recipe.fill(torch.empty_like(part), SEED, first), part), (first, count)


@pytest.mark.gpu
def test_spikes_on_the_gpu_are_those_of_the_cpu():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        recipe = spiked("normal", 100000, dtype)
        ours = recipe.fill(torch.empty(50000, dtype=dtype, device="cuda"), SEED, 8000)
        assert torch.equal(ours.cpu(), recipe.fill(torch.empty(50000, dtype=dtype), SEED, 8000))


def test_spikes_in_inputs_that_the_problem_remakes_are_in_their_own_deviations(plan_of):
    """Constants have none to be far outside of; the last half of few integers are the least one."""
    body = "return [torch.rand(300, 60) * 5 + 1, torch.ones(9), torch.randint(9, (9,)), torch.rand(60, 300).T]"
    plan = plan_of(body)
    plain, spikes = plan.make(11, CPU), plan.make(11, CPU, stress="spike")
    for i in (0, 3):
        changed = spikes[i] != plain[i]
        runs = plain[i].numel() / recipes.spike_run(plain[i].numel())
        assert runs - 1 <= int(changed.sum()) <= runs + 1 and spikes[i].is_contiguous()
        assert spikes[i][changed].abs().tolist() == pytest.approx(
            [16 * float(plain[i].std())] * int(changed.sum()), rel=1e-3
        )
        assert len(spikes[i][changed].sign().unique()) == 2
    assert torch.equal(spikes[1], plain[1]) and torch.equal(spikes[2][:4], plain[2][:4]) and not spikes[2][4:].any()
    assert torch.equal(plan.make(11, CPU, stress="spike")[0], spikes[0]), "as often as it is asked for"


# -- weights


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("problem_id", catalogue.ids())
def test_published_weights_are_the_models_own_under_seed_42(problem_id, dtype):
    """As `torch.manual_seed(42); Model(*init)` gives them; the caller's random state is untouched."""
    problem = catalogue.load(problem_id, size="smoke", dtype=dtype)
    module = problem.module()
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    found = inputs.weights(problem, module)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(42)
    expected = module.Model(*module.get_init_inputs()).to(getattr(torch, dtype)).state_dict()
    assert list(found.state) == list(expected)
    assert all(torch.equal(found.state[name], value) for name, value in expected.items())
    assert found.sha256 == inputs.weights(problem, module).sha256


def test_the_hash_of_weights_sees_names_types_shapes_and_bits():
    base = {"a": torch.zeros(2, 3), "n": torch.tensor(0)}
    variants = [
        base,
        {"b": torch.zeros(2, 3), "n": torch.tensor(0)},
        {"a": torch.zeros(3, 2), "n": torch.tensor(0)},
        {"a": torch.zeros(2, 3, dtype=torch.int32), "n": torch.tensor(0)},
        {"a": -torch.zeros(2, 3), "n": torch.tensor(0)},
    ]
    assert len({inputs.Weights([], state).sha256 for state in variants}) == len(variants)


@pytest.mark.parametrize(
    "problem_id", ["L1_77", "L1_82", "L2_34", "L2_37", "L2_84", "L2_99", "L3_20", "L3_43", "L3_44"]
)
def test_perturbed_weights_move_every_affine_parameter_and_running_statistic(problem_id):
    """So that an output which takes weight 1, bias 0, mean 0 or variance 1 for granted, or remembers the published
    weights, is wrong; deterministic."""
    problem = catalogue.load(problem_id, size="smoke")
    plan = inputs.plan(problem)
    native = inputs.weights(problem, plan.module)
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    moved = input_cases.perturbed_weights(plan, native, CPU)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert list(moved.state) == list(native.state)
    native.perturbed = None
    assert moved.sha256 == input_cases.perturbed_weights(plan, native, CPU).sha256
    parameters = {name for name, _ in plan.module.Model(*moved.init).named_parameters()}
    for name, value in moved.state.items():
        was = native.state[name]
        assert value.shape == was.shape and value.dtype == was.dtype and bool(value.isfinite().all())
        constant = was.is_floating_point() and bool((was == was.flatten()[0]).all())
        if constant:
            assert not bool((value == was).any()), f"{name} still holds its default somewhere"
        if name in parameters:
            assert float((value == was).float().mean()) < 0.1, f"{name} is the published one"
    if problem_id == "L2_34":
        assert (native.init[7], moved.init[7]) == (1.0, 1.37)
    if problem_id in ("L3_43", "L3_44"):
        masks = [name for name in moved.state if moved.state[name].dim() == 4]
        assert len(masks) == 1 and torch.equal(moved.state[masks[0]], native.state[masks[0]]), "a mask is no parameter"


def test_weights_that_a_reversal_keeps_and_frozen_statistics_vary_too(tmp_path):
    """Gates that keep a state are raised; a mask stays; none is tiny."""
    body = (
        "self.eye = nn.Parameter(torch.eye(8)); self.rows = nn.Parameter(torch.arange(8.0).repeat(4, 1)); "
        "self.register_buffer('var', torch.ones(8)); self.register_buffer('mask', torch.eye(8)); "
        "self.net = nn.GRU(8, 4); self.scale = nn.Parameter(torch.full((8,), -1e-6))"
    )
    plan = inputs.plan(problem_with(tmp_path, body))
    native = inputs.weights(plan.problem, plan.module)
    moved = input_cases.perturbed_weights(plan, native, CPU).state
    assert all(bool((moved[name] != native.state[name]).all()) for name in ("eye", "rows", "var"))
    assert torch.equal(moved["mask"], native.state["mask"])
    assert bool((moved["scale"].abs() >= 0.2).all()), "one of 1e-6 hides what it multiplies"
    assert float((moved["net.bias_hh_l0"] - native.state["net.bias_hh_l0"])[4:8].mean()) > 0.2


KINDS = {
    "L1_36": ["native", "stress", "spiked"],
    "L2_37": ["native", "stress", "spiked", "perturbed", "perturbed_stress"],
    "L3_20": ["perturbed", "perturbed_stress", "perturbed_spiked"],
}


@pytest.mark.parametrize("key", KINDS)
def test_trials_follow_from_what_a_problem_has(key):
    """No perturbed ones without parameters, no native ones without a signal; what is left out says why."""
    plan = inputs.plan(catalogue.load(key, size="smoke"))
    left_out = input_cases.kinds(plan)
    assert [kind for kind, why in left_out.items() if not why] == KINDS[key] and len(left_out) == 6
    planned = input_cases.make(plan)
    deciding = [t for t in planned if t.judged]
    assert list(dict.fromkeys(t.kind for t in deciding)) == KINDS[key]
    assert [t.kind for t in deciding].count("native") == (2 if "native" in KINDS[key] else 0)
    assert len({t.seed for t in planned}) == len(planned), "every trial has a secret seed of its own"
    for trial in deciding:
        assert trial.perturbed == trial.kind.startswith("perturbed")
        assert trial.stress == {"stress": plan.problem.stress, "spiked": "spike"}.get(trial.kind.rpartition("_")[2])
    public = input_cases.make(plan, public=True, draws=1)
    assert public == input_cases.make(plan, public=True, draws=1)
    assert len({t.seed for t in public}) == len(public) and all(t.judged for t in public)


def test_a_warm_up_is_first_and_does_not_decide():
    """It makes the weights change under a solution where no deciding trial has the published ones."""
    for key, warm in (("L1_36", False), ("L2_37", False), ("L3_20", True)):
        first, *_ = input_cases.make(inputs.plan(catalogue.load(key, size="smoke")))
        assert (first.kind == "warmup") is warm
        if warm:
            assert not first.perturbed and not first.judged and first.stress is None


def test_a_model_that_makes_integers_of_floats_is_given_no_nan():
    """As an index such an integer may be out of range, and on a GPU that ends the process."""
    for path, nan in (
        (Path(__file__).parents[1] / "frames" / "problems" / "counts.py", []),
        (catalogue.load("L1_36").path, ["nonfinite"]),
    ):
        plan = inputs.plan(catalogue.load_file(path))
        assert [trial.kind for trial in input_cases._probes(plan, cast(Any, SimpleNamespace(trials={})), False)] == nan


CONSTRUCTORS = {
    "plain": ("self.net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.LSTM(8, 4))", True),
    "attention": ("self.net = nn.MultiheadAttention(8, 2)", True),
    "truncated": ("self.net = nn.Linear(8, 8); nn.init.trunc_normal_(self.net.weight)", True),
    "drawn bias": ("self.net = nn.Linear(8, 8); self.bias = nn.Parameter(torch.randn(8))", False),
    "derived tensor": ("self.net = nn.Linear(8, 8); self.norm = self.net.weight.detach().norm()", False),
    "derived number": ("self.net = nn.Linear(8, 8); self.top = float(self.net.weight.max())", False),
    "copy": ("self.net = nn.Linear(8, 8); self.kept = [self.net.weight.detach().clone()]", False),
    "hidden parameter": ("self.kept = [nn.Linear(8, 8)]", False),
    "plain draw": ("self.net = nn.Linear(8, 8); self.state = torch.randn(8)", False),
    "orthogonal": ("self.net = nn.Linear(8, 8); nn.init.orthogonal_(self.net.weight)", False),
    "seeded again": ("self.net = nn.Linear(8, 8); self.state = torch.randn(8); torch.manual_seed(42)", False),
    "own generator": ("g = torch.Generator(); self.net = nn.Linear(8, 8); "
                      "nn.init.normal_(self.net.weight, generator=g); "
                      "self.state = torch.randn(8, generator=g)", False),
}  # fmt: skip


def problem_with(folder: Path, body: str) -> catalogue.Problem:
    """A problem whose constructor has a body."""
    file = folder / "model.py"
    file.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        {body}\n\n    def forward(self, x):\n        return x\n\n\n"
        "def get_inputs():\n    return [torch.rand(4, 8)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return catalogue.load_file(file)


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_initial_draws_are_left_out_only_where_nothing_else_depends_on_them(name, tmp_path):
    """A loaded state dict then makes both models equal, and torch's generator is where it was."""
    body, expected = CONSTRUCTORS[name]
    problem = problem_with(tmp_path, body)
    module = problem.module()
    before = torch.random.get_rng_state()
    assert (inputs._undrawn(module.Model, []) is not None) is expected
    torch.random.set_rng_state(before)
    drawn, bare = (inputs.build(problem, module, [], drawn=each) for each in (True, False))
    assert torch.equal(torch.random.get_rng_state(), before)
    bare.load_state_dict(drawn.state_dict())
    for kept, again in zip(_held(drawn), _held(bare), strict=True):
        assert torch.equal(torch.as_tensor(kept), torch.as_tensor(again))


def _held(model: torch.nn.Module) -> list[Any]:
    """Numbers and tensors of a model, also those that are no part of its state dict."""
    plain = [value for key, value in sorted(vars(model).items()) if key in ("norm", "top", "state", "kept")]
    flat = [x for value in plain for x in (value if isinstance(value, list) else [value])]
    flat = [x for value in flat for x in (value.parameters() if isinstance(value, torch.nn.Module) else [value])]
    return [*model.state_dict().values(), *flat]


def test_a_job_draws_its_weights_once_and_another_problem_draws_its_own(tmp_path):
    """A calibration and the judging after it share them; a file with other text has others."""
    problem = catalogue.load("L2_37", size="smoke")
    plan = inputs.plan(problem)
    first = inputs.weights(problem, plan.module)
    assert inputs.weights(problem, problem.module()) is first
    assert inputs.weights(dataclasses.replace(problem, dtype="bfloat16"), plan.module) is not first
    file = tmp_path / "model.py"
    file.write_bytes(problem.path.read_bytes())
    copied = catalogue.load_file(file)
    known = inputs.weights(copied, copied.module())
    file.write_bytes(file.read_bytes() + b"\nWEIGHTS = 1\n")
    assert inputs.weights(copied, copied.module()) is not known


def test_a_plain_number_beside_a_tensor_does_not_make_the_tensor_again_for_every_chunk(tmp_path):
    """It took 65,536 whole inputs of 4 GB to judge L1_05 by rows."""
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\n\nMADE = []\n\n\nclass Model(torch.nn.Module):\n"
        "    def forward(self, a, s):\n        return a * s\n\n\n"
        "def get_inputs():\n    MADE.append(1)\n    return [torch.rand(64, 8), 3.14]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    plan = inputs.plan(catalogue.load_file(file))
    plan.module.MADE.clear()
    whole = plan.make(3, CPU)
    part = dataclasses.replace(plan, problem=dataclasses.replace(plan.problem, batch_inputs=(0,))).chunk(
        slice(8, 24), 3, CPU, None
    )
    assert whole[1] == part[1] == 3.14 and torch.equal(whole[0][8:24], part[0])
    assert not plan.module.MADE
