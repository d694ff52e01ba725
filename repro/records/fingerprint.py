"""A fingerprint: the description of the machine that produced rows."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from repro.records.base import Record, Text

Id = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
Device = Literal["cuda", "cpu"]


class Found(Record):
    """One value of a fingerprint."""

    value: Any
    """Null where there is none."""
    source: str
    """Where the value comes from: nvml, torch, host, …"""
    status: Text
    """ok, or why there is no value."""


class Value(Found):
    """One value with its class."""

    klass: Literal["I", "H", "C", "D", "V"] = Field(alias="class")
    """What a difference means: identity, hard, configuration, dynamic, version."""


class Known(Found):
    """A value of a manifest, which is never empty and ok."""

    @model_validator(mode="after")
    def _no_empty_ok(self) -> Self:
        if self.value is None and self.status == "ok":
            raise ValueError("an empty value is ok")
        return self


class Fingerprint(Record):
    """GPU, driver, software and container of the rows that name it."""

    schema_version: int = Field(ge=1)
    """Layout of the fingerprint."""
    taken: str
    """When it was taken, UTC."""
    device: Device
    """Where solutions ran."""
    sku_id: Id
    """Over the values of class H."""
    fingerprint_id: Id
    """Over classes H, C and V."""
    off_pin: dict[str, str]
    """Package -> version that differs from the pinned stack."""
    values: dict[str, Value]
    """Field -> what was found."""

    def value(self, name: str) -> Any:
        """Return the value of a field; None if there is none."""
        found = self.values.get(name)
        return found.value if found else None


class Stack(Record):
    """The software that decides the speed of torch and Triton."""

    torch: str = "?"
    """Version."""
    triton: str = "?"
    """Version."""
    cudnn: str = "?"
    """Version."""
    pinned: bool
    """Whether it is the pinned stack."""
    label: str
    """All of it in words."""
