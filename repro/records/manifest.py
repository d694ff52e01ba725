"""manifest.json: what a bundle was planned to hold, by which code, and the hash of every file."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from repro.records.base import Record, Sha256, ShortHash, Time, held
from repro.records.fingerprint import Device, Known


class EngineFacts(Record):
    """Where the jobs ran. Each engine adds facts of its own."""

    engine: str | None = Field(None, description="Its name.")
    device: Device | None = Field(None, description="Where solutions ran.")


class Origin(Record):
    """The code of the first attempt that recorded it."""

    code_sha256: Sha256 = Field(description="Hash of the source of repro.")
    requirements: dict[str, Sha256] = Field(description="Requirement file -> its hash.")
    git_commit: Known = Field(description="The checkout's commit.")
    git_dirty: Known = Field(description="Whether the checkout had changes.")


class Attempt(Record):
    """One process that wrote rows."""

    started: Time = Field(description="When it began, UTC.")
    tool: str = Field(description="Name and version of the program.")
    code_sha256: Sha256 | None = Field(None, description="Hash of its source, since schema 2.")


class Declared(Record):
    """The claims that a run was held to, declared before its first row."""

    file: str = Field(description="Its name in the bundle.")
    sha256: Sha256 = Field(description="Its hash.")
    declared: Time = Field(description="When it was stored, UTC.")


class Shared(Record):
    """What `repro share` rewrote and left out."""

    rewritten: list[str] = Field(description="Files whose text differs.")
    left_out: dict[str, str] = Field(description="File or folder -> why the copy lacks it.")
    identities: dict[str, int] = Field(description="Kind of identity -> how many.")
    original_bundle_id: str | None = Field(description="Of the original.")


class SharedCopy(Record):
    """An entry of `share --json`."""

    bundle: str = Field(description="The copy's folder.")
    shared: Shared = Field(description="What was rewritten and left out.")
    bundle_id: str = Field(description="Of the copy.")
    failed: list[str] = Field(description="Checks that fail in the copy alone.")


class Packed(Record):
    """An entry of `share --pack --json`."""

    bundle: str = Field(description="The folder with the archive.")
    bundle_id: str | None = Field(description="Of the bundle.")
    bytes: int = Field(description="Size of the archive.")


# What a closed manifest has.
_CLOSED = ("finished", "files", "origin", "attempts", "bundle_id")


class _Parameters(Record):
    """What readers need of a run's parameters."""

    arms: dict[str, str] = Field({}, description="Arm -> what it is.")
    solutions: list[str] = Field([], description="Arms of solutions from folders.")
    options: dict[str, Any] = Field({}, description="The judge's options.")
    study: dict[str, Any] = Field({}, description="How a study configured its agents.")
    skipped: dict[str, str] = Field({}, description="Case of the self-test -> why it did not run.")
    device: str | None = Field(None, description="Where solutions ran.")
    size: str | None = Field(None, description="full or smoke.")


class Manifest(Record):
    """What was planned, by which code, and the hash of every file."""

    schema_version: Literal[2] = Field(description="Layout of the bundle.")
    tool: Annotated[str, Field(pattern=r"^repro \S+$")] = Field(
        description="Name and version of the program that wrote it."
    )
    verb: Literal["run", "evaluate", "benchmark", "fixtures", "self-test"] = Field(description="The command.")
    argv: list[str] | None = Field(
        None, description="Words after `repro` of the command that made it; empty if it was made from Python."
    )
    parameters: dict[str, Any] = Field(description="What, besides the plan, two runs share if one continues the other.")
    plan: list[str] = Field(description="Row ids in order.")
    plan_digest: ShortHash = Field(description="Of plan and parameters.")
    started: Time = Field(description="When the run started, UTC.")
    finished: Time | None = Field(description="Null while it is written.")
    status: Literal["running", "complete", "incomplete", "interrupted", "failed"] = Field(
        description="`complete`: every planned row is done."
    )
    error: str | None = Field(None, description="Why the run ended early.")
    engine: EngineFacts | None = Field(None, description="Where the jobs ran.")
    origin: Origin | None = Field(None, description="The code of the first attempt that recorded it.")
    attempts: list[Attempt] | None = Field(
        None, min_length=1, description="Every process that wrote rows, oldest first."
    )
    claims: Declared | None = Field(
        None, description="The claims that the run was held to, declared before its first row."
    )
    shared: Shared | None = Field(None, description="What `repro share` rewrote and left out.")
    unused_files: dict[str, list[str]] | None = Field(
        None, description="Arm -> files of its folder that are no solution."
    )
    files: dict[str, Sha256] | None = Field(None, description="Every file but the manifest.")
    bundle_id: Sha256 | None = Field(None, description="Of this manifest without its bundle_id.")

    @field_validator("parameters")
    @classmethod
    def _known_parameters(cls, value: dict[str, Any]) -> Any:
        return held(_Parameters, value)

    @model_validator(mode="after")
    def _plan_is_unique(self) -> Self:
        if len(set(self.plan)) < len(self.plan):
            raise ValueError("the plan names a row twice")
        return self

    @model_validator(mode="after")
    def _closed(self) -> Self:
        """A bundle that is written has no end; a closed one has it, its files and its id."""
        due = ("origin", "attempts") if self.status == "running" else _CLOSED
        lacks = [name for name in due if getattr(self, name) is None]
        lacks += ["no end"] if self.status == "running" and self.finished is not None else []
        if self.status != "running" and "statement.json" not in (self.files or {}):
            lacks.append("files/statement.json")
        if lacks:
            raise ValueError(f"a manifest that is {self.status} needs {', '.join(lacks)}")
        return self
