"""Checks whether a page copies a problem or a published kernel: runs of 13 words that occur in both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repro import config

WORDS = 13
# Files that an agent must not find in the pages: the problems, known solutions and published kernels.
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
    """A run of words that a page and a source share. Both paths are relative to the root."""

    page: str
    source: str
    words: str


def shingles(text: str) -> set[str]:
    """Return every run of 13 words. A word is letters, digits and underscores; case is ignored."""
    words = _WORD.findall(text.lower())
    return {" ".join(words[n : n + WORDS]) for n in range(len(words) - WORDS + 1)}


def coincidences(pages: Path, root: Path = config.ROOT) -> Iterator[Coincidence]:
    """Yield every run that a page in a folder shares with one of the sources below `root`."""
    known = {file: shingles(file.read_text()) for pattern in SOURCES for file in sorted(root.glob(pattern))}
    for page in sorted(pages.glob("*.md")):
        held = shingles(page.read_text())
        for file, theirs in known.items():
            for words in sorted(held & theirs):
                yield Coincidence(page.stem, str(file.relative_to(root)), words)
