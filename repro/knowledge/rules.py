"""Decides which rules apply to a text, by the share of a condition's words that the text contains."""

from __future__ import annotations

from dataclasses import dataclass

from repro.knowledge.answer import linked
from repro.knowledge.corpus import Library
from repro.knowledge.parts import Rule

# A rule applies to a text that contains this share of its condition, with words weighted by rarity.
SPEAKS = 0.7
# A plan names a rule's remedy if it contains this share of its words.
KNOWN = 0.6
# Most rules of one page among those near a text.
OF_A_PAGE = 2


@dataclass(frozen=True)
class Match:
    """condition, remedy: the share of each (0 to 1) that the text contains."""

    rule: Rule
    condition: float
    remedy: float

    @property
    def speaks(self) -> bool:
        return self.condition >= SPEAKS

    @property
    def heeded(self) -> bool:
        return self.remedy >= KNOWN


def matches(pages: Library, text: str, about: str = "") -> list[Match]:
    """Return every rule with its match to a text, the best first.

    Rules for a machine other than those that the text or `about` names are left out.
    """
    said = pages.stems(text)

    def share(stems: frozenset[str]) -> float:
        whole = sum(map(pages.index.rarity, stems))
        return sum(map(pages.index.rarity, stems & said)) / whole if whole else 0.0

    named = pages.vocabulary.facets(f"{about} {text}")["archs"]
    found = [
        Match(rule, share(when), share(do))
        for rule, when, do, archs in pages.rule_stems
        if not (archs and named) or archs & named
    ]
    return sorted(found, key=lambda match: -match.condition)


def nearest_rules(pages: Library, text: str, most: int, without: frozenset[Rule] = frozenset()) -> list[Rule]:
    """Return rules near a text: from pages that the search finds, the nearest conditions first, few of each page."""
    scores = {hit.page.id: hit.score for hit in pages.index.search(text, len(pages.pages))}
    top = max(scores.values(), default=0.0) or 1.0
    near = [match for match in matches(pages, text) if match.rule.page in scores and match.rule not in without]
    near.sort(key=lambda match: -match.condition - scores[match.rule.page] / top)
    taken: dict[str, int] = {}
    found = []
    for match in near:
        taken[match.rule.page] = taken.get(match.rule.page, 0) + 1
        if taken[match.rule.page] <= OF_A_PAGE:
            found.append(match.rule)
    return found[:most]


def rule_line(rule: Rule) -> str:
    """Return a rule in one line."""
    return f"- If {linked(rule.when)}: {linked(rule.then)}. Remedy: {linked(rule.do)} [{rule.page}]"
