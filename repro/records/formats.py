"""Kernels as FlashInfer-Bench and SOL-ExecBench exchange them: definition, workload and solution.

Both write the same JSON. Fields that the judge does not need are kept unread.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from repro.records.base import Record, Text

_Name = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
_FileName = Annotated[str, Field(pattern=r"^\w[\w.+-]*$")]
_Path = Annotated[str, Field(pattern=r"^\w[\w=+-]*([./][\w=+-]+)*$")]


class Axis(Record):
    """A dimension: constant, given by each workload, or an expression of others."""

    value: int | None = None
    """Size of a constant one."""
    expression: str = ""
    """Arithmetic of others."""


class Tensor(Record):
    """An input or output."""

    shape: list[str | int] | None
    """Names of axes, or numbers; null for a Python number."""
    dtype: str
    """torch's name of its dtype."""


class Definition(Record):
    """What a kernel computes: its axes, inputs and outputs, and a reference in Python."""

    name: _FileName
    """What solutions and traces name it by."""
    axes: dict[_Name, Axis]
    """Name -> dimension."""
    inputs: dict[_Name, Tensor]
    """Name -> input, in the order of a call."""
    outputs: dict[_Name, Tensor]
    """Name -> output, in the order of a call."""
    reference: Text
    """Python source with a function `run`."""
    custom_inputs_entrypoint: _Name | None = None
    """Function of the reference that makes `custom` inputs."""


class Given(Record):
    """Where a workload takes one input from."""

    type: Literal["random", "scalar", "safetensors", "custom"]
    """Drawn, written here, in a file, or made by the definition."""
    value: bool | int | float | None = None
    """Of a scalar."""
    path: _Path = "none"
    """The safetensors file, below a folder around the definition."""
    tensor_key: str = ""
    """The tensor's name there."""


class Line(Record):
    """A workload as a line of their files."""

    uuid: _FileName = "0"
    """What traces name it by."""
    axes: dict[_Name, int]
    """Variable axis -> size."""
    inputs: dict[_Name, Given] = {}
    """Input -> where it is from; random by default."""

    @property
    def tensors(self) -> dict[str, Given]:
        """Return the inputs that are in files."""
        return {name: given for name, given in self.inputs.items() if given.type == "safetensors"}


class File(Record):
    """One source file."""

    path: str
    """Path in the solution."""
    content: str
    """Its text."""


class Spec(Record):
    """How a solution is built and called."""

    entry_point: str
    """`FILE::FUNCTION`."""
    destination_passing_style: bool = True
    """Whether outputs are its last arguments, to be filled."""
    compile_options: dict[str, list[str]] | None = None
    """Kind of flag -> flags of C++ and CUDA."""


class Solution(Record):
    """An implementation of a definition."""

    name: Text
    """What traces name it by."""
    definition: _FileName
    """The definition that it implements."""
    spec: Spec
    """How it is built and called."""
    sources: list[File]
    """Its files."""
