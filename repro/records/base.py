"""The base of all records: pydantic models of what crosses a process or a file.

Fields are strict: a number in a string is no number. A key that a model does not know is kept when a file is read,
because a newer release may have added it. It is refused when we write (`written`). A number that JSON cannot hold is
stored as "inf", "-inf" or "nan" (`system.jsonio`); a `Number` reads these as floats.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from repro.errors import printable
from repro.system import jsonio
from repro.system.jsonio import Json

NON_FINITE = ("inf", "-inf", "nan")
_SHOWN = 5


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and value in NON_FINITE else value


Number = Annotated[
    float,
    BeforeValidator(_number),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": list(NON_FINITE)}]}),
]
# A whole number stays one when it is written again.
Amount = int | float
Time = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ShortHash = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
# A time or a ratio: what is divided by, and whose logarithm is taken.
Positive = Annotated[Number, Field(gt=0, le=1e300)]
PositivePair = Annotated[list[Positive], Field(min_length=2, max_length=2)]
Pair = Annotated[list[Number], Field(min_length=2, max_length=2)]
Text = Annotated[str, Field(min_length=1)]


class Record(BaseModel):
    """A record. Equal records have equal fields; none can be changed. The text below a field describes it."""

    model_config = ConfigDict(
        strict=True,
        extra="allow",
        frozen=True,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def written(cls, data: Any) -> Self:
        """Return the record of plain data that we are about to write, as a reader will see it.

        Raises ValidationError if a key is unknown, or a value is not of its field's type.
        """
        return cls.model_validate(jsonio.strict(data), extra="forbid")

    def to_json(self) -> Json:
        """Return plain data with the keys that the record was made with."""
        return self.model_dump(exclude_unset=True)


def held(model: type[Record], value: Any) -> Any:
    """Return a value as it is, once a record holds it; None too. Raises ValueError with its faults."""
    try:
        model.model_validate({} if value is None else value)
    except ValidationError as error:
        raise ValueError("; ".join(faults(error))) from error
    return value


# Longer texts are cut where they are drawn.
_MOST_CHARS = 5000


def _shown(value: Any) -> Any:
    """Return a value whose texts are safe to show. Records in a list look after their own."""
    if isinstance(value, str):
        return printable(value if len(value) <= _MOST_CHARS else f"{value[:_MOST_CHARS]}…")
    if isinstance(value, list | tuple):
        return [inner if isinstance(inner, dict) else _shown(inner) for inner in value]
    if isinstance(value, dict):
        return {key: _shown(inner) if isinstance(inner, str) else inner for key, inner in value.items()}
    return value


def _lines(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


class Drawn(Record):
    """A record that is drawn on a terminal or a page: its texts have no control characters. Those of other fields than
    `several_lines` have one line."""

    several_lines: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _safe(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: _lines(value) if name in cls.several_lines else _shown(value) for name, value in data.items()}


def faults(error: ValidationError) -> list[str]:
    """Return the faults of a record: at most _SHOWN, each with the path of its field, and how many more there are."""
    told = [
        f"{'/'.join(map(str, fault['loc'])) or error.title}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False)
    ]
    return told[:_SHOWN] + ([f"and {len(told) - _SHOWN} more"] if len(told) > _SHOWN else [])
