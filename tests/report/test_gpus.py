"""Reports of runs on several GPUs: the A/A control of each unit."""

from __future__ import annotations

from types import SimpleNamespace

from repro.records.verdict import Ratio
from repro.report import machines


def aa(low: float, high: float) -> Ratio:
    return Ratio(ratio=(low + high) / 2, ci95=[low, high])


def test_every_gpu_has_its_control_and_a_disturbed_one_is_named():
    assert [machines.disturbed(cover, 20) for cover in (20, 18, 15, 3)] == ["undisturbed"] * 2 + ["disturbed"] * 2
    quiet, loud = aa(0.99, 1.01), aa(1.05, 1.09)

    class Told:
        letter, machine, timed = "A", "H100", True
        done = [  # noqa: RUF012
            SimpleNamespace(node="n", gpu_uuid_hash=name, judged=SimpleNamespace(timing=SimpleNamespace(aa=found)))
            for name, found in [("g1", quiet)] * 6 + [("g2", loud)] * 6
        ]

    (table,) = machines.gpus([Told()]).tables
    assert [(row[0], row[-1]) for row in table.rows] == [("g1", "undisturbed"), ("g2", "disturbed")]
