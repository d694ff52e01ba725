"""Pages: files of front matter and sections, and the checks of their format (docs/knowledge.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from repro.errors import UsageError
from repro.knowledge.vocabulary import KINDS, Vocabulary

FIELDS = ("id", "title", "kind", "ops", "archs", "dtypes", "languages", "summary", "see")
MIN_WORDS, MAX_WORDS = 200, 1500
MAX_SECTION_WORDS = 450
SIGNATURES = "Signatures"
# Sections that a page of each kind must have.
NEEDED = {
    "pitfall": ("Rule",),
    "error": (SIGNATURES,),
    "priors": ("Table",),
    "playbook": ("Steps",),
    "technique": ("When it pays", "How far it goes"),
}
# Sections with lines of data, which may be long.
DATA = ("Rule", SIGNATURES, "Table", "Steps")
LINK = re.compile(r"\[\[([^\[\]]+)\]\]")
_SIGNATURE = re.compile(r"- pattern: (.+) \| cause: .+? \| fix: .+")
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True)
class Section:
    """The text below one `## ` heading, the unit of the search. Text before the first has an empty heading."""

    page: str
    heading: str
    text: str


@dataclass(frozen=True)
class Page:
    """One file. The facets are lists of the vocabulary's values; `any` means all of them."""

    id: str
    title: str
    kind: str
    ops: tuple[str, ...]
    archs: tuple[str, ...]
    dtypes: tuple[str, ...]
    languages: tuple[str, ...]
    summary: str
    see: tuple[str, ...]
    sections: tuple[Section, ...]

    def section(self, heading: str) -> str:
        """Return the text below a heading, ignoring case; empty if there is none."""
        wanted = heading.strip().lower()
        return next((s.text for s in self.sections if s.heading.lower() == wanted), "")

    @cached_property
    def text(self) -> str:
        """Return the page as it is shown."""
        parted = (f"## {s.heading}\n{s.text}" if s.heading else s.text for s in self.sections)
        return "\n\n".join(parted)

    @cached_property
    def signatures(self) -> list[re.Pattern[str]]:
        """Return the patterns of the error messages that the page is about. Raises ValueError with a wrong line."""
        found = []
        for line in _joined(self.section(SIGNATURES)):
            match = _SIGNATURE.fullmatch(line)
            if not match:
                raise ValueError(f"no signature `pattern: ... | cause: ... | fix: ...`: {line[:80]}")
            try:
                found.append(re.compile(match.group(1).strip().strip("`"), re.I))
            except re.error as error:
                raise ValueError(f"{match.group(1)} is not a regular expression: {error}") from error
        return found


def _joined(text: str) -> list[str]:
    """Return the items of a list, each on one line; a wrapped line belongs to the item above it."""
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("- "):
            found.append(line.strip())
        elif found and line[:1].isspace() and line.strip():
            found[-1] += " " + line.strip()
    return found


def _sections(page: str, body: str) -> Iterator[Section]:
    heading, lines, fenced = "", list[str](), False
    for line in body.splitlines():
        fenced ^= line.lstrip().startswith("```")
        if line.startswith("## ") and not fenced:
            if heading or "".join(lines).strip():
                yield Section(page, heading, "\n".join(lines).strip())
            heading, lines = line[3:].strip(), []
        else:
            lines.append(line)
    yield Section(page, heading, "\n".join(lines).strip())


def parse(text: str, name: str) -> Page:
    """Return the page in a file's text. name: of the file without its suffix. Raises UsageError for wrong fields."""
    match = re.fullmatch(r"---\n(.*?)\n---\n(.*)", text.replace("\r\n", "\n"), re.S)
    if not match:
        raise UsageError(f"{name}.md is not a page", "it has no front matter between two lines of ---", "Add it.")
    pairs = [line.partition(":") for line in match.group(1).splitlines() if line.strip()]
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    wrong = sorted(set(FIELDS) ^ set(fields))
    if wrong or len(pairs) != len(fields):
        why = f"these fields are missing, unknown or there twice: {', '.join(wrong)}"
        raise UsageError(f"{name}.md is not a page", why, f"The fields are {', '.join(FIELDS)}.")

    def several(field: str) -> tuple[str, ...]:
        return tuple(value.strip() for value in fields[field].split(",") if value.strip())

    return Page(
        id=fields["id"],
        title=fields["title"],
        kind=fields["kind"],
        ops=several("ops"),
        archs=several("archs"),
        dtypes=several("dtypes"),
        languages=several("languages"),
        summary=fields["summary"],
        see=several("see"),
        sections=tuple(_sections(fields["id"], match.group(2))),
    )


def load(folder: Path) -> dict[str, Page]:
    """Return every page of a folder by its id, in order. Raises UsageError for a file that is not a page."""
    pages = (parse(file.read_text(), file.stem) for file in sorted(folder.glob("*.md")))
    return {page.id: page for page in pages}


def faults(folder: Path, vocabulary: Vocabulary) -> list[str]:
    """Return a line for everything in a folder's pages that breaks the format."""
    pages: dict[str, Page] = {}
    found = []
    for file in sorted(folder.glob("*.md")):
        try:
            page = parse(file.read_text(), file.stem)
        except UsageError as error:
            found.append(str(error))
            continue
        if page.id != file.stem:
            found.append(f"{file.stem}: its id is {page.id}")
        pages[file.stem] = page
    for page in pages.values():
        found += [f"{page.id}: {fault}" for fault in _faults(page, set(pages), vocabulary)]
    return found


def _faults(page: Page, known: set[str], vocabulary: Vocabulary) -> Iterator[str]:  # noqa: C901 (a list of checks)
    if not _SLUG.fullmatch(page.id):
        yield "its id does not consist of lower-case words and hyphens"
    if page.kind not in KINDS:
        yield f"kind {page.kind!r} is none of {', '.join(KINDS)}"
    for field in ("ops", "archs", "dtypes", "languages"):
        given, allowed = getattr(page, field), set(getattr(vocabulary, field))
        if field != "ops":
            allowed.add("any")
        if not given or set(given) - allowed:
            yield f"{field} {', '.join(given)!r}: values are {', '.join(sorted(allowed))}"
    if not page.title or not page.summary.endswith(".") or len(page.summary) > 400:
        yield "title or summary is missing, or the summary is not a sentence of at most 400 characters"
    links = LINK.findall(page.text)
    for link in sorted({*page.see, *links} - known):
        yield f"links to {link}, which is not a page"
    if page.id in page.see:
        yield "links to itself"
    words = len(page.text.split())
    if not MIN_WORDS <= words <= MAX_WORDS:
        yield f"{words} words; pages have {MIN_WORDS} to {MAX_WORDS}"
    headings = [section.heading for section in page.sections]
    if len(headings) != len(set(headings)):
        yield "a heading occurs twice"
    for section in page.sections:
        long = len(section.text.split())
        data = section.heading in DATA
        if not section.text or (long > MAX_SECTION_WORDS and not data):
            yield f"section {section.heading!r} has {long} words; it has 1 to {MAX_SECTION_WORDS}"
        if section.text.count("```") % 2:
            yield f"section {section.heading!r} has code without an end"
    for needed in NEEDED.get(page.kind, ()):
        if not page.section(needed):
            yield f"a {page.kind} needs a section {needed!r}"
    try:
        if page.kind == "error" and not page.signatures:
            yield f"its section {SIGNATURES!r} is empty"
        for pattern in page.signatures:
            if pattern.search(""):
                yield f"the pattern {pattern.pattern!r} matches everything"
    except ValueError as error:
        yield str(error)
