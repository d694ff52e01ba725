"""Text in the form that the search sees: identifiers split into words, one spelling, one name for each thing."""

from __future__ import annotations

import functools
import re
from pathlib import Path

SYNONYMS = Path(__file__).with_name("synonyms.txt")
# Words that carry no implementation. The list is short and contains no rare word.
STOP = frozenset(
    "a about after again all also am an and any anyway are as at be because been before being but by can cannot "
    "could did do does doing done down each even ever every few for from further get gets getting give given go "
    "goes got had has have having he her here hers him his how however i if in into is it its itself just keep let "
    "like make makes many may me might mine more most much must my myself need needs no nor not now of off on once "
    "one only onto or other our ours out over own per put rather s same say says shall she should since so some "
    "still such t than that the their theirs them then there these they this those though through to too toward try "
    "under until up upon us use used using very via want wants was we well were what when where whether which while "
    "who whom whose why will with within without would yes yet you your yours".split()
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2,})|(?<=[a-z])(?=[123]d\b)")
_NAN = re.compile(r"\bNaN")
_SPELLING = re.compile(r"^(\w{4,})iz(e|es|ed|er|ers|ing|ation|ations)$")
_WORD = re.compile(r"[^\W_]+")
# Anything longer is not a word but a hash, a number, or text without spaces.
LONGEST = 40
# Most characters of a query.
MAX_CHARS = 16_000


@functools.cache
def _synonyms() -> tuple[dict[tuple[str, ...], list[str]], int]:
    """Return the canonical name of each variant, and the number of words of the longest variant."""
    names: dict[tuple[str, ...], list[str]] = {}
    for line in SYNONYMS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            canonical, variants = line.split(":", 1)
            names |= {tuple(variant.split()): canonical.split() for variant in variants.split(",")}
    return names, max(map(len, names))


def fold(text: str) -> str:
    """Return lower-case words separated by single spaces, in canonical names. `BatchNorm2d` becomes `batch norm 2d`."""
    text = _CAMEL.sub(" ", _NAN.sub("nan", text))
    plain = [_SPELLING.sub(r"\1is\2", word) for word in _WORD.findall(text.lower()) if len(word) <= LONGEST]
    names, longest = _synonyms()
    found = []
    n = 0
    while n < len(plain):
        for size in range(longest, 0, -1):
            canonical = names.get(tuple(plain[n : n + size]))
            if canonical:
                found += canonical
                n += size
                break
        else:
            found.append(plain[n])
            n += 1
    return " ".join(found)


def terms(text: str) -> list[str]:
    """Return the distinct words of a text that carry an implementation, folded, in order."""
    return [word for word in dict.fromkeys(fold(text).split()) if word not in STOP]


def ends(text: str) -> str:
    """Return both ends of a text that is longer than a query may be: logs report errors first or last."""
    half = MAX_CHARS // 2
    return text if len(text) <= MAX_CHARS else f"{text[:half]} {text[-half:]}"
