"""Data in sections: rules of pitfalls, signatures of errors, rows of priors, steps of playbooks."""

from __future__ import annotations

import re
from dataclasses import dataclass

RULE, SIGNATURES, TABLE, STEPS = "Rule", "Signatures", "Table", "Steps"
PAYS, FAR = "When it pays", "How far it goes"
# Sections with lines of data, which may be long.
DATA = (RULE, SIGNATURES, TABLE, STEPS)
# Sections that a page of each kind must have.
NEEDED = {
    "pitfall": (RULE,),
    "error": (SIGNATURES,),
    "priors": (TABLE,),
    "playbook": (STEPS,),
    "technique": (PAYS, FAR),
}
_RULE = re.compile(r"if: (.+?) \| then: (.+?) \| do: (.+)")
_SIGNATURE = re.compile(r"pattern: (.+) \| cause: (.+?) \| fix: (.+)")
_STEP = re.compile(r"\d+[.)] (.+)")
LINK = re.compile(r"\[\[([^\[\]]+)\]\]")


@dataclass(frozen=True)
class Rule:
    """A condition in a plan or in code, its consequence, and the remedy."""

    page: str
    when: str
    then: str
    do: str


@dataclass(frozen=True)
class Signature:
    """A pattern that is searched in logs, ignoring case."""

    page: str
    pattern: re.Pattern[str]
    cause: str
    fix: str


@dataclass(frozen=True)
class Prior:
    """One row of a table of starting values, with the vocabulary's columns."""

    page: str
    cells: tuple[str, ...]


def items(text: str) -> list[str]:
    """Return the items of a list, each on one line. A wrapped line belongs to the item above it; code is skipped."""
    found: list[str] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        if fenced or line.lstrip().startswith("```"):
            continue
        if re.match(r"(?:[-*]|\d+[.)]) ", line):
            found.append(line.strip())
        elif found and line.strip() and line[:1].isspace():
            found[-1] += " " + line.strip()
    return found


def rules(page: str, text: str) -> list[Rule]:
    """Return the rules of a section. Raises ValueError with the first line that is not a rule."""
    found = []
    for item in items(text):
        match = _RULE.fullmatch(item[2:])
        if not match:
            raise ValueError(f"no rule `if: ... | then: ... | do: ...`: {item[:80]}")
        found.append(Rule(page, *match.groups()))
    return found


def signatures(page: str, text: str) -> list[Signature]:
    """Return the signatures of a section. Raises ValueError with the first wrong line or pattern."""
    found = []
    for item in items(text):
        match = _SIGNATURE.fullmatch(item[2:])
        if not match:
            raise ValueError(f"no signature `pattern: ... | cause: ... | fix: ...`: {item[:80]}")
        pattern, cause, fix = match.groups()
        try:
            found.append(Signature(page, re.compile(pattern.strip().strip("`"), re.I), cause, fix))
        except re.error as error:
            raise ValueError(f"{pattern} is not a regular expression: {error}") from error
    return found


def priors(page: str, text: str, columns: tuple[str, ...]) -> list[Prior]:
    """Return the rows of the section's tables. Raises ValueError for wrong columns or a wrong number of cells."""
    found = []
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("|")]
    for line in lines:
        cells = tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|")))
        if cells[0].lower() == columns[0]:
            if tuple(cell.lower() for cell in cells) != columns:
                raise ValueError(f"the columns are not {' | '.join(columns)}: {line[:80]}")
        elif not set(line) <= set("|-: "):
            if len(cells) != len(columns):
                raise ValueError(f"{len(cells)} cells instead of {len(columns)}: {line[:80]}")
            found.append(Prior(page, cells))
    return found


def steps(text: str) -> list[str]:
    """Return the numbered items of a section, without their numbers."""
    return [match.group(1) for match in map(_STEP.fullmatch, items(text)) if match]
