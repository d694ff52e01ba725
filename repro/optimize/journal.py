"""The journal of a run: one JSON line for everything that came from outside, and for every decision.

An `effect` is something that the loop asked for: verdicts, times, candidates, a model's reply, elapsed time. Its line
holds the question, the answer, and the seconds that it took, by part where these are known. A `note` is a decision of
the loop. A run that reads a journal takes the recorded answers in order, so it makes the same decisions; each is
compared with the recorded one. After the last line a resumed run asks for real, and a replayed run ends.

Kernels lie beside the journal in `kernels/`, named by the SHA-256 of their text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from repro.errors import BundleError, ReproError, Unreadable, reason_of
from repro.records.base import faults
from repro.records.search import Line, Start
from repro.system import foreign, jsonio
from repro.system.digest import sha256

FILE, KERNELS = "journal.jsonl", "kernels"
SCHEMA_VERSION = 3
# Most bytes of a journal: a search of an hour leaves 2 MB.
_MOST_BYTES = 64 << 20
T = TypeVar("T")


class ReplayEnded(ReproError):
    """A replay reached the end of its journal: the recorded run had been interrupted there."""


@dataclass
class Journal:
    """The journal of one run folder.

    recorded: the lines of an earlier run to take answers from. live: whether it may ask for real after them; then the
    folder holds them already.
    """

    folder: Path
    recorded: list[Line]
    live: bool
    clock: Callable[[], float] = time.monotonic
    _at: int = 0
    _lines: int = 0

    def __post_init__(self) -> None:
        (self.folder / KERNELS).mkdir(parents=True, exist_ok=True)

    @classmethod
    def new(cls, folder: Path) -> Journal:
        """Begin a run in an empty folder."""
        return cls(folder, [], live=True)

    @classmethod
    def resume(cls, folder: Path) -> Journal:
        """Continue the run of a folder. A last line that was cut short is removed. Raises BundleError."""
        jsonio.mend(folder / FILE)
        return cls(folder, read(folder), live=True)

    @classmethod
    def replay(cls, origin: Path, folder: Path) -> Journal:
        """Repeat the run of `origin` into an empty folder, without asking for anything. Raises BundleError."""
        journal = cls(folder, read(origin), live=False)
        for file in (origin / KERNELS).glob("*.py"):
            jsonio.replace(folder / KERNELS / file.name, foreign.read(file, within=origin))
        return journal

    @property
    def replays(self) -> bool:
        """Return whether the next line comes from a recording."""
        return self._at < len(self.recorded)

    @property
    def asks(self) -> bool:
        """Return whether the next answer is asked for."""
        return self.live and not self.replays

    def join(self, branch: Branch) -> None:
        """Write what a branch holds."""
        for line in branch.lines:
            self._write(line.model_copy(update={"n": self._lines + 1}))

    def effect(
        self,
        kind: str,
        request: object,
        form: TypeAdapter[T],
        perform: Callable[[], T],
        parts: Callable[[], dict[str, float]] = dict,
    ) -> T:
        """Return the recorded answer to a request, or ask for it and record it.

        form: of the answer. parts: called after `perform`, for its seconds by part. Raises BundleError if the recording
        holds another request here or a damaged answer, ReplayEnded if a replay has no more lines.
        """
        request = _plain(request)
        line = self._next(kind)
        if line is None:
            begin = self.clock()
            result = _plain(form.dump_python(perform(), exclude_unset=True))
            spent_s = {"all": round(self.clock() - begin, 3)} | parts()
            line = Line(n=self._lines + 1, kind=kind, request=request, result=result, spent_s=spent_s)
        elif line.request != request:
            raise BundleError("the journal is of another run", f"line {self._at} holds another request of {kind}")
        self._write(line)
        try:
            return form.validate_python(line.result)
        except ValidationError as error:
            raise BundleError(f"line {self._lines} of the journal is damaged", "; ".join(faults(error))) from error

    def note(self, kind: str, facts: object) -> None:
        """Record a decision. Raises BundleError if the recording holds another one here."""
        facts = _plain(facts)
        line = self._next(kind)
        if line is not None and _set(line.facts) != _set(facts):
            raise BundleError("the journal is of another run", f"line {self._at} holds another decision ({kind})")
        self._write(line or Line(n=self._lines + 1, kind=kind, facts=facts))

    def keep(self, source: str) -> str:
        """Store a kernel by its content; return its address."""
        address = sha256(source)
        file = self.folder / KERNELS / f"{address}.py"
        if not file.exists():
            jsonio.replace(file, source.encode())
        return address

    def kernel(self, address: str) -> str:
        """Return a stored kernel. Raises BundleError if it is missing or was changed."""
        try:
            text = foreign.read(self.folder / KERNELS / f"{address}.py").decode()
        except (Unreadable, UnicodeDecodeError) as error:
            raise BundleError(f"the kernel {address[:12]} cannot be read", str(error)) from None
        if sha256(text) != address:
            raise BundleError(f"the kernel {address[:12]} was changed", "its text has another hash")
        return text

    def _next(self, kind: str) -> Line | None:
        if self._at >= len(self.recorded):
            if not self.live:
                raise ReplayEnded("the journal ends here", "the recorded run was interrupted", "Use --resume on it.")
            return None
        line = self.recorded[self._at]
        self._at += 1
        if line.kind != kind:
            raise BundleError("the journal is of another run", f"line {self._at} is {line.kind}, not {kind}")
        return line

    def _write(self, line: Line) -> None:
        """Append a line that is not on disk yet. Raises BundleError if it cannot be written."""
        self._lines += 1
        if self.live and self._lines <= len(self.recorded):
            return
        try:
            jsonio.append(self.folder / FILE, line.to_json())
        except OSError as error:
            raise BundleError("the journal cannot be written", reason_of(error)) from error


class Branch(Journal):
    """The lines of work beside other work, until `Journal.join` takes them in their turn."""

    def __init__(self, of: Journal) -> None:
        super().__init__(of.folder, [], live=True)
        self.clock, self.lines = of.clock, list[Line]()

    def _write(self, line: Line) -> None:
        self.lines.append(line)


def _plain(value: object) -> Any:
    """Return a value as it is read from the journal."""
    return json.loads(jsonio.dumps(value))


def _set(facts: Any) -> Any:
    """Return facts without fields that are null or false: a journal may name some that this version lacks."""
    if isinstance(facts, dict):
        return {name: _set(value) for name, value in facts.items() if value is not None and value is not False}
    return facts


def read(folder: Path) -> list[Line]:
    """Return the lines of a run's journal. Raises BundleError if there is none or it is broken."""
    file = folder / FILE
    if not file.is_file():
        raise BundleError(f"no journal in {folder}", f"{FILE} is missing")
    try:
        lines = [Line.model_validate(line) for line in jsonio.lines_of(foreign.text(file, _MOST_BYTES))]
        start = next((Start.model_validate(line.facts) for line in lines if line.kind == "start"), None)
    except Unreadable as error:
        raise BundleError(f"{file} cannot be read", error.why) from error
    except ValueError as error:
        raise BundleError(f"{file} cannot be read", str(error)) from error
    if start is None or start.schema_version != SCHEMA_VERSION:
        raise BundleError(f"{file} is no journal of this version", "")
    return lines
