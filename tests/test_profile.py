"""What Nsight Compute prints, as counters by launch; and what a machine without it reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro import settings
from repro.artifacts import profile
from repro.errors import PrerequisiteError


def page(*launches: dict[str, str]) -> str:
    """ncu's raw page in CSV with what the program printed before it."""
    names = ["ID", "Process ID", "Kernel Name", *profile.METRICS.values()]
    rows = [names, [""] * len(names), *([str(launch.get(n, "")) for n in names] for launch in launches)]
    return "hello\n==PROF== Connected\n" + "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows)


def test_every_launch_is_kept_with_its_counters() -> None:
    first = {"ID": "0", "Kernel Name": "pack<int, 2>", profile.METRICS["dram_read_bytes"]: "1,024"}
    second = {"ID": "1", "Kernel Name": "gemm", profile.METRICS["tensor_pct"]: "41.5", profile.METRICS["l1_pct"]: "n/a"}
    found = profile.parse(page(first, second))
    assert [launch["kernel"] for launch in found] == ["pack<int, 2>", "gemm"]
    assert found[0]["dram_read_bytes"] == 1024 and found[1]["tensor_pct"] == 41.5
    assert found[1]["l1_pct"] is None and set(found[0]) == {"kernel", *profile.METRICS}


def test_a_program_that_launched_nothing_has_no_launches() -> None:
    assert profile.parse("==WARNING== No kernels were profiled.\n") == []


def test_without_ncu_the_error_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="CUDA toolkit"):
        profile.run(settings.ROOT / "artifacts" / "36_RMSNorm", "input_kernel.py")
