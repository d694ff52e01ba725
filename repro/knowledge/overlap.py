"""Whether a page holds a piece of a problem or of a published kernel: runs of 13 words that stand in both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repro import settings

WORDS = 13
# What an agent must not find in the pages: the problems, known solutions and the published kernels.
SOURCES = (
    "problems/*.py",
    "artifacts/oracle/*.py",
    "artifacts/*/problem.py",
    "artifacts/*/input_kernel.py",
    "artifacts/*/optimized_kernel_beam_search.py",
)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Coincidence:
    """A run of words that a page and a source share; both paths are below the root."""

    page: str
    source: str
    words: str


def shingles(text: str) -> set[str]:
    """Every run of 13 words; a word is letters, digits and underscores, without regard to case."""
    words = _WORD.findall(text.lower())
    return {" ".join(words[n : n + WORDS]) for n in range(len(words) - WORDS + 1)}


def coincidences(pages: Path, root: Path = settings.ROOT) -> Iterator[Coincidence]:
    """Every run that a page in a folder shares with one of the sources below `root`."""
    known = {file: shingles(file.read_text()) for pattern in SOURCES for file in sorted(root.glob(pattern))}
    for page in sorted(pages.glob("*.md")):
        held = shingles(page.read_text())
        for file, theirs in known.items():
            for words in sorted(held & theirs):
                yield Coincidence(page.stem, str(file.relative_to(root)), words)
