"""manifest.json: what a bundle was planned to hold, by which code, and the hash of every file."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from repro.records.base import Record, Sha256, ShortHash, Time, held
from repro.records.fingerprint import Device, Known
from repro.system.jsonio import Json


class EngineFacts(Record):
    """Where the jobs ran. Each engine adds facts of its own."""

    engine: str | None = None
    """Its name."""
    device: Device | None = None
    """Where solutions ran."""


class Origin(Record):
    """The code of the first attempt that recorded it."""

    code_sha256: Sha256
    """Hash of the source of repro."""
    requirements: dict[str, Sha256]
    """Requirement file -> its hash."""
    git_commit: Known
    """The checkout's commit."""
    git_dirty: Known
    """Whether the checkout had changes."""


class Attempt(Record):
    """One process that wrote rows."""

    started: Time
    """When it began, UTC."""
    tool: str
    """Name and version of the program."""
    code_sha256: Sha256 | None = None
    """Hash of its source, since schema 2."""


class Declared(Record):
    """The claims that a run was held to, declared before its first row."""

    file: str
    """Its name in the bundle."""
    sha256: Sha256
    """Its hash."""
    declared: Time
    """When it was stored, UTC."""


class Shared(Record):
    """What `repro share` rewrote and left out."""

    rewritten: list[str]
    """Files whose text differs."""
    left_out: dict[str, str]
    """File or folder -> why the copy lacks it."""
    identities: dict[str, int]
    """Kind of identity -> how many."""
    original_bundle_id: str | None
    """Of the original."""


class Copy(Record):
    """A copy of a bundle: an entry of `share --json`."""

    bundle: str
    """The copy's folder."""
    bundle_id: str | None
    """Of the copy; a packed bundle keeps its own."""
    shared: Shared | None = None
    """What was rewritten and left out; null if it was packed."""


# What a closed manifest has.
_CLOSED = ("finished", "files", "origin", "attempts", "bundle_id")


class _Parameters(Record):
    """What readers need of a run's parameters."""

    arms: dict[str, str] = {}
    """Arm -> what it is."""
    solutions: list[str] = []
    """Arms of solutions from folders."""
    options: Json = {}
    """The judge's options."""
    study: Json = {}
    """How a study configured its agents."""
    skipped: dict[str, str] = {}
    """Case of the self-test -> why it did not run."""
    device: str | None = None
    """Where solutions ran."""
    size: str | None = None
    """full or smoke."""


class Manifest(Record):
    """What was planned, by which code, and the hash of every file."""

    schema_version: Literal[2]
    """Layout of the bundle."""
    tool: Annotated[str, Field(pattern=r"^repro \S+$")]
    """Name and version of the program that wrote it."""
    verb: Literal["run", "evaluate", "benchmark", "fixtures", "self-test"]
    """The command."""
    argv: list[str] | None = None
    """Words after `repro` of the command that made it; empty if it was made from Python."""
    parameters: Json
    """What, besides the plan, two runs share if one continues the other."""
    plan: list[str]
    """Row ids in order."""
    plan_digest: ShortHash
    """Of plan and parameters."""
    started: Time
    """When the run started, UTC."""
    finished: Time | None
    """Null while it is written."""
    status: Literal["running", "complete", "incomplete", "interrupted", "failed"]
    """`complete`: every planned row is done."""
    error: str | None = None
    """Why the run ended early."""
    engine: EngineFacts | None = None
    """Where the jobs ran."""
    origin: Origin | None = None
    """The code of the first attempt that recorded it."""
    attempts: list[Attempt] | None = Field(None, min_length=1)
    """Every process that wrote rows, oldest first."""
    claims: Declared | None = None
    """The claims that the run was held to, declared before its first row."""
    shared: Shared | None = None
    """What `repro share` rewrote and left out."""
    unused_files: dict[str, list[str]] | None = None
    """Arm -> files of its folder that are no solution."""
    files: dict[str, Sha256] | None = None
    """Every file but the manifest."""
    bundle_id: Sha256 | None = None
    """Of this manifest without its bundle_id."""

    @field_validator("parameters")
    @classmethod
    def _known_parameters(cls, value: Json) -> Any:
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
