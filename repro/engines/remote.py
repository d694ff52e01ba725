"""Records that a remote engine and the processes on its nodes (`node.py`) exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from repro import config
from repro.engines.agent import AgentJob
from repro.records.job import Job
from repro.system.digest import tree_digest


@dataclass(frozen=True)
class Node:
    """A node as it describes itself.

    id: a hash of the machine. stack: name -> version or hash of what must be equal on all nodes. gpus: UUID -> product
    and memory. cpus: processors. facts: of the engine that runs the jobs.
    """

    host: str
    id: str
    stack: dict[str, str]
    gpus: dict[str, str]
    cpus: int
    facts: dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What to run: `jobs`, `agent` with `secrets`, or `program`.

    stack, kinds: what the node must have; empty for anything. large: hashes of the files that follow the request.
    apart: job id -> file name -> hash of such a file. token: of the run; a file `stop-TOKEN` of the state folder
    ends it.
    """

    device: str
    stack: dict[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    jobs: tuple[Job, ...] = ()
    timeout_s: float = 0.0
    agent: AgentJob | None = None
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    program: str = ""
    large: tuple[str, ...] = ()
    apart: dict[str, dict[str, str]] = field(default_factory=dict)
    token: str = ""


def difference(stack: dict[str, str], expected: dict[str, str]) -> str:
    """Return how a node's stack differs from the expected one; empty if it does not."""
    return ", ".join(
        f"{name} {stack.get(name, 'is missing')} instead of {known}"
        for name, known in expected.items()
        if stack.get(name) != known
    )


def code() -> str:
    """Return a hash of this process's code."""
    return tree_digest(config.PACKAGE, "*.py")[:12]
