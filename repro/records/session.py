"""What a judge's session is asked and answers: a line of JSON each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, TypeAdapter

from repro.records.base import Record
from repro.records.fingerprint import Fingerprint
from repro.records.result import Ceilings, JudgeResult
from repro.records.verdict import Verdict

CheckTier = Literal["screen", "full"]
Tier = Literal["screen", "quick", "full"]


class Source(Record):
    """A solution's text. One that is no UTF-8 keeps its bytes as surrogates."""

    name: str = Field(description="Of the solution.")
    entry: str = Field(description="`ModelNew` or `kernel_function`.")
    source: str = Field(description="Its text.")


class Check(Record):
    """See JudgeSession.check. `keep` counts where the source is the one that was checked in full."""

    op: Literal["check"] = Field(description="The request.")
    solutions: list[Source] = Field(description="To check.")
    tier: CheckTier = Field(description="How closely.")
    keep: list[str] = Field(description="Names whose verdict stands.")


class Time(Record):
    """See JudgeSession.time."""

    op: Literal["time"] = Field(description="The request.")
    solutions: list[Source] = Field(description="To time, checked before.")
    tier: Tier = Field(description="How long.")


class Close(Record):
    """The end. It gets no answer."""

    op: Literal["close"] = Field(description="The request.")


REQUEST: TypeAdapter[Check | Time | Close] = TypeAdapter(Annotated[Check | Time | Close, Discriminator("op")])


class PackedValue(Record):
    """A value of a fingerprint alone."""

    value: Any = Field(description="The value.")


class PackedMachine(Record):
    """What the archive of a search keeps of a fingerprint."""

    values: dict[str, PackedValue] = Field(description="By name.")


class Opened(Record):
    """The first answer. ceilings: None on the CPU. room: how many solutions may be checked at once."""

    fingerprint: Fingerprint | PackedMachine | None = Field(None, description="Of the machine.")
    ceilings: Ceilings | None = Field(None, description="Of the GPU; null on the CPU.")
    room: int | None = Field(None, description="Solutions checked at once.")


class Checked(Verdict):
    """A verdict without times. bits: of a screening, digests of the whole output."""

    bits: list[int] | None = Field(None, description="Of a screening: digests of the whole output.")


class Answer(Record):
    """An answer. spent_s: seconds by part of the work."""

    spent_s: dict[str, float] = Field(description="Seconds by part of the work.")


class Verdicts(Answer):
    """The answer to Check."""

    entries: list[Checked] = Field(description="A verdict each.")


class Times(Answer):
    """The answer to Time."""

    result: JudgeResult = Field(description="As of `evaluate`.")


class Refused(Record):
    """The answer where a request failed, with a status of `Outcome`."""

    error: str = Field(description="The reason.")
    status: Literal["unmet", "failed"] = Field(description="As of an outcome.")
