"""A row: one line of rows.jsonl, one planned job and its outcome."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from repro.records.base import Record, Sha256, ShortHash, Text, Time
from repro.records.fixture import FixtureRecord
from repro.records.profile import Profile, ProfileResult
from repro.records.result import JudgeResult, Observed
from repro.records.verdict import Verdict
from repro.records.workload import Workload

Status = Literal["done", "failed", "unmet", "lost", "interrupted"]
# How often a row is measured again.
_MOST_AGAIN = 2


class Input(Record):
    """One text that went into a row: kept in the bundle, or with the reason why not."""

    name: str
    """File name in the job's folder, or the problem's path."""
    sha256: Sha256
    """Hash of the text."""
    kept: Text | None = None
    """Its name in the bundle."""
    not_kept: Text | None = None
    """Why it is not in the bundle."""
    withheld: Literal[True] | None = None
    """A judged text that must not be copied: its hash is in the content."""

    @model_validator(mode="after")
    def _kept_or_not(self) -> Self:
        if (self.kept is None) == (self.not_kept is None):
            raise ValueError("it is either kept, or has a reason why not")
        return self


class Sitting(Record):
    """The agent's sitting that wrote a row's solution."""

    job: str
    """The sitting's job."""
    status: str
    """How it ended."""
    detail: str
    """The same in words."""
    solution: bool
    """Whether it left a solution."""
    record: str
    """Its record's name in the bundle."""


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

    row: Text
    """An id of the manifest's plan."""
    problem: str = ""
    """The problem's id."""
    file: str | None = None
    """The solution's file name."""
    arm: str | None = None
    """Arm of the agent study."""
    control: bool = False
    """Whether it is a negative control, which must be wrong."""
    torch_control: bool = False
    """Whether it is torch itself as a solution."""
    repeat: int = 0
    """Number of the repeat, from 0."""
    agent: Sitting | None = None
    """The agent's sitting that wrote the solution."""
    number: int | None = None
    """Leading number of an artifact's folder."""
    rounds: dict[str, float | None] | None = None
    """Only in rows of `benchmark --rounds`: round -> its published time, ms."""
    profile: Literal[True] | None = None
    """Only in rows of `benchmark --profile`, whose result has `profiles` and no verdict."""
    missing: list[str] = []
    """Files that an artifact's folder lacks."""
    cases: list[str] | None = None
    """Cases of the self-test that were judged together."""
    workload: Workload | None = None
    """With `--shapes`: the shape that it judges."""

    @property
    def at(self) -> Workload:
        """Return the shape that it judges."""
        return self.workload or Workload()

    @property
    def group(self) -> str:
        """Return its id without the shape."""
        return self.row.removesuffix(f" at {self.at.name}")


class Row(Planned):
    """One planned row and its outcome. The last line of an id counts."""

    content: ShortHash
    """Hash of the texts that were judged."""
    inputs: list[Input] | None = None
    """Every text that went in, since schema 2: kept in the bundle, or with the reason why not."""
    status: Status
    """`done`: judged; anything else has its reason in `error`."""
    error: str
    """Why the row is not done; empty if it is."""
    wall_s: float = Field(ge=0)
    """Seconds from the start of the job to its end."""
    ended: Time | None = None
    """When it ended, UTC."""
    node: Text | None = None
    """Hash of the machine, if the engine has several."""
    fingerprint_id: Text | None
    """Names the file in fingerprints/; null if the job ended before it had one."""
    gpu_uuid_hash: Text | None = None
    """Hash of the UUID of the GPU that the job used."""
    measured_again: list[str] = []
    """Why earlier measurements, in earlier lines, do not count: a reason for each."""
    result: Result | None
    """What the judge measured: results, baselines, samples, trials, timing."""

    @property
    def judged(self) -> JudgeResult | None:
        """Return the result of a row that judged solutions; None for any other row."""
        return self.result if self.status == "done" and isinstance(self.result, JudgeResult) else None

    @property
    def verdicts(self) -> list[Verdict]:
        """Return the verdicts of a row that judged solutions; none of any other row."""
        return self.judged.results if self.judged else []

    @property
    def left_out(self) -> bool:
        """Return whether it is of a neighbouring shape at which nothing can be judged."""
        words = {self.status, *(each.verdict for each in self.verdicts)}
        return self.at.held_out and not words.isdisjoint({"unmet", "unjudgeable"})

    @property
    def due(self) -> str:
        """Return why it is to be measured again, empty if it is not: it is correct, but its GPU was throttled."""
        found = self.judged
        if found is None or len(self.measured_again) >= _MOST_AGAIN:
            return ""
        return found.no_measurement if any(each.verdict == "correct" for each in found.results) else ""

    @property
    def profiles(self) -> list[Profile]:
        """Return the profiles of a row; none if it is not done, or of any other row."""
        return self.result.profiles if self.status == "done" and isinstance(self.result, ProfileResult) else []
