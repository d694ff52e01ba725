"""Runs jobs on the nodes of a Ray cluster: each job is a task with one GPU, run there by the node's own engine.

Ray places tasks and moves bytes. A node's process (`node.py`) runs the jobs with the docker or local engine, and its
leases decide which job may use a GPU. Ray never repeats a task: `Engine.run` starts a job again after a loss, and the
driver's bundle is the only place where rows are written.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import pickle
import socket
import threading
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from repro import config, errors
from repro.engines import ray_worker
from repro.engines.agent import AgentJob, AgentOutcome
from repro.engines.base import Attempt, Engine, Progress, Slots
from repro.engines.remote import Node, Request, code, difference
from repro.errors import EngineError, EngineGone, JobLost, PrerequisiteError, ReproError
from repro.records.job import Job
from repro.system import signals

config.quiet_ray()
import ray  # noqa: E402
from ray.exceptions import RayError  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

INNER = ("docker", "local")
# Files of a job that are larger travel as objects of Ray, each to a node once however many jobs need it.
LARGE_BYTES = 64 << 10
# Memory for objects of a cluster that this process starts for itself.
OBJECT_BYTES = 256 << 20
# Longest wait for a node to describe itself.
HELLO_S = 120.0
POLL_S = 1.0
# How long the head may not answer, and the cluster may have no node that may run jobs, before the run ends.
SILENT_S, EMPTY_S = 20.0, 120.0
RESUME = "Repeat the command with --resume, on this cluster or another one."


# What Ray's errors mean, in a line each.
LOSSES = {
    "WorkerCrashedError": "Ray's worker died",
    "NodeDiedError": "the node died",
    "OutOfMemoryError": "the node ran out of memory",
    "ObjectLostError": "an answer was lost with its node",
    "OwnerDiedError": "an answer was lost with its node",
    "ObjectStoreFullError": "the object store is full",
    "LocalRayletDiedError": "the node died",
    "TaskCancelledError": "the task was cancelled by another program",
}


class Refused(Exception):
    """A node cannot run jobs of this run."""

    def __init__(self, ray_id: str, host: str, why: EngineError) -> None:
        self.ray_id, self.host = ray_id, host
        super().__init__(str(why))


@dataclass(frozen=True)
class Placed:
    """A node of the cluster: Ray's id for it, and how it describes itself."""

    ray_id: str
    node: Node


class RayEngine(Engine):
    """Runs jobs on a Ray cluster.

    address: auto (the cluster that this machine belongs to), HOST:PORT, or local (a cluster of this machine alone).
    gpus: all, none, or a part of a product's name, which the GPUs of a node must have. say: prints a notice.
    """

    name = "ray"

    def __init__(
        self, *, gpus: str, device: str, address: str = "auto", say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.say = say
        self.inner = config.ray_inner()
        if self.inner and self.inner not in INNER:
            raise PrerequisiteError(f"RAY_INNER={self.inner}", f"a node runs jobs with {' or '.join(INNER)}")
        _connect(address)
        self.stopping, self.gone = threading.Event(), ""
        self._told = threading.Event()  # the stop is on its way to all nodes
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._running: set[Any] = set()  # streams of answers
        self._token, self._stops = uuid.uuid4().hex, list[Any]()
        self._objects: dict[str, Any] = {}  # hash -> a large file in the object store
        self._task, self._stopper = _remote()
        self.left_out: dict[str, str] = {}  # Ray's id of a node -> why it runs nothing
        found = self._nodes("all" if gpus == "none" or device == "cpu" else gpus)
        self.nodes = found
        owned = {uuid: kind for placed in found for uuid, kind in placed.node.gpus.items()}
        self._kinds = owned if device != "cpu" and gpus != "none" else {}
        self.device = "cuda" if self._kinds and device in ("auto", "cuda") else "cpu"
        if device == "cuda" and not self._kinds:
            raise PrerequisiteError("no GPU in the Ray cluster", f"{len(found)} nodes have none", "Use --device cpu.")
        self.contained = self.inner == "docker"
        self.stack = found[0].node.stack
        self.able_s = time.monotonic()  # when it was last seen that a node can run jobs
        watching = [threading.Thread(target=watch, args=(weakref.ref(self), self._closed), daemon=True)
                    for watch in (self._watch, self._look)]  # fmt: skip
        for each in watching:
            each.start()
        atexit.register(_close, self._closed, watching)

    # -- nodes

    def _nodes(self, gpus: str) -> list[Placed]:
        """Return the nodes that may run jobs; all others are in `left_out`, each with its reason."""
        alive = [node for node in ray.nodes() if node["Alive"]]
        able = [node for node in alive if node["Resources"].get("GPU") or node["Resources"].get("CPU")]
        inner = [self.inner] if self.inner else list(INNER)
        placed: list[Placed] = []
        for self.inner in inner:
            self.left_out = {}
            placed = self._described(able)
            if placed:
                break
        for one in placed if gpus != "all" else []:
            if not one.node.gpus or any(gpus.lower() not in kind.lower() for kind in one.node.gpus.values()):
                self.left_out[one.ray_id] = f"{one.node.host}: its GPUs are not {gpus}"
        placed = self._alike([one for one in placed if one.ray_id not in self.left_out])
        for why in self.left_out.values():
            self.say(f"a node is left out: {why}")
        if not placed:
            why = "; ".join(self.left_out.values()) or "it has no node with processors or GPUs"
            raise PrerequisiteError("no node of the Ray cluster can run jobs", why, "See docs/scale.md.")
        return sorted(placed, key=lambda one: one.ray_id)

    def _described(self, able: list[dict[str, Any]]) -> list[Placed]:
        """Ask nodes what they are, all at once."""
        strategies = {node["NodeID"]: NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in able}
        request = Request("cpu")
        asked = {ray_id: self._submit(request, num_cpus=0, num_gpus=0, scheduling_strategy=strategy)
                 for ray_id, strategy in strategies.items()}  # fmt: skip
        hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in able}
        found, until = [], time.monotonic() + HELLO_S
        for ray_id, stream in asked.items():
            try:
                found += [Placed(ray_id, parts[0]) for _, *parts in self._results(stream, lambda _: None, until)]
            except (ReproError, Refused) as error:
                self.left_out[ray_id] = f"{hosts[ray_id]}: {error}"
        return found

    def _alike(self, placed: list[Placed]) -> list[Placed]:
        """Return the nodes that run this process's code and the most common image or packages."""
        if not placed:
            return []
        stacks: Counter[tuple[tuple[str, str], ...]] = Counter()
        stacks.update(tuple(sorted(one.node.stack.items())) for one in placed)
        ours = [stack for stack in stacks if dict(stack)["repro"] == code()]
        common = max(ours, key=lambda stack: (stacks[stack], stack), default=(("repro", code()),))
        expected = dict(common)
        for one in placed:
            if differs := difference(one.node.stack, expected):
                self.left_out[one.ray_id] = f"{one.node.host}: {differs}"
        return [one for one in placed if one.ray_id not in self.left_out]

    def capacity(self) -> Slots:
        cpus = int(sum(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]))
        return Slots(tuple(self._kinds) if self.device == "cuda" else (), max(1, cpus), many=True)

    def kinds(self) -> dict[str, str]:
        return dict(self._kinds)

    def describe(self) -> dict[str, Any]:
        first = self.nodes[0].node.facts
        nodes = {one.node.id: {"gpus": sorted(one.node.gpus.values()), "cpus": one.node.cpus} for one in self.nodes}
        return first | {
            "engine": "ray", "inner": self.inner, "ray": ray.__version__, "stack": self.stack, "nodes": nodes,
            "left_out": sorted(why.partition(": ")[2] for why in self.left_out.values()),
        }  # fmt: skip

    # -- jobs

    def attempt(self, jobs: list[Job], timeout_s: float, progress: Progress) -> Attempt:
        request = self._request(jobs=tuple(jobs), timeout_s=timeout_s)
        for kind, *parts in self._answers(request, progress):
            if kind == "outcome":
                yield parts[0]
            elif kind == "ended":
                return str(parts[0])
        return "the run was stopped"

    def run_agent(self, job: AgentJob, secrets: dict[str, str], progress: Progress) -> AgentOutcome:
        request = self._request(agent=job, secrets=secrets)
        try:
            found: AgentOutcome | None = self._value(request, progress)
        except JobLost as error:
            return AgentOutcome(job.id, str(error), "infrastructure", str(error))
        return found or AgentOutcome(job.id, "the run was stopped", "stopped")

    def look(self, program: str) -> str:
        return str(self._value(self._request(program=program), lambda _: None))

    def _request(self, **what: Any) -> Request:
        kinds = tuple(sorted(set(self._kinds.values())))
        return Request(self.device, self.stack, kinds, token=self._token, **what)

    def _resources(self) -> dict[str, Any]:
        """Return what Ray gives to a task, and the nodes that it may not use."""
        found: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0} if self.device == "cuda" else {"num_cpus": 1}
        if self.left_out:
            found["label_selector"] = {"ray.io/node-id": f"!in({','.join(sorted(self.left_out))})"}
        return found

    def _submit(self, request: Request, **options: Any) -> Any:
        """Give a request to Ray; return the stream of its answers."""
        request, large = self._apart(request)
        message = pickle.dumps(request)
        try:
            stream = self._task.options(**options).remote(self.inner, config.python_path(), message, *large)
        except RayError as error:
            raise EngineGone("the Ray cluster does not answer", str(error), RESUME) from error
        with self._lock:
            self._running.add(stream)
        return stream

    def _apart(self, request: Request) -> tuple[Request, list[Any]]:
        """Return a request without its large files, and these as objects, each stored once in this run."""
        apart: dict[str, dict[str, str]] = {}
        jobs = []
        for job in request.jobs:
            big = {name: content for name, content in job.files.items() if len(content) > LARGE_BYTES}
            for name, content in big.items():
                digest = hashlib.sha256(content).hexdigest()
                with self._lock:
                    if digest not in self._objects:
                        self._objects[digest] = ray.put(content)
                apart.setdefault(job.id, {})[name] = digest
            jobs.append(replace(job, files={n: c for n, c in job.files.items() if n not in big}) if big else job)
        digests = tuple(sorted({digest for names in apart.values() for digest in names.values()}))
        return (replace(request, jobs=tuple(jobs), large=digests, apart=apart),
                [self._objects[digest] for digest in digests])  # fmt: skip

    def _value(self, request: Request, progress: Progress) -> Any:
        """Return the value of a request's last answer; None if the run was stopped. Raises as `_results`."""
        for kind, *parts in self._answers(request, progress):
            if kind == "ended":
                return parts[0]
        return None

    def _answers(self, request: Request, progress: Progress) -> Iterator[tuple[Any, ...]]:
        """Have some node serve a request; yield as `_results`. A node that differs is left out from then on."""
        while not self.stopping.is_set():
            try:
                with contextlib.closing(self._results(self._submit(request, **self._resources()), progress)) as results:
                    yield from results
                return
            except Refused as refused:
                with self._lock:
                    new = refused.ray_id not in self.left_out
                    self.left_out[refused.ray_id] = f"{refused.host}: {refused}"
                if new:
                    self.say(f"a node is left out: {refused.host}: {refused}")

    def _results(self, stream: Any, progress: Progress, until: float = float("inf")) -> Generator[tuple[Any, ...]]:
        """Yield the answers of a stream that are results; lines go to `progress`, with their node before them.

        Ends early if the run was stopped. Raises JobLost, Refused, EngineGone, and the error that the node raised.
        """
        ray_id = host = ""
        ended = False
        try:
            while not ended:
                message = self._next(stream, host, until)
                tag, body = message[:1], message[1:]
                if tag == b"":
                    return
                if tag == b"@":
                    ray_id, host = body.decode().split(" ", 1)
                    progress(f"{host}: started")
                    continue
                if tag == b"x":
                    raise JobLost(f"the process of repro on {host} ended", body.decode())
                kind, *parts = pickle.loads(body)  # noqa: S301 from our own process
                if kind == "step":
                    progress(f"{host}: {parts[0]}")
                elif kind == "failed":
                    ended = True
                    name, told = parts
                    if tag == b"-" or name == "Differs":
                        raise Refused(ray_id, host, EngineError(*told))
                    raise getattr(errors, name, EngineError)(*told)
                else:
                    ended = kind == "ended"
                    yield kind, *parts
        finally:
            with self._lock:
                self._running.discard(stream)

    def _next(self, stream: Any, host: str, until: float) -> bytes:
        """Return the next message of a stream; empty if the run was stopped. Raises JobLost, EngineGone."""
        while not self.gone:
            if not host and self._has_stopped():
                return b""  # whether it had begun or not, nothing of it runs
            try:
                ready, _ = ray.wait([stream], timeout=POLL_S)
                if ready:
                    message: bytes = ray.get(next(stream))
                    return message
            except StopIteration:
                if self.stopping.is_set():
                    return b""
                raise JobLost(f"a task on {host or 'a node'} ended without its last answer") from None
            except RayError as error:
                if self.stopping.is_set():
                    return b""
                why = LOSSES.get(type(error).__name__, str(error).strip().split("\n")[0][:200])
                raise JobLost(f"{type(error).__name__} on {host or 'a node'}", why) from None
            if time.monotonic() > until:
                raise EngineError(f"it did not answer within {HELLO_S:.0f} s")
        raise EngineGone("the Ray cluster went away", self.gone, RESUME)

    # -- the end

    def halt(self) -> None:
        self._stop("halt")

    def kill(self) -> None:
        self._stop("kill")

    def _stop(self, word: str) -> None:
        """Have every node end what it runs for this run, and start nothing more of it.

        Ray's own cancelling is not used: it ends the driver if a streaming task ends at the same moment.
        """
        self.stopping.set()
        if self.gone:  # Ray would wait for its head; the nodes see that their workers end
            return
        with contextlib.suppress(RayError):
            for node in ray.nodes():
                if node["Alive"]:
                    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                    self._stops.append(self._stopper.options(scheduling_strategy=there).remote(self._token, word))
        self._told.set()

    def _has_stopped(self) -> bool:
        """Whether every node has ended what it ran for this run."""
        if not self._told.is_set():
            return False
        stops = list(self._stops)
        return not stops or not ray.wait(stops, num_returns=len(stops), timeout=0)[1]

    @staticmethod
    def _watch(engine: weakref.ref[RayEngine], closed: threading.Event) -> None:
        """Look whether the cluster still answers. Runs in a thread until the engine is gone, and asks Ray nothing: Ray
        waits a minute for a head that died, then ends this process."""
        host, _, port = str(ray.get_runtime_context().gcs_address).rpartition(":")
        answered = time.monotonic()
        while not closed.is_set() and (here := engine()) is not None and not here.gone:
            now = time.monotonic()
            if _listens(host, int(port)):
                answered = now
            if now - answered > SILENT_S:
                signals.END_AT_ONCE.set()
                here.gone = f"its head has not answered for {SILENT_S:.0f} s"
            elif now - here.able_s > EMPTY_S:
                here.gone = f"it has had no node that can run jobs for {EMPTY_S:.0f} s"
            del here
            closed.wait(POLL_S)

    @staticmethod
    def _look(engine: weakref.ref[RayEngine], closed: threading.Event) -> None:
        """Note when the cluster last had a node that can run jobs. Runs in a thread until the engine is gone."""
        while not closed.is_set():
            with contextlib.suppress(Exception):
                alive = [node for node in ray.nodes() if node["Alive"]]
                if (here := engine()) is None or here.gone:
                    return
                kind = "GPU" if here.device == "cuda" else "CPU"
                if any(node["Resources"].get(kind) for node in alive if node["NodeID"] not in here.left_out):
                    here.able_s = time.monotonic()
                del here
            closed.wait(POLL_S)


def _connect(address: str) -> None:
    """Join a cluster, or start one of this machine. Raises PrerequisiteError."""
    if ray.is_initialized():
        return
    _mute()
    quiet = {"log_to_driver": False, "logging_level": "error"}
    try:
        if address == "local":
            ray.init("local", include_dashboard=False, object_store_memory=OBJECT_BYTES, **quiet)
        else:
            ray.init(address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, RayError, TimeoutError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise PrerequisiteError(
            f"no Ray cluster at {address}", reason,
            "Start one with `ray start --head`, or use --address local. See docs/scale.md.",
        ) from None  # fmt: skip


def _close(closed: threading.Event, watching: list[threading.Thread]) -> None:
    """Leave the cluster. Ray ends the process with a signal if a thread asks it something meanwhile."""
    closed.set()
    for each in watching:
        each.join(2 * POLL_S)
    ray.shutdown()


def _mute() -> None:
    """Keep Ray's pages on dead workers off the terminal: the rows and the progress say what was lost."""
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


def _remote() -> tuple[Any, Any]:
    """Return the task that serves a request, whose worker serves the next one too, and the one that stops a run."""
    ray.cloudpickle.register_pickle_by_value(ray_worker)
    serve = ray.remote(num_returns="streaming", max_retries=0, max_calls=0)(ray_worker.serve)
    return serve, ray.remote(num_cpus=0, max_retries=0)(ray_worker.stop)


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), POLL_S).close()
    except OSError:
        return False
    return True
