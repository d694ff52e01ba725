"""docs/reviewers.md: every claim is in it, and its commands show what it says. test_docs.py checks the rest."""

import re

import pytest

from repro import config
from repro.analysis import claims

TEXT = (config.ROOT / "docs" / "reviewers.md").read_text()


def test_every_claim_is_counted():
    from repro.analysis import published as claims

    listed = sum(map(int, re.findall(r"^\| `[a-z].*? \| (\d+) \|", TEXT, re.M)))
    assert listed == len(claims.load()) == 125


@pytest.mark.slow
def test_published_bundles_say_what_is_promised(tool):
    """The commands that need nothing but what is published, as the page gives them."""
    published = config.ARTIFACTS_DIR / "results"
    one_h100 = published / "h100-pinned/20261124T055615Z-benchmark"
    assert tool.within("compare", "--claims", one_h100, "--json", "out.json").code == 0
    assert f"`claims: {claims.told(tool.json()['counts'])}`" in TEXT
    verified = tool.within("verify", published)
    assert verified.code == 0 and re.search(r"`(\d+ bundles: [^`]+)`", TEXT).group(1) in verified.out
    assert tool.within("verify", config.ARTIFACTS_DIR).out.rstrip().split("\n")[-1].startswith("0 errors")
