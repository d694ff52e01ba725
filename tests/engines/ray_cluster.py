"""A Ray cluster of this machine for tests: a head without processors and some raylets as its nodes.

`python ray_cluster.py NODES` prints a line of JSON after its start and after each command that it reads:
{"address", "raylets": [pid, ...]}. Commands: `add` a node, `look` which are alive, `quit`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMORY = 80 << 20


class Nodes:
    """The cluster from the side of a test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address, self.raylets, self.pid = "", [], process.pid
        self._read()

    def _read(self) -> None:
        assert self._process.stdout is not None
        found = json.loads(self._process.stdout.readline())
        self.address, self.raylets = found["address"], found["raylets"]

    def ask(self, command: str) -> None:
        """Give a command and wait until it is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        self._read()


@contextlib.contextmanager
def cluster(nodes: int, tmp: Path) -> Iterator[Nodes]:
    """A cluster while the block runs. tmp: the temporary folder of everything that its nodes run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REPRO_", "RAY_"))}
    kept |= {name: os.environ[name] for name in ("REPRO_IMAGE",) if name in os.environ}
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "OMP_NUM_THREADS": "1"}
    own = {"TMPDIR": str(tmp), "REPRO_STATE": str(tmp / "state"), "RAY_TMPDIR": "/tmp", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        [sys.executable, __file__, str(nodes)], env=kept | quiet | own, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield Nodes(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def main(nodes: int) -> None:
    """Start a cluster and do what standard input says, until it ends."""
    from ray.cluster_utils import Cluster

    started = Cluster()
    options = {"object_store_memory": MEMORY, "include_dashboard": False}
    started.add_node(num_cpus=0, **options)

    def add() -> None:
        started.add_node(num_cpus=1, num_gpus=0, wait=False, **options)

    def look() -> None:
        alive = [node for node in started.worker_nodes if node.live_processes() and _raylet(node)]
        print(json.dumps({"address": started.address, "raylets": [_raylet(node) for node in alive]}), flush=True)

    def _raylet(node: Any) -> int:
        return next((process.pid for name, process in node.live_processes() if name == "raylet"), 0)

    for _ in range(nodes):
        add()
    started.wait_for_nodes()
    look()
    for line in sys.stdin:
        if line.strip() == "add":
            add()
        look()
    started.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
