"""A row: one line of rows.jsonl, one planned job and its outcome."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from repro.records.base import Record, Sha256, ShortHash, Text, Time
from repro.records.fixture import FixtureRecord
from repro.records.profile import ProfileResult
from repro.records.result import JudgeResult, Observed

Status = Literal["done", "failed", "unmet", "lost", "interrupted"]


class Input(Record):
    """One text that went into a row: kept in the bundle, or with the reason why not."""

    name: str = Field(description="File name in the job's folder, or the problem's path.")
    sha256: Sha256 = Field(description="Hash of the text.")
    kept: Text | None = Field(None, description="Its name in the bundle.")
    not_kept: Text | None = Field(None, description="Why it is not in the bundle.")
    withheld: Literal[True] | None = Field(
        None, description="A judged text that must not be copied: its hash is in the content."
    )

    @model_validator(mode="after")
    def _kept_or_not(self) -> Self:
        if (self.kept is None) == (self.not_kept is None):
            raise ValueError("it is either kept, or has a reason why not")
        return self


class Sitting(Record):
    """The agent's sitting that wrote a row's solution."""

    job: str = Field(description="The sitting's job.")
    status: str = Field(description="How it ended.")
    detail: str = Field(description="The same in words.")
    solution: bool = Field(description="Whether it left a solution.")
    record: str = Field(description="Its record's name in the bundle.")


def _kind_of(result: Any) -> str:
    """Return which result a row holds: of `evaluate`, `profile` or `fixture` jobs, or only what a job observes."""
    keys = result if isinstance(result, dict) else set(getattr(result, "model_fields_set", ()))
    return next((name for name in ("profiles", "results", "problem_sha256") if name in keys), "observed")


Result = Annotated[
    Annotated[JudgeResult, Tag("results")]
    | Annotated[ProfileResult, Tag("profiles")]
    | Annotated[FixtureRecord, Tag("problem_sha256")]
    | Annotated[Observed, Tag("observed")],
    Discriminator(_kind_of),
]


class Planned(Record):
    """A planned row: its id, and what describes it."""

    row: Text = Field(description="An id of the manifest's plan.")
    problem: str = Field("", description="The problem's id.")
    file: str | None = Field(None, description="The solution's file name.")
    arm: str | None = Field(None, description="Arm of the agent study.")
    control: bool = Field(False, description="Whether it is a negative control, which must be wrong.")
    torch_control: bool = Field(False, description="Whether it is torch itself as a solution.")
    repeat: int = Field(0, description="Number of the repeat, from 0.")
    agent: Sitting | None = Field(None, description="The agent's sitting that wrote the solution.")
    number: int | None = Field(None, description="Leading number of an artifact's folder.")
    rounds: dict[str, float | None] | None = Field(
        None, description="Only in rows of `benchmark --rounds`: round -> its published time, ms."
    )
    profile: Literal[True] | None = Field(
        None, description="Only in rows of `benchmark --profile`, whose result has `profiles` and no verdict."
    )
    missing: list[str] = Field(default_factory=list, description="Files that an artifact's folder lacks.")
    cases: list[str] | None = Field(None, description="Cases of the self-test that were judged together.")


class Row(Planned):
    """One planned row and its outcome. The last line of an id counts."""

    content: ShortHash = Field(description="Hash of the texts that were judged.")
    inputs: list[Input] | None = Field(
        None, description="Every text that went in, since schema 2: kept in the bundle, or with the reason why not."
    )
    status: Status = Field(description="`done`: judged; anything else has its reason in `error`.")
    error: str = Field(description="Why the row is not done; empty if it is.")
    wall_s: float = Field(ge=0, description="Seconds from the start of the job to its end.")
    ended: Time | None = Field(None, description="When it ended, UTC.")
    node: Text | None = Field(None, description="Hash of the machine, if the engine has several.")
    fingerprint_id: Text | None = Field(
        description="Names the file in fingerprints/; null if the job ended before it had one."
    )
    gpu_uuid_hash: Text | None = Field(None, description="Hash of the UUID of the GPU that the job used.")
    result: Result | None = Field(description="What the judge measured: results, baselines, samples, trials, timing.")

    @property
    def judged(self) -> JudgeResult | None:
        """Return the result of a row that judged solutions; None for any other row."""
        return self.result if self.status == "done" and isinstance(self.result, JudgeResult) else None

    @property
    def profiled(self) -> ProfileResult | None:
        """Return the result of a row of profiles; None for any other row."""
        return self.result if self.status == "done" and isinstance(self.result, ProfileResult) else None
