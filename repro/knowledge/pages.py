"""Pages: files of front matter and sections. docs/knowledge.md has their format, which the tests check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from repro.errors import UsageError

FIELDS = ("id", "title", "kind", "ops", "archs", "dtypes", "languages", "summary", "see")
# Those of them that are lists, separated by commas.
LISTS = ("ops", "archs", "dtypes", "languages", "see")
SIGNATURES = "Signatures"
LINK = re.compile(r"\[\[([^\[\]]+)\]\]")
_SIGNATURE = re.compile(r"- pattern: (.+) \| cause: .+? \| fix: .+")


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
    found = []
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
    fields: dict[str, Any] = {key.strip(): value.strip() for key, _, value in pairs}
    wrong = sorted(set(FIELDS) ^ set(fields))
    if wrong or len(pairs) != len(fields):
        why = f"these fields are missing, unknown or there twice: {', '.join(wrong)}"
        raise UsageError(f"{name}.md is not a page", why, f"The fields are {', '.join(FIELDS)}.")

    for name in LISTS:
        fields[name] = tuple(filter(None, map(str.strip, fields[name].split(","))))
    return Page(**fields, sections=tuple(_sections(fields["id"], match.group(2))))


def load(folder: Path) -> dict[str, Page]:
    """Return every page of a folder by its id, in order. Raises UsageError for a file that is not a page."""
    pages = (parse(file.read_text(), file.stem) for file in sorted(folder.glob("*.md")))
    return {page.id: page for page in pages}
