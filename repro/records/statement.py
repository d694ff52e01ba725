"""statement.json: an in-toto Statement (v1) with SLSA provenance (v1), unsigned."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from repro.records.base import Record

_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{40,64}$")]
Digest = Annotated[dict[Literal["sha256", "gitCommit", "dirHash"], _Hex], Field(min_length=1)]


class Resource(Record):
    """A file, package or checkout with its hash."""

    name: str | None = None
    """Its name."""
    uri: str | None = None
    """Where it comes from."""
    digest: Digest
    """Kind of hash -> hash."""
    annotations: dict[str, Any] | None = None
    """What else is known of it."""


class Subject(Resource):
    """A file of the bundle."""

    name: str
    """Its name."""


class BuildDefinition(Record):
    """What went in."""

    build_type: Annotated[str, Field(pattern=r"^urn:repro:bundle:")] = Field(alias="buildType")
    """Which kind of run it was."""
    external: dict[str, Any] = Field(alias="externalParameters")
    """The command's parameters."""
    internal: dict[str, Any] | None = Field(None, alias="internalParameters")
    """Parameters that follow."""
    resolved: list[Resource] = Field(alias="resolvedDependencies")
    """Every text that went in."""


class Builder(Record):
    """The program that ran."""

    id: str
    """Its name."""
    version: dict[str, str] = {}
    """Its version."""


class Metadata(Record):
    """When it ran."""

    invocation: Any = Field(alias="invocationId")
    """The bundle's name."""
    started: Any = Field(alias="startedOn")
    """UTC."""
    finished: Any = Field(alias="finishedOn")
    """UTC."""


class RunDetails(Record):
    """Who ran it, and when."""

    builder: Builder
    """The program that ran."""
    metadata: Metadata
    """When it ran."""


class Predicate(Record):
    """The provenance."""

    definition: BuildDefinition = Field(alias="buildDefinition")
    """What went in."""
    details: RunDetails = Field(alias="runDetails")
    """By which program, and when."""
    signature: Annotated[str, Field(pattern=r"^none: ")] = Field(alias="repro_signature")
    """That there is none, and why."""


class Statement(Record):
    """An in-toto Statement (v1) with SLSA provenance (v1), unsigned."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    """The format."""
    subject: list[Subject]
    """Every file of the bundle. Empty where the run ended before it wrote one."""
    predicate_type: Literal["https://slsa.dev/provenance/v1"] = Field(alias="predicateType")
    """The format of the predicate."""
    predicate: Predicate
    """The provenance."""
