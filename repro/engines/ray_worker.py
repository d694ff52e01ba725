"""The Ray actor that runs jobs on a node of a cluster, by the node's own copy of repro.

Ray sends this module by value. At its top it imports the standard library alone, so that a node where repro is missing,
or is another release, can report that.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from typing import Any


class Worker:
    """Runs one batch of jobs. `close` may be called while `run` goes on."""

    def __init__(self, path: list[str]) -> None:
        """path: where the driver finds its modules."""
        sys.path += [folder for folder in path if folder not in sys.path]
        self._batch: Any = None

    def describe(self, inner: str) -> Any:
        """Return what this node is. inner: the engine that runs jobs here."""
        from repro.engines import node

        return node.describe(node.engine(inner, "all", "auto"))

    def run(self, batch: Any) -> Iterator[Any]:
        """Yield Ray's id of this node with its host name, and then what `Batch.run` yields."""
        import ray

        context = ray.get_runtime_context()
        yield context.get_node_id(), socket.gethostname()
        self._batch = batch
        yield from batch.run(str(next(iter(context.get_accelerator_ids().get("GPU", [])), "none")))

    def close(self, now: bool) -> None:
        """End the jobs, and return when they have ended. now: kill everything at once."""
        if self._batch is not None:
            self._batch.close(now=now)
