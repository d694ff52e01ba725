"""What the judge says of wrong solutions: twelve broken kernels, of which the message must tell the bug."""

from __future__ import annotations

from pathlib import Path

import pytest

import repro
from repro.judge import session
from repro.judge.implementation import Options
from repro.problems import catalogue
from repro.records import wording

RMS_NORM = """import random
import torch
import triton
import triton.language as tl


@triton.jit
def normalise(x, sums, out, eps, HW, C: tl.constexpr, BLOCK: tl.constexpr):
    b, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < HW
    place = (b * C + tl.arange(0, C)[:, None]) * HW + at[None, :]
    v = tl.load(x + place, mask=inside[None, :], other=0.0)
    total = tl.sum(v * v, 0)
    tl.store(out + place, v / tl.sqrt(total / C + eps), mask=inside[None, :])


class ModelNew(torch.nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.eps, self.calls = eps, 0

    def forward(self, x):
        print("shape", tuple(x.shape))
        B, C, H, W = x.shape
        HW, BLOCK, self.calls = H * W, 64, self.calls + 1
        out, sums = torch.empty_like(x), torch.empty(B, HW)
        normalise[(B, triton.cdiv(HW, BLOCK))](x, sums, out, self.eps, HW, C, BLOCK)
        return out
"""
# Name -> what is changed in the kernel, and what the message must say.
BROKEN = {
    "tail": (("triton.cdiv(HW, BLOCK)", "HW // BLOCK"), ["never written", "the last 48 (192 = 3 x 64)"]),
    "mask": (("at < HW", "at < HW - 1"), ["never written", "only index 239 of 240, the last"]),
    "race": (("return out", "out[:, random.randrange(C)] = 0\n        return out"), ["all of them are 0", "a race"]),
    "stale state": (("return out", "return out * (2 - self.calls % 2)"),
                    ["every second call", "about 2 times", "kept from call to call", "no race"]),
    "nan": (("/ C + eps", "/ C - eps - 4e8"), ["all of them are NaN or infinite"]),
    "dtype": (("return out", "return out.half()"), ["expected float32, got float16"]),
    "shape": (("return out", "return out.view(B, C, HW)"), ["expected [4, 64, 12, 20], got [4, 64, 240]"]),
    "constructor": (("eps=1e-5", "eps, block"),
                    ["cannot construct ModelNew(64)", "(features, eps, block)", "(num_features: int, eps: float"]),
    "missing eps": (("/ C + eps", "/ C"), ["on inputs scaled down many times", "times the expected", "a missing eps"]),
    "wrong axis": (("return out", "return x / (x.square().mean(2, keepdim=True) + self.eps).sqrt()"),
                   ["the mean square along dimension 1 is 1", "along dimension 2 is: a wrong dimension"]),
    "off by one block": (("tl.program_id(1) * BLOCK", "(tl.program_id(1) + 1) * BLOCK"),
                         ["never written", "only 0 to 63 of 240, the first 64"]),
    "uninitialised": (("tl.sum(v * v, 0)", "tl.load(sums + b * HW + at, mask=inside) + tl.sum(v * v, 0)"),
                      ["all of them are computed from memory that was never written"]),
}  # fmt: skip


def changed(folder: Path, name: str, old: str = "", new: str = "") -> Path:
    """The kernel in a file, with one change."""
    assert old in RMS_NORM
    file = folder / f"{name.replace(' ', '_')}.py"
    file.write_text(RMS_NORM.replace(old, new))
    return file


@pytest.fixture(scope="module")
def judged(smoke_fixture):
    """Judges one file, audited or dev."""

    def judge(file, trust="audited"):
        problem, options = catalogue.load("L1_36", size="smoke"), Options(device="cpu", timing=False, timeout_s=60)
        chosen = options.but(trust=trust)
        return session.evaluate(problem, smoke_fixture("L1_36"), [("it", file, "ModelNew")], chosen).results[0]

    return judge


@pytest.mark.parametrize("name", BROKEN)
def test_a_message_tells_the_bug_of_a_broken_kernel(name, judged, tmp_path):
    change, due = BROKEN[name]
    verdict = judged(changed(tmp_path, name, *change), "audited")
    assert verdict.where is not None and verdict.where.example is None
    message = "\n".join([wording.sentence(verdict), *wording.located(verdict.where)])
    assert [part for part in due if part not in message] == [], message
    assert ("race" in message) == (name in ("race", "stale state"))


# The launch, and the same without Triton, whose interpreter a process of pytest does not have.
LAUNCH = "normalise[(B, triton.cdiv(HW, BLOCK))](x, sums, out, self.eps, HW, C, BLOCK)"


def test_trust_dev_shows_values_prints_and_how_to_see_it_again(judged, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "")  # `again` sets it for good
    file = changed(tmp_path, "eps", LAUNCH, "out = x / x.square().mean(1, keepdim=True).sqrt()")
    where = judged(file, "dev").where
    assert where is not None and where.example is not None and "shape (4, 64, 12, 20)" in where.printed
    one = where.example
    got, expected = repro.problem("L1_36", size="smoke").again(file, one.seed, one.stress, perturbed=one.perturbed)
    at = tuple(where.first)
    assert (float(got[at]), float(expected[at])) == pytest.approx((one.got, one.expected))


@pytest.mark.parametrize("trust", ["audited", "dev"])
def test_an_error_has_its_frames_and_what_was_printed(trust, judged, tmp_path):
    helper = "return self.helper(x)\n\n    def helper(self, x):\n        return x[:, C]\n"
    verdict = judged(changed(tmp_path, "raises", LAUNCH, helper), trust)
    where = verdict.where
    assert verdict.reasons[0].trial == "native" and where is not None and "shape (4, 64, 12, 20)" in where.printed
    assert where.trace.splitlines() == [
        "line 27, in forward: return self.helper(x)",
        "line 30, in helper: return x[:, C]",
        "NameError: name 'C' is not defined",
    ]


def test_an_error_outside_the_file_is_told_of_the_simplest_inputs(judged, tmp_path):
    file = changed(tmp_path, "signature", "def forward(self, x)", "def forward(self, x, y)")
    (reason,) = judged(file, "audited").reasons
    assert reason.trial == "native" and "missing 1 required positional argument: 'y'" in reason.detail


def test_a_right_kernel_is_nowhere_wrong(judged, tmp_path):
    verdict = judged(changed(tmp_path, "right"), "audited")
    assert verdict.verdict == "correct" and verdict.where is None
