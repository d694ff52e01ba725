"""One set of pages with its search index, rules, signatures and priors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from repro.knowledge import checks as code_checks
from repro.knowledge import pages, vocabulary
from repro.knowledge.finding import Finding
from repro.knowledge.index import Index
from repro.knowledge.pages import Page
from repro.knowledge.parts import Prior, Rule, Signature
from repro.knowledge.vocabulary import Vocabulary


@dataclass(frozen=True)
class Library:
    """A set of pages. checks: rules in code for verify_code_math; the placebo has none."""

    vocabulary: Vocabulary
    pages: dict[str, Page]
    index: Index
    rules: tuple[Rule, ...]
    signatures: tuple[Signature, ...]
    priors: tuple[Prior, ...]
    checks: Callable[[str], list[Finding]]

    def stems(self, text: str) -> frozenset[str]:
        """Return the stems of a text, in the form that the search compares."""
        return frozenset(self.index.stems(text).values())

    @functools.cached_property
    def rule_stems(self) -> list[tuple[Rule, frozenset[str], frozenset[str], set[str]]]:
        """Return every rule with the stems of its condition and of its remedy, and the machines of the condition."""
        archs = (self.vocabulary.facets(rule.when)["archs"] for rule in self.rules)
        return [(r, self.stems(r.when), self.stems(r.do), has) for r, has in zip(self.rules, archs, strict=True)]

    @functools.cached_property
    def signature_stems(self) -> dict[Signature, frozenset[str]]:
        """Return the stems of each signature's pattern and cause."""
        return {each: self.stems(f"{each.pattern.pattern} {each.cause}") for each in self.signatures}

    @functools.cached_property
    def prior_stems(self) -> list[tuple[Prior, frozenset[str], frozenset[str], dict[str, set[str]]]]:
        """Return every row with the stems of its cells except the last, of its first cell, and its facets."""
        told = ((row, " ".join(row.cells[:-1])) for row in self.priors)
        return [(row, self.stems(text), self.stems(row.cells[0]), self.vocabulary.facets(text)) for row, text in told]


@functools.cache
def library(kind: str) -> Library:
    """Return the library of a kind, read once for each process.

    Raises UsageError for an unknown kind or a broken page.
    """
    words = vocabulary.of(kind)
    found = pages.load(words.folder)
    return Library(
        vocabulary=words,
        pages=found,
        index=Index(found.values(), fill=kind == "placebo"),
        rules=tuple(rule for page in found.values() for rule in page.rules),
        signatures=tuple(each for page in found.values() for each in page.signatures),
        priors=tuple(prior for page in found.values() for prior in page.priors(words.columns)),
        checks=code_checks.findings if kind == "local" else code_checks.none,
    )
