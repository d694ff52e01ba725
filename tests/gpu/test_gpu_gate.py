"""The gate on a GPU: the same kernel twice is never FASTER or SLOWER, and one that is 2 to 3 % slower is SLOWER."""

from __future__ import annotations

from pathlib import Path

import pytest

import repro
from repro import config

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
PROBLEMS = ("L1_36", "L1_82", "L2_34", "L2_99", "L3_44")
# A second call on a part of the batch, as large as 2 % allows.
SLOWER = """

class _Fast(ModelNew):
    pass


class ModelNew(_Fast):
    def forward(self, x):
        super().forward(x[: max(1, len(x) // 50)])
        return super().forward(x)
"""


def shipped(problem: str) -> str:
    (file,) = config.ORACLE_DIR.glob(f"{problem}_*.py")
    return file.read_text()


def word(new: str, old: str, problem: str, results: Path) -> str | None:
    verdict = repro.evaluate(new, problem, against=old, engine="local", results=results)
    assert verdict.verdict == "correct" and verdict.against is not None, verdict.reasons
    print(problem, verdict.against)
    return verdict.against.word


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_four_pairs_of_one_kernel_have_no_false_word(problem: str, tmp_path: Path) -> None:
    found = {word(shipped(problem), shipped(problem), problem, tmp_path) for _ in range(4)}
    assert not found & {"FASTER", "SLOWER"}


@pytest.mark.timeout(1800)
def test_a_slower_kernel_is_called_slower_in_nine_of_ten_runs(tmp_path: Path) -> None:
    text = shipped("L1_36")
    found = [word(text + SLOWER, text, "L1_36", tmp_path) for _ in range(10)]
    assert found.count("SLOWER") >= 9, found
