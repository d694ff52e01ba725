"""The search: BM25 of SQLite's FTS5 over pages and their sections, built in memory in well under a second."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from repro.knowledge.pages import Page, Section
from repro.knowledge.words import ends, fold, terms
from repro.system.digest import sha256

# Weight of each field in a page's score, and in a section's. Each field is a table of its own: in a single table, a
# word that most bodies contain would count nothing in titles either. The weights are the same for all pages and
# queries.
PAGE_FIELDS = {"title": 1.0, "summary": 1.5, "headings": 0.3, "body": 1.5}
SECTION_FIELDS = {"heading": 1.0, "passage": 1.0}
# Weight of the best section's score beside the page's own.
SECTION_SHARE = 0.5
# Bonus of a page if the query contains an error that matches one of its signatures.
SIGNED = 10.0
# A query is cut to this many of its rarest terms: more add no information but take time.
MAX_TERMS = 48
TOKENIZER = "porter unicode61"


@dataclass(frozen=True)
class Hit:
    """A page that matches, its best section, and the sum of both scores; higher is better."""

    page: Page
    section: Section
    score: float


class Index:
    """A search index, usable from any thread.

    fill: if fewer pages match than requested, add others, chosen by a hash of the query. The placebo's index does so,
    so that its answers are as long as those of the real pages.
    """

    def __init__(self, pages: Iterable[Page], fill: bool = False) -> None:
        self.pages = {page.id: page for page in pages}
        self.fill = fill
        self._lock = threading.Lock()
        self._ids = list(self.pages)
        self._sections = [section for page in self.pages.values() for section in page.sections]
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        for table in (*PAGE_FIELDS, *SECTION_FIELDS):
            self._db.execute(f"CREATE VIRTUAL TABLE {table} USING fts5(text, tokenize='{TOKENIZER}')")
        for n, page in enumerate(self.pages.values()):
            headings = " ".join(section.heading for section in page.sections)
            facets = " ".join((*page.ops, *page.archs, *page.dtypes, *page.languages))
            texts = f"{page.title} {page.id}", page.summary, headings, f"{page.text} {facets}"
            self._insert(n, PAGE_FIELDS, texts)
        for n, section in enumerate(self._sections):
            self._insert(n, SECTION_FIELDS, (section.heading, section.text))

    def _insert(self, n: int, fields: Iterable[str], texts: Iterable[str]) -> None:
        for table, text in zip(fields, texts, strict=True):
            self._db.execute(f"INSERT INTO {table}(rowid, text) VALUES (?, ?)", (n, fold(text)))  # noqa: S608

    def search(self, query: str, limit: int = 5, kinds: tuple[str, ...] = ()) -> list[Hit]:
        """Return the best pages for a query, best first, each once. kinds: only pages of these kinds."""
        text = ends(query)
        quoted, count = [f'"{word}"' for word in terms(text)], "SELECT count(*) FROM body WHERE body MATCH ?"
        with self._lock:
            known = sorted((n, word) for word in quoted for (n,) in self._db.execute(count, (word,)) if n)
            # words that stand in a page, in any form of their stem: the rarest, quoted for FTS5
            words = [word for _, word in known[:MAX_TERMS]]
            sections, pages = (self._scores(fields, words) for fields in (SECTION_FIELDS, PAGE_FIELDS))
        best: dict[str, tuple[float, Section]] = {}
        for n, score in sections:
            section = self._sections[n]
            best.setdefault(section.page, (score, section))
        hits = []
        for n, score in pages:
            page = self.pages[self._ids[n]]
            more, section = best.get(page.id, (0.0, page.sections[0]))
            if not kinds or page.kind in kinds:
                signed = SIGNED * any(pattern.search(text) for pattern in page.signatures)
                hits.append(Hit(page, section, score + SECTION_SHARE * more + signed))
        hits.sort(key=lambda hit: (-hit.score, hit.page.id))
        return self._filled(hits, query, limit, kinds) if self.fill else hits[:limit]

    def _scores(self, fields: dict[str, float], words: list[str]) -> list[tuple[int, float]]:
        """Return (row, sum of BM25 over the fields), best first."""
        total: dict[int, float] = {}
        for table, weight in fields.items() if words else ():
            bm25 = f"SELECT rowid, bm25({table}) FROM {table} WHERE {table} MATCH ?"  # noqa: S608
            rows = self._db.execute(bm25, (" OR ".join(words),))
            for n, negative in rows:
                total[n] = total.get(n, 0.0) - weight * negative
        return sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))

    def _filled(self, hits: list[Hit], query: str, limit: int, kinds: tuple[str, ...]) -> list[Hit]:
        def order(page: Page) -> str:
            return sha256(f"{query}\0{page.id}".encode(errors="replace"))

        there = {hit.page.id for hit in hits}
        rest = [page for page in self.pages.values() if page.id not in there and (not kinds or page.kind in kinds)]
        hits += [Hit(page, page.sections[0], 0.0) for page in sorted(rest, key=order)]
        return hits[:limit]
