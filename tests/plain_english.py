"""Finds words that hide what is meant, in comments, docstrings, messages and documents.

The words and what to write instead stand in plain_english.toml. Prints file:line for each finding; exits 1 if any.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".toml")
STRINGS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def python_prose(text: str) -> Iterator[tuple[int, str]]:
    """Line number and text of every comment and string."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in STRINGS:
            for offset, line in enumerate(token.string.split("\n")):
                yield token.start[0] + offset, line


def markdown_prose(text: str) -> Iterator[tuple[int, str]]:
    """Line number and text of every line outside code."""
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        inside ^= line.lstrip().startswith("```")
        if not inside:
            yield number, re.sub(r"`[^`]*`", "", line)


READERS = {".py": python_prose, ".md": markdown_prose}


def tracked() -> list[str]:
    """Every file that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(done.stdout.splitlines())


def findings(words: list[tuple[re.Pattern[str], str]], name: str) -> list[str]:
    """`file:line: word: what to write instead` for one file."""
    file = ROOT / name
    reader = READERS.get(file.suffix)
    if reader is None or not file.is_file():
        return []
    found = []
    for number, line in reader(file.read_text()):
        for pattern, instead in words:
            if match := pattern.search(line):
                found.append(f"{name}:{number}: {match[0].strip()!r}: {instead}")
    return found


def main() -> int:
    rules = tomllib.loads(LIST.read_text())
    words = [(re.compile(rule["find"], re.IGNORECASE), rule["write"]) for rule in rules["word"]]
    names = [name for name in tracked() if not name.startswith(tuple(rules["skip"]))]
    found = [line for name in names for line in findings(words, name)]
    print("\n".join(found), end="\n" if found else "")
    print(f"plain English: {len(found)} findings in {len(names)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
