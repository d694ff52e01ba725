"""The tools that quote pages: search_knowledge and get_page."""

from __future__ import annotations

import difflib

from repro.knowledge.answer import MAX_CHARS, MAX_PAGE_CHARS, Answer, clip, linked, put
from repro.knowledge.corpus import Library
from repro.knowledge.index import Hit
from repro.knowledge.pages import Page

QUOTED, NAMED = 4, 4
SECTION_CHARS = 1500
# Weight of a question's second text beside the first.
CONTEXT_SHARE = 0.25


def ranked(
    pages: Library, query: str, context: str = "", limit: int = QUOTED, kinds: tuple[str, ...] = ()
) -> list[Hit]:
    """Return the best pages for a query; those that fit the context as well come first."""
    hits = pages.index.search(query, len(pages.pages) if context.strip() else limit, kinds)
    if context.strip():
        scores = {hit.page.id: hit.score for hit in pages.index.search(context, len(pages.pages), kinds)}
        hits.sort(key=lambda hit: (-hit.score - CONTEXT_SHARE * scores.get(hit.page.id, 0.0), hit.page.id))
    return hits[:limit]


def quote(hit: Hit, most: int = SECTION_CHARS) -> str:
    """Return a section below its page's title."""
    heading = f": {hit.section.heading}" if hit.section.heading else ""
    return f"### {hit.page.title}{heading} [{hit.page.id}]\n{clip(linked(hit.section.text), most)}"


def named(page: Page) -> str:
    """Return a page in one line."""
    return f"- [{page.id}] {page.title}: {page.summary}"


def search_knowledge(pages: Library, query: str, context: str = "") -> Answer:
    """Return the best sections, quoted, and further pages by name."""
    hits = ranked(pages, query, context, QUOTED + NAMED)
    if not hits:
        ops = ", ".join(pages.vocabulary.ops)
        return Answer(f"No page contains a word of this question. The pages are about {ops}.")
    further = "\n".join(named(hit.page) for hit in hits[QUOTED:])
    parts = [
        f"{len(hits)} pages fit, best first. Sections are quoted; get_page returns a whole page.",
        *(quote(hit) for hit in hits[:QUOTED]),
        f"Further pages:\n{further}" if further else "",
    ]
    return put(parts, [hit.page.id for hit in hits], MAX_CHARS)


def get_page(pages: Library, page_id: str) -> Answer:
    """Return one page, or one section of it; for an unknown id the nearest ones, as an error."""
    wanted, _, heading = page_id.strip().strip("[]` ").partition("#")
    page = pages.pages.get(wanted.strip().lower().removesuffix(".md"))
    if page is None:
        return _no_page(pages, page_id)
    head = f"# {page.title} [{page.id}]\nA {page.kind} page on {', '.join(page.ops)}. {page.summary}"
    see = "See also: " + ", ".join(f"[{each}]" for each in page.see) if page.see else ""
    if heading.strip():
        text = page.section(heading)
        if not text:
            names = "; ".join(section.heading for section in page.sections if section.heading)
            return Answer(f"[{page.id}] has no section {heading.strip()[:80]!r}. It has: {names}.", (), is_error=True)
        return put([head, f"## {heading.strip()}\n{linked(text)}", see], [page.id], MAX_PAGE_CHARS)
    return put([head, linked(page.text), see], [page.id], MAX_PAGE_CHARS)


def _no_page(pages: Library, page_id: str) -> Answer:
    asked = page_id[:200]
    near = difflib.get_close_matches(asked.strip().lower(), pages.pages, n=3, cutoff=0.5)
    near += [hit.page.id for hit in pages.index.search(asked, 5)]
    names = "\n".join(named(pages.pages[each]) for each in list(dict.fromkeys(near))[:5])
    return Answer(f"No page is called {asked!r}. " + (f"The nearest:\n{names}" if names else ""), (), is_error=True)
