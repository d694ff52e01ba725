"""A node of a cluster: how it describes itself, and how it runs a batch of jobs with an engine of its own."""

from __future__ import annotations

import os
import platform
import queue
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from repro import config
from repro.engines import machine
from repro.engines.base import Description, Engine
from repro.errors import EngineError, ReproError
from repro.fingerprint.query import hashed
from repro.records.job import Job, Outcome
from repro.system.digest import tree_digest
from repro.system.importing import version
from repro.system.procfs import place


class Differs(EngineError):
    """This node cannot run jobs, or its stack or GPU is not the one that the run is held to."""


@dataclass(frozen=True)
class Node:
    """A node as it describes itself.

    id: a hash of the machine. stack: name -> version or hash of what must be equal on all nodes. gpus: UUID -> product
    and memory. cpus: processors. engine: the description of the engine that runs the jobs.
    """

    host: str
    id: str
    stack: dict[str, str]
    gpus: dict[str, str]
    cpus: int
    engine: Description


@dataclass(frozen=True)
class Ended:
    """The last message of a batch: how its process or container ended, "" if well."""

    how: str


# A line of progress, an outcome, or the last message.
Message = str | Outcome | Ended


@dataclass
class Batch:
    """Jobs that run in one process or container of a node.

    inner: the engine that runs them. stack, kinds: what the node must have.
    """

    inner: str
    device: str
    stack: dict[str, str]
    kinds: frozenset[str]
    jobs: list[Job]
    timeout_s: float

    def run(self, gpu: str) -> Iterator[Message]:
        """Yield lines of progress, outcomes, and last how the jobs ended. gpu: an index, a UUID or none.

        Raises Differs, EngineError.
        """
        self._engine = engine(self.inner, gpu, self.device)
        self._over = threading.Event()
        here = describe(self._engine)
        if differs := difference(here.stack, self.stack):
            raise Differs(here.host, differs)
        if self.device == "cuda" and (others := set(here.gpus.values()) - self.kinds):
            raise Differs(here.host, f"a GPU {', '.join(others)} instead of {' or '.join(sorted(self.kinds))}")
        messages: queue.SimpleQueue[Message | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(messages,), daemon=True).start()
        while True:
            message = messages.get()
            if isinstance(message, Exception):
                raise message
            if isinstance(message, Outcome):
                message.node = here.id
            yield message
            if isinstance(message, Ended):
                return

    def _work(self, messages: queue.SimpleQueue[Message | Exception]) -> None:
        """Run the jobs. A thread of its own does, so that lines of progress are seen at once."""
        attempt = self._engine._attempt(self.jobs, self.timeout_s, messages.put)
        try:
            while True:
                messages.put(next(attempt))
        except StopIteration as end:
            messages.put(Ended(str(end.value)))
        except Exception as error:  # raised again by `run`
            messages.put(error)
        finally:
            self._over.set()

    def close(self, *, now: bool) -> None:
        """End the jobs, and return when nothing of them is left. now: kill everything at once."""
        self._engine.close(now=now)
        self._over.wait()


def engine(inner: str, gpus: str, device: str) -> Engine:
    """Return an engine of this node. Raises Differs if there is none."""
    config.leave_ray()
    try:
        return machine.FACTORIES[inner](gpus=gpus, device=device)
    except ReproError as error:
        raise Differs(socket.gethostname(), str(error)) from error


def describe(engine: Engine) -> Node:
    """Return what this node is."""
    host, facts = socket.gethostname(), engine.description
    gpus = dict(engine.capacity().gpus)
    cpus = len(os.sched_getaffinity(0))
    return Node(host, hashed(place().split(".")[0], host), _stack(facts), gpus, cpus, facts)


def _stack(facts: Description) -> dict[str, str]:
    """Return what must be equal on all nodes: this code, and the image or the packages that it uses."""
    if "image_id" in facts:
        digests = facts.get("repo_digests") or [facts["image_id"]]
        return {"repro": code(), "image": sorted(digests)[0].rpartition("@")[2]}
    packages = {name: version(name) or "none" for name in ("torch", "triton")}
    return {"repro": code(), "python": platform.python_version()} | packages


def difference(stack: dict[str, str], expected: dict[str, str]) -> str:
    """Return how a node's stack differs from the expected one; empty if it does not."""
    return ", ".join(
        f"{name} {stack.get(name, 'is missing')} instead of {known}"
        for name, known in expected.items()
        if stack.get(name) != known
    )


def code() -> str:
    """Return a hash of this process's code."""
    return tree_digest(config.PACKAGE)[:12]
