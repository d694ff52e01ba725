"""Tests of a comparison as a record."""

from __future__ import annotations

import json

from conftest import ROOT

from repro.analysis import compare, records
from repro.bundle.write import Bundle
from repro.records.comparison import Comparison
from repro.system import jsonio


def test_a_comparison_is_read_again_as_it_was_written():
    results = ROOT / "artifacts" / "results"
    paths = [next((results / name).glob("*-benchmark")) for name in ("h100-pinned", "h200-newer")]
    found = compare.compare(*(records.read(Bundle.open(path)) for path in paths))
    text = jsonio.dumps(found.to_json())
    again = Comparison.written(json.loads(text))
    assert again == found and jsonio.dumps(again.to_json()) == text and again.rows
