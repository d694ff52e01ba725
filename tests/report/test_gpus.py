"""Reports of runs on several GPUs: a part for each kind, and the A/A control of each unit."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ROOT, manifest, rows

from repro.bundle import storage, verify
from repro.bundle.write import Bundle
from repro.records.verdict import Ratio
from repro.report import document, machines, output, sources

PUBLISHED = [ROOT / "artifacts" / "results" / name for name in ("h100-pinned", "h200-pinned")]


def newest(stack: Path) -> Path:
    return max(stack.glob("*-benchmark"))


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A bundle whose first row an H100 measured, and the others an H200."""
    h100, h200 = map(newest, PUBLISHED)
    folder = tmp_path / "20261124T000000Z-benchmark"
    _, files = storage.unpack((h200 / storage.ARCHIVE).read_bytes())
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    other = Bundle.open(h100)
    mine = rows(folder)
    common = next(name for name in manifest(folder)["plan"] if name in other.rows)
    mine[common] = other.rows[common] | {"row": common}
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine.values()))
    for name, value in other.fingerprints().items():
        (folder / "fingerprints" / f"{name}.json").write_text(json.dumps(value))
    return folder


def test_tables_of_a_mixed_bundle_are_grouped_by_gpu(mixed):
    bundle = Bundle.open(mixed)
    found = sources.parts(bundle)
    assert len(found) == 2 and sorted(name for part in found for name in part.manifest["plan"]) == sorted(
        bundle.manifest["plan"]
    )
    whole = document.build([bundle])
    kinds = {source.machine for source in whole.sources}
    assert [source.letter for source in whole.sources] == ["A", "B"] and len(kinds) == 2
    assert whole.headline.planned == len(bundle.manifest["plan"])
    output.into(bundle, ["md"])
    assert "report" not in verify.verify(mixed).failed


def test_a_bundle_of_one_kind_stays_whole():
    for stack in PUBLISHED:
        bundle = Bundle.open(newest(stack))
        assert sources.parts(bundle) == [bundle]


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
    Told.done = Told.done[:6]
    assert not machines.gpus([Told()]).tables, "one GPU needs no table"
