"""What a Ray worker does for a job: it passes messages between the driver and the node's own process (`node.py`).

Ray sends this module's functions by value. It therefore uses the standard library and Ray alone, so that it also works
on a node where repro is missing or another release, and can report that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

# Time that the node's process gets to kill and remove what runs, after its standard input was closed.
CLOSE_S = 40.0
# The process of this worker, which serves job after job: starting one takes half a second.
_kept: list[Any] = []


def serve(inner: str, path: str, request: bytes, *large: bytes) -> Iterator[bytes]:
    """Pass a request on and yield its answers, each with a byte that says which it is.

    `@` the node: Ray's id and the host name. `.` and `!` an answer of the node's process, the latter for the last one.
    `-` its refusal to start, pickled. `x` how it ended, if it ended before its last answer. inner: the engine on the
    node. path: where the driver found its modules.
    """
    yield f"@{_node_id()} {socket.gethostname()}".encode()
    try:
        process = _process(inner, path)
        if process.hello[:1] == b"!":
            _close()
            yield b"-" + process.hello[1:]
            return
        for message in (_gpu().encode(), request, *large):
            process.requests.send_bytes(message)
        last = False
        while not last:
            answer = process.answers.recv_bytes()
            last = answer[:1] == b"!"
            yield answer
    except (EOFError, OSError) as error:
        ending = _close() or str(error)
        yield b"x" + ending.encode()
    except BaseException:  # cancelled: Ray raises KeyboardInterrupt; nothing may run on when this returns
        _close()
        raise


def stop(token: str, word: str) -> None:
    """Have the nodes' processes on this machine end what they run for a run; return when they have. word: halt or kill.

    A process that serves the run holds a lock on the file `runs-TOKEN` and takes it before it looks for the notice.
    """
    folder = os.environ.get("REPRO_STATE") or os.path.join(tempfile.gettempdir(), "repro-state")
    os.makedirs(folder, exist_ok=True)
    with contextlib.suppress(PermissionError):  # another user's, which `config.shared_state` has opened to all
        os.chmod(folder, 0o1777)  # noqa: S103
    with open(os.path.join(folder, f"stop-{token}"), "w") as stream:
        stream.write(word)
    with open(os.path.join(folder, f"runs-{token}"), "a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)


class _Node:
    """The node's process, with the file of its errors and its first answer, which describes the node.

    It is a child of `child`, which ends at once: Ray kills the children of a worker that ends.
    """

    def __init__(self, inner: str, path: str) -> None:
        environment = _environment() | {"PYTHONPATH": os.pathsep.join(filter(None, (*sys.path, path)))}
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.child = subprocess.Popen(
            [sys.executable, "-P", "-m", "repro", "node", inner],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=environment, start_new_session=True,
        )  # fmt: skip
        assert self.child.stdin is not None and self.child.stdout is not None
        self.requests = Connection(os.dup(self.child.stdin.fileno()), readable=False)
        self.answers = Connection(os.dup(self.child.stdout.fileno()), writable=False)
        self.child.stdin.close()
        self.child.stdout.close()
        self.hello = b""

    def close(self) -> str:
        """End the process in order, and return how it ended. It ends by itself, at the latest after a while."""
        self.requests.close()
        late = time.monotonic() + CLOSE_S
        with contextlib.suppress(EOFError, OSError):
            while self.answers.poll(max(0.0, late - time.monotonic())):
                self.answers.recv_bytes()
        self.answers.close()
        self.child.wait()
        self.errors.seek(0)
        with self.errors:
            tail = self.errors.read().decode(errors="replace").strip().splitlines()[-1:]
        return tail[0] if tail else "it was killed"


def _environment() -> dict[str, str]:
    """Return this process's environment, with what Ray sets for tasks as it was when the node was started."""
    found = dict(os.environ)
    with open(f"/proc/{os.getppid()}/environ", "rb") as stream:
        entries = stream.read().decode(errors="replace").split("\0")
    before = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        found.pop(name, None)
        if name in before:
            found[name] = before[name]
    return found


def _process(inner: str, path: str) -> _Node:
    """Return the node's process, started if there is none. `hello` is its first answer."""
    if not _kept:
        node = _Node(inner, path)
        _kept.append(node)
        node.hello = node.answers.recv_bytes()
    found: _Node = _kept[0]
    return found


def _close() -> str:
    """End the node's process, if there is one; return how it ended."""
    return _kept.pop().close() if _kept else ""


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _gpu() -> str:
    """Return the GPU that Ray gave to this task, as its index or UUID; empty if none."""
    import ray

    given = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    return str(given[0]) if given else ""
