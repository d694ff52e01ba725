"""docs/reviewers.md names nothing that is not there: verbs, options, make targets, variables and paths."""

import re
import shlex

import pytest

from repro import settings
from repro.cli import parser

TEXT = (settings.ROOT / "docs" / "reviewers.md").read_text()
CODE = re.findall(r"`([^`\n]+)`", TEXT) + [
    line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S) for line in block.split("\n")
]
STANDS_FOR = {"NUMBER": "36", "COPY": ".", "DIR": "."}


def commands(start):
    return [code.split("  #")[0].strip() for code in CODE if code.strip().startswith(start)]


@pytest.mark.parametrize("command", sorted(set(commands("$repro "))))
def test_a_verb_is_one_and_takes_these_options(command):
    words = [STANDS_FOR.get(word, word) for word in shlex.split(command)[1:] if word != "..."]
    parser().parse_args(words)


@pytest.mark.parametrize("command", sorted(set(commands("make "))))
def test_a_make_target_is_one_with_these_variables(command):
    makefile = (settings.ROOT / "Makefile").read_text()
    for word in shlex.split(command)[1:]:
        name, is_variable, _ = word.partition("=")
        assert re.search(rf"^{name} \?=" if is_variable else rf"^{name}:", makefile, re.M), word


def test_paths_are_there():
    for path in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert (settings.ROOT / "docs" / path).exists(), path
    for pattern in re.findall(r"(?:artifacts|tests)/[\w./*-]+", TEXT):
        assert list(settings.ROOT.glob(pattern)), pattern


def test_every_claim_is_counted():
    from repro import claims

    listed = sum(map(int, re.findall(r"^\| `[a-z].*? \| (\d+) \|", TEXT, re.M)))
    assert listed == len(claims.load()) == 125


def test_published_bundles_say_what_is_promised(tool):
    """The commands that need nothing but what is published, as the page gives them."""
    published = settings.ARTIFACTS_DIR / "results"
    pinned, newer, study = (sorted(published.glob(f"{name}"))[-1] for name in (
        "h200-pinned/*-benchmark", "h200-newer/*-benchmark", "h200-pinned/*-run"))  # fmt: skip
    compared = tool("compare", pinned, newer).out
    assert "## Fingerprints" in compared and re.search(r"\| (FASTER|SLOWER|SAME|AMBIGUOUS) *\|", compared)
    claims = tool("compare", "--claims", study, pinned)
    assert claims.code == 0
    counts = re.findall(r"(\d+) ([A-Z-]+)", claims.out.split("\n")[0])
    assert sum(int(n) for n, word in counts if word in ("NOT-COMPARABLE", "BLOCKED")) == 125
    verified = tool("verify", *sorted(published.glob("*/*")))
    failed = [line for line in verified.out.splitlines() if line.startswith("  FAILED")]
    assert verified.code == 2 and len(failed) == 5, failed
    assert all(re.match(r"  FAILED  planned against done: [12] of (20|10|5) planned rows", line) for line in failed)
    assert tool("artifacts", "lint", settings.ARTIFACTS_DIR).out.rstrip().split("\n")[-1].startswith("0 errors")
