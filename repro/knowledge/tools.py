"""The eight tools: their list, the checks of arguments, and the answers, all of which come from one search.

Seven of them search, each the pages of its kinds; `get_page` returns a page. Nothing is generated or concluded.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.knowledge import pages, vocabulary
from repro.knowledge.index import Hit, Index
from repro.knowledge.pages import LINK, Page
from repro.system.jsonio import Json

FILE = Path(__file__).with_name("tools.toml")
MAX_ARGUMENT_CHARS = 1_000_000
#: Sections that an answer quotes, and further pages that it names.
QUOTED, NAMED = 4, 4
SECTION_CHARS, MAX_CHARS, MAX_PAGE_CHARS = 1500, 9000, 16_000
#: Weight of a question's context beside the question.
CONTEXT_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class ToolSpec:
    """A tool as it is listed. input_schema: a JSON schema of strings. kinds: of pages, empty for all."""

    name: str
    description: str
    input_schema: Json
    kinds: tuple[str, ...]

    @property
    def required(self) -> list[str]:
        return list(self.input_schema["required"])


@dataclass(frozen=True)
class Answer:
    """text: markdown with [page-id] citations. hits: the pages that it quotes or names, best first, each once.

    is_error: the call itself was wrong, or the page does not exist.
    """

    text: str
    hits: tuple[str, ...] = ()
    is_error: bool = False


@dataclass(frozen=True)
class Library:
    """One set of pages with its search index."""

    ops: tuple[str, ...]
    pages: dict[str, Page]
    index: Index


def _spec(entry: Json) -> ToolSpec:
    arguments = entry["required"] | entry.get("optional", {})
    properties = {name: {"type": "string", "description": words} for name, words in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(entry["required"])}
    return ToolSpec(entry["name"], entry["description"].strip(), schema, tuple(entry.get("kinds", ())))


TOOLS = [_spec(entry) for entry in tomllib.loads(FILE.read_text())["tool"]]
BY_NAME = {tool.name: tool for tool in TOOLS}


@functools.cache
def library(kind: str) -> Library:
    """Return the pages of `local` or `placebo`, read once for each process. Raises UsageError."""
    words = vocabulary.of(kind)
    found = pages.load(words.folder)
    return Library(words.ops, found, Index(found.values(), fill=kind == "placebo"))


def refusal(name: str, arguments: Any) -> str:
    """Return why a call cannot be answered, or the empty string."""
    if name not in BY_NAME:
        return f"Unknown tool {name[:80]!r}. The tools are {', '.join(BY_NAME)}."
    if not isinstance(arguments, dict):
        return f"The arguments of {name} must be an object."
    tool = BY_NAME[name]
    known = tool.input_schema["properties"]
    reasons = {
        "Missing": [argument for argument in tool.required if argument not in arguments],
        "Unknown": sorted(str(argument)[:40] for argument in arguments if argument not in known)[:10],
        "Not a string": [argument for argument in known if not isinstance(arguments.get(argument, ""), str)],
        f"Longer than {MAX_ARGUMENT_CHARS} characters": [
            argument for argument in known if len(str(arguments.get(argument, ""))) > MAX_ARGUMENT_CHARS
        ],
    }
    faults = [f"{reason}: {', '.join(names)}." for reason, names in reasons.items() if names]
    return f"{name} takes {', '.join(known)}. {' '.join(faults)}" if faults else ""


def call(name: str, arguments: Json, kind: str = "local") -> Answer:
    """Answer a call from the pages of `kind` (`local` or `placebo`).

    A wrong call gets an answer with `is_error`; nothing that an agent sends raises. Raises UsageError for another kind.
    """
    chosen = library(kind)
    if reason := refusal(name, arguments):
        return Answer(reason, is_error=True)
    if name == "get_page":
        return _page(chosen, arguments["page_id"])
    tool = BY_NAME[name]
    question = "\n".join(arguments[argument] for argument in tool.required)
    context = "\n".join(text for argument, text in arguments.items() if argument not in tool.required)
    return _search(chosen, question, context, tool.kinds)


def ranked(chosen: Library, question: str, context: str, limit: int, kinds: tuple[str, ...] = ()) -> list[Hit]:
    """Return the best pages for a question; those that fit the context as well come first."""
    if not context.strip():
        return chosen.index.search(question, limit, kinds)
    hits = chosen.index.search(question, len(chosen.pages), kinds)
    scores = {hit.page.id: hit.score for hit in chosen.index.search(context, len(chosen.pages), kinds)}
    hits.sort(key=lambda hit: (-hit.score - CONTEXT_SHARE * scores.get(hit.page.id, 0.0), hit.page.id))
    return hits[:limit]


def _search(chosen: Library, question: str, context: str, kinds: tuple[str, ...]) -> Answer:
    """Return the best sections, quoted, and further pages by name: of these kinds, or of all if none of them fits."""
    most = QUOTED + NAMED
    hits = ranked(chosen, question, context, most, kinds) or ranked(chosen, question, context, most)
    if not hits:
        return Answer(f"No page contains a word of this question. The pages are about {', '.join(chosen.ops)}.")
    further = "\n".join(_named(hit.page) for hit in hits[QUOTED:])
    parts = [
        f"{len(hits)} pages fit, best first. Sections are quoted; get_page returns a whole page.",
        *map(_quoted, hits[:QUOTED]),
        f"Further pages:\n{further}" if further else "",
    ]
    return _put(parts, [hit.page.id for hit in hits], MAX_CHARS)


def _page(chosen: Library, page_id: str) -> Answer:
    """Return one page, or one section of it; for an unknown id the nearest ones, as an error."""
    wanted, _, heading = page_id.strip().strip("[]` ").partition("#")
    page = chosen.pages.get(wanted.strip().lower().removesuffix(".md"))
    if page is None:
        asked = page_id[:200]
        names = "\n".join(_named(hit.page) for hit in chosen.index.search(asked, 5))
        nearest = f"The nearest:\n{names}" if names else ""
        return Answer(f"No page is called {asked!r}. {nearest}", is_error=True)
    head = f"# {page.title} [{page.id}]\nA {page.kind} page on {', '.join(page.ops)}. {page.summary}"
    text = page.text
    if heading.strip():
        text = page.section(heading)
        if not text:
            names = "; ".join(section.heading for section in page.sections if section.heading)
            return Answer(f"[{page.id}] has no section {heading.strip()[:80]!r}. It has: {names}.", is_error=True)
        text = f"## {heading.strip()}\n{text}"
    see = "See also: " + ", ".join(f"[{name}]" for name in page.see) if page.see else ""
    return _put([head, _linked(text), see], [page.id], MAX_PAGE_CHARS)


def _quoted(hit: Hit) -> str:
    heading = f": {hit.section.heading}" if hit.section.heading else ""
    return f"### {hit.page.title}{heading} [{hit.page.id}]\n{_clip(_linked(hit.section.text), SECTION_CHARS)}"


def _named(page: Page) -> str:
    return f"- [{page.id}] {page.title}: {page.summary}"


def _linked(text: str) -> str:
    """Return the text with links between pages as citations: [[slug]] becomes [slug]."""
    return LINK.sub(r"[\1]", text)


def _put(parts: list[str], hits: list[str], most: int) -> Answer:
    """Return an answer of parts separated by blank lines, cut at `most` characters."""
    text = "\n\n".join(part.strip() for part in parts if part.strip())
    # A question may contain half of a surrogate pair, which JSON cannot carry.
    return Answer(_clip(text, most).encode(errors="replace").decode(), tuple(dict.fromkeys(hits)))


def _clip(text: str, most: int) -> str:
    """Return at most `most` characters, cut between lines or words; an open code block is closed."""
    text = text.strip()
    if len(text) <= most:
        return text
    room = most - len("\n```\n[...]")
    cut = text[:room]
    line, word = cut.rfind("\n"), cut.rfind(" ")
    cut = cut[: line if line > 0.7 * room else word if word > 0 else room].rstrip()
    fence = "\n```" if cut.count("```") % 2 else ""
    return f"{cut}{fence}\n[...]"
