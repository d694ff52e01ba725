"""`repro node INNER`: the process by which a remote engine runs jobs on this machine, with the engine INNER.

Messages are pickled, because both sides run the same trusted code; a solution never reaches them. A request comes on
standard input as several: the GPU that was given, a `Request`, and the files that it names in `large`. Requests are
served one after another. Answers go to standard output as tuples:

("step", line)              what happens now
("outcome", Outcome)        a job has ended
("ended", value)            the last answer of a request: how the process or container ended, an AgentOutcome, or a text
("failed", class, parts)    the last answer of a request that raised an error of `repro.errors`

The first answer, before any request, is ("node", Node) or ("failed", ...). At the end of standard input, which comes
when the process that started this one dies, everything that runs is killed and removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import platform
import queue
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from repro import config
from repro.engines import registry, resources
from repro.engines.base import Engine
from repro.engines.remote import Node, Request, code, difference
from repro.errors import EngineError, PrerequisiteError, ReproError
from repro.fingerprint.entry import hashed
from repro.system import removal
from repro.system.importing import version
from repro.system.prctl import PR_SET_CHILD_SUBREAPER, prctl
from repro.system.procfs import alive, descendants, kill, owner, place

# Time that a killed job gets to remove its folder or container.
LAST_S = 30.0
# How often a node looks whether a run was stopped, and how long such a notice is kept.
STOP_S, NOTICE_S = 0.25, 24 * 3600.0
FOLDER = "repro-node-"
LAST_ANSWERS = ("ended", "failed")


class Differs(EngineError):
    """This node's stack or GPU is not the one that the run is held to."""


def describe(engine: Engine) -> Node:
    """Return what this node is."""
    facts = engine.describe()
    return Node(
        socket.gethostname(), hashed(place().split(".")[0], socket.gethostname()), _stack(facts), engine.kinds(),
        len(os.sched_getaffinity(0)), facts,
    )  # fmt: skip


def _stack(facts: dict[str, Any]) -> dict[str, str]:
    """Return what must be equal on all nodes: this code, and the image or the packages that it uses."""
    found = {"repro": code()}
    if "image_id" in facts:
        digests = facts.get("repo_digests") or [facts["image_id"]]
        return found | {"image": sorted(digests)[0].rpartition("@")[2]}
    return found | {"python": platform.python_version()} | {n: version(n) or "none" for n in ("torch", "triton")}


class Server:
    """The engine of this node, and the two ends of its connection."""

    def __init__(self, inner: str) -> None:
        self.inner = inner
        self._requests, self._answers = _streams()
        self._queue: queue.SimpleQueue[tuple[str, Request] | None] = queue.SimpleQueue()
        self._engine: Engine | None = None
        self._here: Node | None = None
        self._stopped = False

    def serve(self) -> int:
        """Answer requests until standard input ends; return the exit code."""
        try:
            self._engine = registry.FACTORIES[self.inner](gpus="all", device="auto")
            self._here = describe(self._engine)
            self.answer("node", self._here)
        except ReproError as error:
            self.answer("failed", type(error).__name__, (error.what, error.why, error.remedy))
            return 0
        threading.Thread(target=self._listen, daemon=True).start()
        while (asked := self._queue.get()) is not None:
            served = threading.Event()
            try:
                # a run that was stopped has ended on this node: the engine starts nothing more, so neither does it
                watching = threading.Thread(target=self._watch, args=(asked[1].token, served), daemon=True)
                watching.start()
                with _holds(asked[1].token):
                    for answer in self._served(*asked, self._engine, self._here):
                        self.answer(*answer)
            except ReproError as error:
                self.answer("failed", type(error).__name__, (error.what, error.why, error.remedy))
            finally:
                served.set()
            if self._stopped:
                return 0
        return 0

    def _watch(self, token: str, served: threading.Event) -> None:
        """End what runs for a run as soon as that is stopped."""
        file, word = config.state_dir() / f"stop-{token}", ""
        while token and word != "kill" and not served.wait(STOP_S):
            with contextlib.suppress(OSError):
                now = file.read_text()
                if now != word and self._engine is not None:
                    word, self._stopped = now, True
                    (self._engine.kill if now == "kill" else self._engine.halt)()

    def answer(self, *parts: Any) -> None:
        """Send an answer. The first byte says whether it is the last one of its request."""
        last = parts[0] in LAST_ANSWERS
        try:
            self._answers.send_bytes((b"!" if last else b".") + pickle.dumps(parts))
        except OSError:  # the other side has died, which `_listen` sees too
            return

    def _listen(self) -> None:
        """Take requests from standard input. Its end ends this process, whatever runs."""
        while True:
            try:
                self._queue.put(self._request())
            except (EOFError, OSError):
                break
        assert self._engine is not None
        self._engine.kill()
        self._queue.put(None)
        late = threading.Timer(LAST_S, lambda: os._exit(1))
        late.daemon = True
        late.start()

    def _request(self) -> tuple[str, Request]:
        """Return the next request, and the GPU that was given for it or "". Raises EOFError at the end."""
        gpu = self._requests.recv_bytes().decode()
        request: Request = pickle.loads(self._requests.recv_bytes())  # noqa: S301 from our own engine
        large = {digest: self._requests.recv_bytes() for digest in request.large}
        jobs = [replace(job, files=job.files | {name: large[digest] for name, digest in request.apart[job.id].items()})
                if job.id in request.apart else job for job in request.jobs]  # fmt: skip
        return gpu, replace(request, jobs=tuple(jobs))

    def _served(self, gpu: str, request: Request, engine: Engine, here: Node) -> Iterator[tuple[Any, ...]]:
        """Yield the answers to a request. Raises ReproError."""
        if request.token and (config.state_dir() / f"stop-{request.token}").exists():
            raise EngineError("the run was stopped")
        if differs := difference(here.stack, request.stack):
            raise Differs(here.host, differs)
        engine = _with_device(engine, gpu, request, here)
        if request.program:
            yield "ended", engine.look(request.program)
        elif request.agent is not None:
            yield "ended", engine.run_agent(request.agent, request.secrets, lambda line: self.answer("step", line))
        elif request.jobs:
            attempt = engine.attempt(list(request.jobs), request.timeout_s, lambda line: self.answer("step", line))
            while True:
                try:
                    outcome = next(attempt)
                except StopIteration as end:
                    yield "ended", end.value
                    return
                outcome.node = here.id
                yield "outcome", outcome
        else:
            yield "ended", here


@contextlib.contextmanager
def _holds(token: str) -> Iterator[None]:
    """Hold the lock of a run, for which `ray_worker.stop` waits on this machine."""
    if not token:
        yield
        return
    with (config.shared_state() / f"runs-{token}").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        yield


def _with_device(engine: Engine, gpu: str, request: Request, here: Node) -> Engine:
    """Return the engine with one GPU alone, or without one. gpu: an index or a UUID. Raises Differs."""
    if request.device != "cuda" or not gpu:
        return engine.bound("")
    known = resources.visible()
    uuid = known[int(gpu)] if gpu.isdigit() and int(gpu) < len(known) else gpu
    if uuid not in here.gpus:
        raise Differs(here.host, f"it has no GPU {gpu}: NVML shows {len(known)}")
    if request.kinds and here.gpus[uuid] not in request.kinds:
        raise Differs(here.host, f"a GPU {here.gpus[uuid]} instead of {' or '.join(request.kinds)}")
    return engine.bound(uuid)


def _streams() -> tuple[Connection, Connection]:
    """Return the connection's ends, and make both standard streams harmless for everything else."""
    requests, answers = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return Connection(requests, writable=False), Connection(answers, readable=False)


def _sweep() -> None:
    """Remove folders and containers of node processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        of = folder.name.removeprefix(FOLDER)
        if of.startswith(f"{place()}-") and not alive(of):
            removal.remove(folder)
    for pattern in ("stop-*", "runs-*"):
        for notice in config.state_dir().glob(pattern):
            with contextlib.suppress(OSError):
                if time.time() - notice.stat().st_mtime > NOTICE_S:
                    notice.unlink()


def main(inner: str) -> int:
    """Serve standard input with the engine `inner`."""
    if inner not in registry.FACTORIES:
        raise PrerequisiteError(f"no engine {inner!r} on a node")
    if os.fork():  # Ray kills the children of a worker that ends, but this process must outlive it
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM):  # the end of standard input ends this process, and in order
        signal.signal(number, lambda *_: None)  # not ignored, which children would inherit
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a killed job leaves becomes a child of this process, which kills it
    _sweep()
    own = Path(tempfile.gettempdir()) / f"{FOLDER}{owner()}"
    config.keep_state()
    own.mkdir(0o711)
    tempfile.tempdir = str(own)
    server = Server(inner)  # its connection closes after everything is removed
    try:
        return server.serve()
    finally:
        kill(descendants(os.getpid())[1:])
        removal.remove(own)
