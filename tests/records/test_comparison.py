"""Claims, their verdicts and a comparison as records: read again as they were written."""

from __future__ import annotations

import json

from conftest import ROOT

from repro.analysis import claims, compare, published, records
from repro.bundle.write import Bundle
from repro.system import jsonio


def test_what_is_written_is_read_again_alike():
    """A whole number stays one."""
    results = ROOT / "artifacts" / "results"
    paths = [next((results / name).glob("*-benchmark")) for name in ("h100-pinned", "h200-newer")]
    one, other = (records.read(Bundle.open(path)) for path in paths)
    judged, compared = claims.judge(published.load(), [one]), compare.compare(one, other)
    for found in (*published.load(), judged, compared):
        text = jsonio.dumps(found.to_json())
        again = type(found).written(json.loads(text))
        assert again == found and jsonio.dumps(again.to_json()) == text
    assert compared.rows and any(True for _ in judged.pairs())
