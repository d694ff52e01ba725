"""The tools that assemble an answer from parts of pages: build_plan, propose_hypothesis, query_hyperparameter_priors.

Each fills a template with search results; none draws conclusions.
"""

from __future__ import annotations

from repro.knowledge import parts
from repro.knowledge.answer import Answer, clip, linked, put
from repro.knowledge.corpus import Library
from repro.knowledge.index import Hit
from repro.knowledge.pages import Page
from repro.knowledge.parts import Prior
from repro.knowledge.retrieve import named, ranked
from repro.knowledge.rules import nearest_rules, rule_line

FACTS, CHECKS, PLAN_ROWS, ROWS = 4, 6, 3, 10
IDEAS, TRIED = 4, 4
PART_CHARS = 650
# A technique counts as tried if the text of earlier experiments holds this share of its title, weighted by rarity.
TRIED_SHARE = 0.6
# Scores of an agreeing and a contradicting facet, in units of BM25.
AGREES, CONTRADICTS = 1.0, 4.0


def build_plan(pages: Library, goal: str, constraints: str = "") -> Answer:
    """Return the best playbook, and the pages that its steps rest on."""
    playbooks = ranked(pages, goal, constraints, 2, ("playbook",))
    facts = ranked(pages, goal, constraints, FACTS, ("technique", "concept"))
    if not playbooks and not facts:
        return Answer("No page contains a word of this goal. Use other words, or try search_knowledge.")
    both = f"{goal} {constraints}"
    steps, sources = "", [hit.page for hit in (*playbooks[:1], *facts)]
    if playbooks:
        page = playbooks[0].page
        lines = (f"{n}. {linked(step)}" for n, step in enumerate(page.steps, 1))
        steps = f"## Steps\nFrom the playbook [{page.id}], {page.title}:\n" + "\n".join(lines)
    rules = nearest_rules(pages, both, CHECKS)
    rows = _priors(pages, both, PLAN_ROWS)
    also = f" Another playbook: [{playbooks[1].page.id}] {playbooks[1].page.title}." if len(playbooks) > 1 else ""
    answer = [
        f"## Overview\nAssembled from {len(sources)} pages by retrieval; nothing here was checked against your case."
        + also,
        "## Key facts\n" + "\n".join(named(hit.page) for hit in facts),
        steps,
        "## Starting values\n" + table(pages, rows) if rows else "",
        "## What to check\n" + "\n".join(rule_line(rule) for rule in rules) if rules else "",
    ]
    return put(answer, [page.id for page in sources] + [rule.page for rule in rules] + [row.page for row in rows])


def propose_hypothesis(pages: Library, current_status: str, recent_experiments: str = "") -> Answer:
    """Return techniques ranked by words, then by facets. Techniques already tried come last, by name only."""
    hits = pages.index.search(current_status, len(pages.pages), ("technique",))
    asked = pages.vocabulary.facets(current_status)
    hits.sort(key=lambda hit: (-hit.score - _fit(hit.page, asked), hit.page.id))
    tried = [hit for hit in hits if _tried(pages, hit.page, recent_experiments)]
    fresh = [hit for hit in hits if hit not in tried][:IDEAS]
    if not fresh and not tried:
        return Answer(
            "No technique contains a word of this. Describe the limit in other words, or try search_knowledge."
        )
    answer = [
        f"{len(fresh)} techniques, best fit first, ranked by common words and facets; none was tried on your case.",
        *(_idea(n, hit) for n, hit in enumerate(fresh, 1)),
    ]
    if tried:
        answer.append("## Probably tried already\n" + "\n".join(named(hit.page) for hit in tried[:TRIED]))
    return put(answer, [hit.page.id for hit in (*fresh, *tried[:TRIED])])


def _idea(n: int, hit: Hit) -> str:
    page = hit.page
    told = [f"### {n}. {page.title} [{page.id}]\n{page.summary}"]
    for heading in (parts.PAYS, parts.FAR):
        if page.section(heading):
            told.append(f"**{heading}**: {clip(linked(page.section(heading)), PART_CHARS)}")
    if page.see:
        told.append("Next: " + ", ".join(f"[{each}]" for each in page.see[:4]))
    return "\n".join(told)


def _fit(page: Page, asked: dict[str, set[str]]) -> float:
    """Return the score that a page's facets add."""
    total = AGREES * len(asked["ops"] & set(page.ops))
    for facet in ("archs", "dtypes"):
        has: set[str] = set(getattr(page, facet))
        if asked[facet] and "any" not in has:
            total += AGREES if asked[facet] & has else -CONTRADICTS
    return total


def _tried(pages: Library, page: Page, experiments: str) -> bool:
    if not experiments.strip():
        return False
    said, title = pages.stems(experiments), pages.stems(page.title)
    whole = sum(map(pages.index.rarity, title))
    return whole > 0 and sum(map(pages.index.rarity, title & said)) >= TRIED_SHARE * whole


def query_hyperparameter_priors(pages: Library, query: str) -> Answer:
    """Return the best rows as one table."""
    rows = _priors(pages, query, ROWS)
    if not rows:
        tables = ranked(pages, query, "", 3, ("priors",)) or pages.index.search("priors", 3, ("priors",))
        told = "No row contains a word of this question: name the operation, the machine and the number format. Tables:"
        return put([told, "\n".join(named(hit.page) for hit in tables)], [hit.page.id for hit in tables])
    sources = list(dict.fromkeys(row.page for row in rows))
    answer = [
        f"{len(rows)} rows, best fit first. Start from them and tune; rows for other cases are guesses for yours.",
        table(pages, rows),
        "From:\n" + "\n".join(named(pages.pages[each]) for each in sources),
    ]
    return put(answer, sources)


def table(pages: Library, rows: list[Prior]) -> str:
    """Return rows of priors as a markdown table with their pages."""
    columns = (*pages.vocabulary.columns, "page")
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join(lines + [f"| {' | '.join(row.cells)} | [{row.page}] |" for row in rows])


def _priors(pages: Library, query: str, most: int) -> list[Prior]:
    """Return rows by the rarity of the words that they share with the query.

    A row for another machine or number format than the query names comes after all others.
    """
    said = pages.stems(query)
    asked = pages.vocabulary.facets(query)
    scored = []
    for n, (row, stems, first, has) in enumerate(pages.prior_stems):
        score = sum(map(pages.index.rarity, said & stems)) + len(said & first)
        for facet in ("archs", "dtypes"):
            if asked[facet] and has[facet]:
                score += AGREES if asked[facet] & has[facet] else -CONTRADICTS
        scored.append((-score, n, row))
    scored.sort(key=lambda each: each[:2])
    return [row for negative, _, row in scored if negative < 0 or pages.index.fill][:most]
