"""What a judge's session is asked and answers: a line of JSON each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, TypeAdapter

from repro.records.base import Record
from repro.records.fingerprint import Fingerprint
from repro.records.result import Ceilings, JudgeResult
from repro.records.verdict import Verdict

CheckTier = Literal["screen", "full"]
Tier = Literal["screen", "quick", "full"]


class Source(Record):
    """A solution's text. One that is no UTF-8 keeps its bytes as surrogates."""

    name: str
    """Of the solution."""
    entry: str
    """`ModelNew` or `kernel_function`."""
    source: str
    """Its text."""


class Check(Record):
    """See JudgeSession.check. `keep` counts where the source is the one that was checked in full."""

    op: Literal["check"]
    """The request."""
    solutions: list[Source]
    """To check."""
    tier: CheckTier
    """How closely."""
    keep: list[str]
    """Names whose verdict stands."""


class Time(Record):
    """See JudgeSession.time."""

    op: Literal["time"]
    """The request."""
    solutions: list[Source]
    """To time, checked before."""
    tier: Tier
    """How long."""


class Close(Record):
    """The end. It gets no answer."""

    op: Literal["close"]
    """The request."""


REQUEST: TypeAdapter[Check | Time | Close] = TypeAdapter(Annotated[Check | Time | Close, Discriminator("op")])


class PackedValue(Record):
    """A value of a fingerprint alone."""

    value: Any
    """The value."""


class PackedMachine(Record):
    """What the archive of a search keeps of a fingerprint."""

    values: dict[str, PackedValue]
    """By name."""


class Opened(Record):
    """The first answer. ceilings: None on the CPU. room: how many solutions may be checked at once, in
    each of a search's sessions."""

    fingerprint: Fingerprint | PackedMachine | None = None
    """Of the machine."""
    ceilings: Ceilings | None = None
    """Of the GPU; null on the CPU."""
    room: int = 8
    """Solutions checked at once."""
    sessions: int = 1
    """Of a search: one for each GPU."""


class Checked(Verdict):
    """A verdict without times. bits: of a screening, digests of the whole output."""

    bits: list[int] | None = None
    """Of a screening: digests of the whole output."""


class Answer(Record):
    """An answer. spent_s: seconds by part of the work."""

    spent_s: dict[str, float]
    """Seconds by part of the work."""


class Verdicts(Answer):
    """The answer to Check."""

    entries: list[Checked]
    """A verdict each."""


class Times(Answer):
    """The answer to Time."""

    result: JudgeResult
    """As of `evaluate`."""


class Refused(Record):
    """The answer where a request failed, with a status of `Outcome`."""

    error: str
    """The reason."""
    status: Literal["unmet", "failed"]
    """As of an outcome."""
