"""docs/reviewers.md: every claim is in it, and its commands show what it says. tests/test_docs.py checks the rest."""

import json
import re

import pytest

from repro import settings

TEXT = (settings.ROOT / "docs" / "reviewers.md").read_text()


def test_every_claim_is_counted():
    from repro import claims

    listed = sum(map(int, re.findall(r"^\| `[a-z].*? \| (\d+) \|", TEXT, re.M)))
    assert listed == len(claims.load()) == 125


@pytest.mark.slow
def test_published_bundles_say_what_is_promised(tool):
    """The commands that need nothing but what is published, as the page gives them."""
    published = settings.ARTIFACTS_DIR / "results"
    pinned, newer, study = (sorted(published.glob(f"{name}"))[-1] for name in (
        "h200-pinned/*-benchmark", "h200-newer/*-benchmark", "h200-pinned/*-run"))  # fmt: skip
    assert tool("compare", pinned, newer, "--json", "out.json").code == 0
    compared = json.loads((tool.folder / "out.json").read_text())
    words = {ratio["word"] for row in compared["rows"] for ratio in row["speedup"].values()}
    assert {"FASTER", "SLOWER", "SAME"} <= words and compared["fingerprints"][0]["differences"]
    assert tool("compare", "--claims", study, pinned, "--json", "out.json").code == 0
    counts = json.loads((tool.folder / "out.json").read_text())["counts"]
    assert counts["NOT-COMPARABLE"] + counts["BLOCKED"] == sum(counts.values()) == 125
    verified = tool("verify", *sorted(published.glob("*/*")))
    assert verified.code == 0 and "FAILED  " not in verified.out
    assert tool("artifacts", "lint", settings.ARTIFACTS_DIR).out.rstrip().split("\n")[-1].startswith("0 errors")
