"""statement.json: an in-toto Statement (v1) with SLSA provenance (v1), unsigned."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from repro.records.base import Record

_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{40,64}$")]
Digest = Annotated[dict[Literal["sha256", "gitCommit", "dirHash"], _Hex], Field(min_length=1)]


class Resource(Record):
    """A file, package or checkout with its hash."""

    name: str | None = Field(None, description="Its name.")
    uri: str | None = Field(None, description="Where it comes from.")
    digest: Digest = Field(description="Kind of hash -> hash.")
    annotations: dict[str, Any] | None = Field(None, description="What else is known of it.")


class Subject(Resource):
    """A file of the bundle."""

    name: str = Field(description="Its name.")


class BuildDefinition(Record):
    """What went in."""

    build_type: Annotated[str, Field(pattern=r"^urn:repro:bundle:")] = Field(
        alias="buildType", description="Which kind of run it was."
    )
    external: dict[str, Any] = Field(alias="externalParameters", description="The command's parameters.")
    internal: dict[str, Any] | None = Field(None, alias="internalParameters", description="Parameters that follow.")
    resolved: list[Resource] = Field(alias="resolvedDependencies", description="Every text that went in.")


class Builder(Record):
    """The program that ran."""

    id: str = Field(description="Its name.")
    version: dict[str, str] = Field(default_factory=dict, description="Its version.")


class Metadata(Record):
    """When it ran."""

    invocation: Any = Field(alias="invocationId", description="The bundle's name.")
    started: Any = Field(alias="startedOn", description="UTC.")
    finished: Any = Field(alias="finishedOn", description="UTC.")


class RunDetails(Record):
    """Who ran it, and when."""

    builder: Builder = Field(description="The program that ran.")
    metadata: Metadata = Field(description="When it ran.")


class Predicate(Record):
    """The provenance."""

    definition: BuildDefinition = Field(alias="buildDefinition", description="What went in.")
    details: RunDetails = Field(alias="runDetails", description="By which program, and when.")
    signature: Annotated[str, Field(pattern=r"^none: ")] = Field(
        alias="repro_signature", description="That there is none, and why."
    )


class Statement(Record):
    """An in-toto Statement (v1) with SLSA provenance (v1), unsigned."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type", description="The format.")
    subject: list[Subject] = Field(
        description="Every file of the bundle. Empty where the run ended before it wrote one."
    )
    predicate_type: Literal["https://slsa.dev/provenance/v1"] = Field(
        alias="predicateType", description="The format of the predicate."
    )
    predicate: Predicate = Field(description="The provenance.")
