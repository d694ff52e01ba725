"""A node's process as a remote engine uses it, without Ray: it serves requests, and ends with its worker."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import CLEAN_ENV, ROOT

from repro.engines import ray_worker, registry
from repro.engines.remote import Node, Request, code
from repro.errors import PrerequisiteError, UsageError
from repro.records.job import Job
from repro.runs.progress import Progress
from repro.system.prctl import PR_SET_CHILD_SUBREAPER, prctl
from repro.system.procfs import descendants, owner

UUID = "GPU-11111111-2222-3333-4444-555555555555"


class Asked:
    """The worker's side of a node, in a folder of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.gpu = folder, ""
        monkeypatch.setattr(ray_worker, "_gpu", lambda: self.gpu)
        monkeypatch.setattr(ray_worker, "_node_id", lambda: "id")
        self.env = CLEAN_ENV | {"TMPDIR": str(folder), "REPRO_STATE": str(folder / "state")}
        monkeypatch.setattr(ray_worker, "_environment", lambda: self.env)

    def stream(self, request: Request, inner: str = "local") -> Iterator[tuple[str, Any]]:
        large = [request_large[digest] for digest in request.large]
        for message in ray_worker.serve(inner, str(ROOT), pickle.dumps(request), *large):
            tag, body = message[:1].decode(), message[1:]
            yield tag, body.decode() if tag in "@x" else pickle.loads(body)

    def ask(self, request: Request, inner: str = "local") -> tuple[str, Any]:
        """The last answer."""
        return list(self.stream(request, inner))[-1]


request_large: dict[str, bytes] = {}


PR_GET_CHILD_SUBREAPER = 37


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    adopts = (
        ctypes.c_int()
    )  # other tests of this process may need that orphans become its children, which Ray's never do
    prctl(PR_GET_CHILD_SUBREAPER, ctypes.addressof(adopts))
    prctl(PR_SET_CHILD_SUBREAPER, 0)
    yield Asked(tmp_path, monkeypatch)
    ray_worker._close()
    prctl(PR_SET_CHILD_SUBREAPER, adopts.value)
    assert not list(tmp_path.glob("repro-*")), "a node leaves no folder"


def test_a_node_describes_itself_and_serves_many_requests_in_one_process(asked: Asked) -> None:
    tag, (kind, node) = asked.ask(Request("cpu"))
    assert (tag, kind) == ("!", "ended") and isinstance(node, Node)
    assert node.stack["repro"] == code() and node.gpus == {} and node.facts["engine"] == "local"
    program = "import os; print(os.getppid())"
    assert asked.ask(Request("cpu", program=program)) == asked.ask(Request("cpu", program=program))


def test_a_node_with_another_stack_refuses_with_the_difference(asked: Asked) -> None:
    _, (kind, name, parts) = asked.ask(Request("cpu", {"torch": "1.0", "repro": code()}))
    assert (kind, name) == ("failed", "Differs") and "instead of 1.0" in parts[1] and "repro" not in parts[1]


def test_a_node_that_lacks_the_engine_says_so(asked: Asked) -> None:
    asked.env["DOCKER_HOST"] = "unix:///nonexistent/docker.sock"
    tag, (kind, name, parts) = asked.ask(Request("cpu"), "docker")
    assert (tag, kind, name) == ("-", "failed", "PrerequisiteError") and "no Docker engine" in parts[0]


def test_a_node_without_repro_is_reported_with_the_reason(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert list(ray_worker.serve("local", "", pickle.dumps(Request("cpu"))))[-1] == (
        f"x{sys.executable}: No module named repro".encode()
    )


def test_the_end_of_the_worker_ends_the_node_and_what_it_runs(asked: Asked) -> None:
    job = Job("hangs", "fingerprint", device="cpu", files={"x": b"1"})
    node = int(asked.ask(Request("cpu", program="import os; print(os.getppid())"))[1][1])
    assert node not in descendants(os.getpid()), "Ray kills a worker's children"
    threading.Timer(0, interrupt_when, [lambda: len(descendants(node)) > 1]).start()
    with pytest.raises(KeyboardInterrupt):
        list(asked.stream(Request("cpu", jobs=(job,), timeout_s=100.0)))
    assert not ray_worker._kept and len(descendants(node)) <= 1, "at most the process itself, as it exits"
    while descendants(node):
        time.sleep(0.01)


def interrupt_when(reached: Callable[[], bool]) -> None:
    """Do what Ray does to cancel a task, once the job's processes run."""
    while not reached():
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)


def test_folders_of_killed_nodes_are_removed_by_the_next_one(asked: Asked, tmp_path: Path) -> None:
    where, _, start = owner().split("-")
    dead, alive, foreign = (tmp_path / f"repro-node-{name}" for name in (f"{where}-1-1", owner(), "elsewhere.1-1-1"))
    for folder in (dead, alive, foreign):
        (folder / "job").mkdir(parents=True)
    asked.ask(Request("cpu"))
    assert not dead.exists() and alive.exists() and foreign.exists(), start
    alive.joinpath("job").rmdir(), foreign.joinpath("job").rmdir(), alive.rmdir(), foreign.rmdir()


@pytest.mark.slow
def test_a_job_waits_for_a_gpu_that_is_held_by_hand(asked: Asked, fake_gpu: dict[str, str]) -> None:
    asked.env |= fake_gpu
    asked.gpu = "0"
    (asked.folder / "state").mkdir()
    with (asked.folder / "state" / f"gpu-{UUID}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stream = asked.stream(Request("cuda", jobs=(Job("f", "fingerprint"),), timeout_s=100.0))
        assert [next(stream)[0], next(stream)] == [
            "@",
            (".", ("step", "waiting for a GPU: other jobs or runs hold them all")),
        ]
        fcntl.flock(lock, fcntl.LOCK_UN)
        answers = [answer for _, answer in stream]
    outcome = next(parts[0] for kind, *parts in answers if kind == "outcome")
    assert outcome.status == "done" and outcome.node and answers[-1] == ("ended", "")
    assert outcome.fingerprint["values"]["visible_devices"]["value"] == "1 by UUID"


def test_a_gpu_of_another_kind_and_one_that_is_missing_are_refused(asked: Asked, fake_gpu: dict[str, str]) -> None:
    asked.env |= fake_gpu
    asked.gpu = "0"
    job = (Job("f", "fingerprint"),)
    _, (kind, name, parts) = asked.ask(Request("cuda", kinds=("NVIDIA H100, 80 GiB",), jobs=job))
    assert (kind, name) == ("failed", "Differs") and "instead of NVIDIA H100, 80 GiB" in parts[1]
    asked.gpu = "7"
    assert "no GPU 7" in asked.ask(Request("cuda", jobs=job))[1][2][1]


def test_without_ray_the_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "ray" else found(name, *a))
    with pytest.raises(
        PrerequisiteError, match=r"ray is not installed. Run `make setup ENGINE=ray`.*requirements/ray.txt"
    ):
        registry.choose("ray", gpus="all", device="cpu", say=print)
    with pytest.raises(UsageError, match="--address goes with --engine ray"):
        registry.choose("local", gpus="none", device="cpu", say=print, address="auto")


def test_owners_of_other_pid_namespaces_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    from repro.system import procfs

    mine = owner()
    assert procfs.alive(mine) and mine.split("-")[1] == str(os.getpid())
    monkeypatch.setattr(procfs, "place", lambda: "other")
    assert not procfs.alive(mine)


def test_large_files_travel_apart_and_are_whole_in_the_job() -> None:
    from multiprocessing import Pipe

    from repro.engines.node import Server

    receiver, sender = Pipe(duplex=False)
    jobs = tuple(Job(name, "evaluate", files={"small": b"s"}) for name in ("a", "b"))
    request = Request("cpu", jobs=jobs, large=("h1",), apart={"b": {"fixture.json": "h1"}})
    for message in (b"3", pickle.dumps(request), b"large"):
        sender.send_bytes(message)
    server = Server.__new__(Server)
    server._requests = receiver
    gpu, found = server._request()
    assert gpu == "3" and [job.files for job in found.jobs] == [
        {"small": b"s"}, {"small": b"s", "fixture.json": b"large"}
    ]  # fmt: skip
    receiver.close(), sender.close()


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("run", True), ("run --mixed", False), ("run --no-timing", False), ("claims", True), ("fixtures", False),
        ("audit", False), ("fingerprint", False), ("optimize L1_36", True),
    ],
)  # fmt: skip
def test_gpus_of_different_kinds_are_refused_for_times_alone(
    line: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from repro.cli import device, main

    class Mixed:
        device = "cuda"

        def kinds(self) -> dict[str, str]:
            return {"u1": "NVIDIA H100, 80 GiB", "u2": "NVIDIA H200, 140 GiB", "u3": "NVIDIA H200, 140 GiB"}

        def run(self, *_: object) -> None:
            raise UsageError("it goes on")

    monkeypatch.setattr(device, "choose", lambda *_, **__: Mixed())
    args = main.parser().parse_args(line.split())
    how = {"fingerprint": main._fingerprint, "optimize": args.run}.get(args.verb, device.sized)
    progress = Progress(quiet=True)
    if refused:
        with pytest.raises(PrerequisiteError, match=r"1 of NVIDIA H100, 80 GiB, 2 of NVIDIA H200") as told:
            how(args, progress)
        assert ("--mixed" in told.value.remedy) == ("mixed" in args) and "--gpus" in told.value.remedy
    elif args.verb == "fingerprint":
        with pytest.raises(UsageError, match="it goes on"):
            how(args, progress)
    else:
        assert how(args, progress)[1] == "full"
