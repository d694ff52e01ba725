"""Runs jobs on the nodes of a Ray cluster: each batch is an actor with one GPU, which uses the node's own engine.

Ray places actors, moves bytes and notices what dies. The node's leases decide which job may use a GPU. Ray never
repeats anything: `Engine.submit` starts a job again after a loss, and the driver's bundle is the only place where rows
are written.
"""

from __future__ import annotations

import atexit
import contextlib
import socket
import threading
import time
from collections.abc import Collection, Iterator
from typing import Any

from repro import config
from repro.engines import ray_worker
from repro.engines.base import Attempt, Engine, Progress, Slots
from repro.engines.node import Batch, Differs, Ended, Node, code, difference
from repro.errors import EngineGone, JobLost, PrerequisiteError, ReproError
from repro.records.job import Job, Outcome
from repro.system import signals

config.quiet_ray()
import ray  # noqa: E402
from ray.exceptions import RayError, RayTaskError  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

_INNER = ("docker", "local")
# Memory for objects of a cluster that this process starts for itself.
_OBJECT_BYTES = 256 << 20
# Longest wait for a node to describe itself, and for the jobs of a node to end.
_HELLO_S, _LAST_S = 120.0, 60.0
_POLL_S = 0.5
# How long the head may not answer. Ray itself would wait a minute, and then end this process.
_SILENT_S = 20.0


class RayEngine(Engine):
    """Runs jobs on a Ray cluster.

    address: auto (the cluster that this machine belongs to), HOST:PORT, or local (a cluster of this machine alone).
    gpus: all, none, or a part of a product's name, which the GPUs of a node must have. say: prints a notice.
    """

    name = "ray"

    def __init__(self, *, gpus: str, device: str, address: str = "auto", say: Progress = lambda _: None) -> None:
        _connect(address)
        ray.cloudpickle.register_pickle_by_value(ray_worker)
        self._worker: Any = ray.remote(max_restarts=0, max_concurrency=2)(ray_worker.Worker)
        self._say = say
        self._stopping, self._now, self._gone = threading.Event(), False, False
        self._left_out: dict[str, str] = {}  # Ray's id of a node -> why it runs nothing
        nodes = self._nodes("all" if gpus == "none" or device == "cpu" else gpus)
        timed = nodes if device != "cpu" and gpus != "none" else []
        self._gpus = {uuid: kind for node in timed for uuid, kind in node.gpus.items()}
        self.device = "cuda" if self._gpus else "cpu"
        if device == "cuda" and not self._gpus:
            raise PrerequisiteError("no GPU in the Ray cluster", f"{len(nodes)} nodes have none", "Use --device cpu.")
        self.contained = self._inner == "docker"
        self._stack = nodes[0].stack
        self.description = nodes[0].engine | {
            "engine": "ray",
            "inner": self._inner,
            "ray": ray.__version__,
            "stack": self._stack,
            "nodes": {node.id: {"gpus": sorted(node.gpus.values()), "cpus": node.cpus} for node in nodes},
            "left_out": sorted(why.partition(": ")[2] for why in self._left_out.values()),
        }

    # -- nodes

    def _nodes(self, product: str) -> list[Node]:
        """Return the nodes that may run jobs, by the engine that they run them with; say why others are left out.

        product: a part of the name that their GPUs must have, or all. Raises PrerequisiteError if there is none.
        """
        wanted = config.ray_inner()
        if wanted and wanted not in _INNER:
            raise PrerequisiteError(f"RAY_INNER={wanted}", f"a node runs jobs with {' or '.join(_INNER)}")
        nodes = []
        for self._inner in [wanted] if wanted else _INNER:
            self._left_out = {}
            nodes = self._alike(self._described(), product)
            if nodes:
                break
        for why in self._left_out.values():
            self._say(f"a node is left out: {why}")
        if not nodes:
            why = "; ".join(self._left_out.values()) or "it has no node with processors or GPUs"
            raise PrerequisiteError("no node of the Ray cluster can run jobs", why, "See docs/scale.md.")
        return nodes

    def _described(self) -> dict[str, Node]:
        """Ask all nodes at once what they are; those that do not answer are left out."""
        able = _able(())
        workers = {
            ray_id: self._start(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(ray_id, soft=False))
            for ray_id in able
        }
        asked = {ray_id: worker.describe.remote(self._inner) for ray_id, worker in workers.items()}
        described = {}
        until = time.monotonic() + _HELLO_S
        for ray_id, answer in sorted(asked.items()):
            try:
                described[ray_id] = ray.get(answer, timeout=max(0.0, until - time.monotonic()))
            except RayError as error:
                self._left_out[ray_id] = f"{able[ray_id]}: {_reason(error)}"
            ray.kill(workers[ray_id])
        return described

    def _alike(self, nodes: dict[str, Node], product: str) -> list[Node]:
        """Return the nodes with GPUs of a product, this process's code and the most common image or packages."""
        stacks = [node.stack for node in nodes.values() if node.stack["repro"] == code()]
        common = max(stacks, key=lambda stack: (stacks.count(stack), sorted(stack.items())), default={"repro": code()})
        for ray_id, node in nodes.items():
            if why := difference(node.stack, common) or _other_product(node, product):
                self._left_out[ray_id] = f"{node.host}: {why}"
        return [node for ray_id, node in nodes.items() if ray_id not in self._left_out]

    def capacity(self) -> Slots:
        cpus = int(sum(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]))
        return Slots(self._gpus if self.device == "cuda" else {}, max(1, cpus), many=True)

    # -- jobs

    def _start(self, **options: Any) -> Any:
        return self._worker.options(**options).remote(config.python_path().split(":"))

    def _attempt(self, jobs: list[Job], timeout_s: float, progress: Progress) -> Attempt:
        batch = Batch(self._inner, self.device, self._stack, frozenset(self._gpus.values()), jobs, timeout_s)
        place: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0} if self.device == "cuda" else {"num_cpus": 1}
        if self._left_out:
            place["label_selector"] = {"ray.io/node-id": f"!in({','.join(sorted(self._left_out))})"}
        worker = self._start(**place)
        ray_id = host = ""
        ended = None
        progress("waiting for a node")
        try:
            for message in self._messages(worker.run.options(num_returns="streaming").remote(batch)):
                match message:
                    case Outcome():
                        yield message
                    case Ended():
                        ended = message
                    case str():
                        progress(f"{host}: {message}")
                    case _:
                        ray_id, host = message
                        progress(f"{host}: started")
        except RayError as error:
            if self._stopping.is_set():
                return "the run was stopped"
            raise self._meant(error, ray_id, host) from error
        finally:
            self._end(worker, waits=bool(host) and ended is None)
        return ended.how if ended is not None else "the run was stopped"

    def _messages(self, stream: Any) -> Iterator[Any]:
        """Yield the messages of a batch until it ends or the run is stopped. Raises RayError, EngineGone."""
        head, _, port = str(ray.get_runtime_context().gcs_address).rpartition(":")
        answered = time.monotonic()
        while not self._stopping.is_set():
            if ray.wait([stream], timeout=_POLL_S)[0]:
                try:
                    yield ray.get(next(stream))
                except StopIteration:
                    return
            try:
                socket.create_connection((head, int(port)), _POLL_S).close()
                answered = time.monotonic()
            except OSError:
                if time.monotonic() - answered <= _SILENT_S:
                    continue
                self._gone = True
                signals.END_AT_ONCE.set()
                why = f"its head has not answered for {_SILENT_S:.0f} s"
                remedy = "Repeat the command with --resume, on this cluster or another one."
                raise EngineGone("the Ray cluster went away", why, remedy) from None

    def _meant(self, error: RayError, ray_id: str, host: str) -> ReproError:
        """Return what an error of Ray means for a batch of jobs. A node that differs runs nothing from then on."""
        cause = error.cause if isinstance(error, RayTaskError) else None
        if isinstance(cause, Differs):
            self._say(f"a node is left out: {cause}")
            self._left_out[ray_id] = str(cause)
            if not _able(self._left_out):
                return EngineGone("no node of the Ray cluster can run jobs any more", str(cause))
        elif isinstance(cause, ReproError):
            return cause
        return JobLost(f"{type(error).__name__} on {host or 'a node'}", _reason(error))

    def _end(self, worker: Any, *, waits: bool) -> None:
        """End a worker. waits: its jobs have not ended, and this returns when nothing of them is left."""
        if self._gone:  # Ray would wait for its head; the nodes see that this process ends
            return
        with contextlib.suppress(RayError):
            if waits:
                ray.get(worker.close.remote(self._now), timeout=_LAST_S)
        with contextlib.suppress(RayError):
            ray.kill(worker)

    def close(self, *, now: bool = False) -> None:
        """Have the threads that wait for nodes end what runs there: each ends its own worker."""
        self._now = now
        self._stopping.set()


def _able(left_out: Collection[str]) -> dict[str, str]:
    """Return Ray's id -> host name of the living nodes that have processors or GPUs, and are not left out."""
    alive = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in left_out]
    return {n["NodeID"]: n["NodeManagerHostname"] for n in alive if {"CPU", "GPU"} & n["Resources"].keys()}


def _other_product(node: Node, product: str) -> str:
    """Return that a node has other GPUs than a product's; empty if it has those, or all may be used."""
    alike = bool(node.gpus) and all(product.lower() in kind.lower() for kind in node.gpus.values())
    return "" if product == "all" or alike else f"its GPUs are not {product}"


def _reason(error: RayError) -> str:
    """Return why, in one line: the error that a node raised, else how Ray's own explanation begins."""
    cause = error.cause if isinstance(error, RayTaskError) else None
    if isinstance(cause, ReproError):
        return ": ".join(filter(None, (cause.why, cause.remedy))) or str(cause)
    return str(cause or error).strip().split("\n")[0][:200]


def _connect(address: str) -> None:
    """Join a cluster, or start one of this machine. Raises PrerequisiteError."""
    if ray.is_initialized():
        return
    _mute()
    quiet = {"log_to_driver": False, "logging_level": "error"}
    alone = {"include_dashboard": False, "object_store_memory": _OBJECT_BYTES} if address == "local" else {}
    try:
        ray.init(address, **alone, **quiet)
    except (ConnectionError, RuntimeError, ValueError, RayError, TimeoutError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise PrerequisiteError(
            f"no Ray cluster at {address}", reason,
            "Start one with `ray start --head`, or use --engine ray:local. See docs/scale.md.",
        ) from None  # fmt: skip
    atexit.register(ray.shutdown)


def _mute() -> None:
    """Keep Ray's pages on dead workers off the terminal: the rows and the progress say what was lost."""
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None
