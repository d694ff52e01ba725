"""A node of a cluster, without Ray: how it describes itself, what it refuses, and that it runs a batch of jobs."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import CLEAN_ENV, ROOT, until

from repro.engines import docker, node, registry
from repro.engines.base import Engine, Slots
from repro.engines.local import LocalEngine
from repro.errors import PrerequisiteError, UsageError
from repro.runs.progress import Progress
from repro.system import procfs
from repro.system.procfs import owner

UUID = "GPU-11111111-2222-3333-4444-555555555555"
KIND = "NVIDIA Fake, 150 GiB"
# Runs a job as a node does, and prints the messages.
NODE = """
import sys
import tempfile
from repro.engines.node import Batch
from repro.records.job import Job, Outcome
device, gpu, *kinds = sys.argv[1:]
batch = Batch("local", device, {}, frozenset(kinds), [Job("f", "fingerprint", device=device)], 100.0)
for message in batch.run(gpu):
    told = (message.status, bool(message.node), message.fingerprint.value("visible_devices")) \\
        if isinstance(message, Outcome) else message
    print(told, flush=True)
"""


def start(folder: Path, *words: str, **env: str) -> subprocess.Popen[str]:
    """A node's process with a folder of its own for temporary files and locks."""
    (folder / "state").mkdir(exist_ok=True)
    env = CLEAN_ENV | {"TMPDIR": str(folder), "REPRO_STATE": str(folder / "state"), "PYTHONPATH": str(ROOT)} | env
    command = [sys.executable, "-c", NODE, *words]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_node_describes_itself_and_says_how_its_stack_differs():
    here = node.describe(LocalEngine(gpus="none", device="cpu"))
    assert here.stack["repro"] == node.code() and here.gpus == {} and here.engine["engine"] == "local"
    differs = node.difference(here.stack, {"repro": node.code(), "torch": "1.0", "image": "sha256:1"})
    assert differs == f"torch {here.stack['torch']} instead of 1.0, image is missing instead of sha256:1"


def test_a_node_that_lacks_the_engine_says_so(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    monkeypatch.setattr(node.config, "leave_ray", lambda: None)
    with pytest.raises(node.Differs, match="no Docker engine"):
        node.engine("docker", "all", "auto")


@pytest.mark.slow
def test_a_job_waits_for_a_gpu_that_is_held_by_hand(tmp_path, fake_gpu):
    (tmp_path / "state").mkdir()
    with (tmp_path / "state" / f"gpu-{UUID}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(tmp_path, "cuda", "0", KIND, **fake_gpu)
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting for a GPU: other jobs or runs hold them all\n"
        fcntl.flock(lock, fcntl.LOCK_UN)
        out, err = process.communicate(timeout=100)
    assert out.splitlines()[-2:] == ["('done', True, '1 by UUID')", "Ended(how='')"], err
    assert not list(tmp_path.glob("repro-job-*"))


@pytest.mark.parametrize("children", [False, True])
@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.2, 0.6])
def test_an_engine_that_is_killed_while_its_job_starts_leaves_no_folder(after_s, children, tmp_path):
    """children: whether its children are killed before, as Ray does where a worker of its own ends."""
    process, there = start(tmp_path, "cpu", "none"), lambda: list(tmp_path.glob("repro-job-*"))
    until(there)
    time.sleep(after_s)
    if children:
        procfs.kill(procfs.children(process.pid))
    process.kill()
    process.communicate()
    until(lambda: not there())


@pytest.mark.parametrize(
    ("gpu", "kinds", "why"),
    [("0", ["NVIDIA H100, 80 GiB"], "instead of NVIDIA H100, 80 GiB"), ("7", [], "no GPU 7")],
)
def test_a_gpu_of_another_kind_and_one_that_is_missing_are_refused(gpu, kinds, why, tmp_path, fake_gpu):
    out, err = start(tmp_path, "cuda", gpu, *kinds, **fake_gpu).communicate(timeout=100)
    assert not out and "node.Differs" in err and why in err


def test_without_ray_the_engine_says_what_to_install(monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "ray" else found(name, *a))
    with pytest.raises(
        PrerequisiteError, match=r"ray is not installed. Run `make setup ENGINE=ray`.*requirements/ray.txt"
    ):
        registry.choose("ray", gpus="all", device="cpu", say=print)
    with pytest.raises(UsageError, match="no engine .local:auto.: there are"):
        registry.choose("local:auto", gpus="none", device="cpu", say=print)


def test_owners_of_other_pid_namespaces_are_not_ours(monkeypatch):
    mine = owner()
    assert procfs.alive(mine) and mine.split("-")[1] == str(os.getpid())
    monkeypatch.setattr(procfs, "place", lambda: "other")
    assert not procfs.alive(mine)


def test_a_zombie_owns_nothing():
    """Its parent may never wait for it: what it left is removed all the same."""
    child = os.fork()
    if not child:
        os._exit(0)
    try:
        started = procfs.stat(f"/proc/{child}/stat")[19]
        until(lambda: procfs.dead(child), 10)
        assert not procfs.alive(f"{procfs.place()}-{child}-{started}")
    finally:
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("run", True), ("run --no-timing", False), ("claims", True), ("fixtures", False),
        ("problems --audit", False), ("optimize L1_36", True),
    ],
)  # fmt: skip
def test_gpus_of_different_kinds_are_refused_for_times_alone(line, refused, monkeypatch):
    from repro.cli import arguments, main

    class Mixed(Engine):
        device = "cuda"

        def capacity(self) -> Slots:
            return Slots({"u1": "NVIDIA H100, 80 GiB", "u2": "NVIDIA H200, 140 GiB", "u3": "NVIDIA H200, 140 GiB"})

    monkeypatch.setattr(arguments, "choose", lambda *_, **__: Mixed())
    args = main.parser().parse_args(line.split())
    timed = args.verb in ("run", "claims", "optimize")
    how = args.run if args.verb == "optimize" else partial(arguments.engine_and_size, timed=timed)
    progress = Progress(quiet=True)
    if refused:
        with pytest.raises(PrerequisiteError, match=r"1 of NVIDIA H100, 80 GiB, 2 of NVIDIA H200") as told:
            how(args, progress)
        assert "--gpus" in told.value.remedy
    else:
        assert how(args, progress)[1] == "full"


def test_folders_of_killed_engines_are_removed_by_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    where = owner().split("-")[0]
    dead, alive, foreign = (tmp_path / f"repro-job-{name}-x" for name in (f"{where}-1-1", owner(), "elsewhere.1-1-1"))
    for folder in (dead, alive, foreign):
        (folder / "job").mkdir(parents=True)
    LocalEngine(gpus="none", device="cpu")
    assert not dead.exists() and alive.exists() and foreign.exists()


def test_an_image_of_other_code_is_named_with_what_to_do(monkeypatch, capsys):
    assert docker.stale(SimpleNamespace(labels={"repro.code": node.code()})) == ""
    old = SimpleNamespace(notice=docker.stale(SimpleNamespace(labels=None)))
    monkeypatch.setitem(registry.FACTORIES, "docker", lambda **_: old)
    assert registry.choose("auto", gpus="none", device="cpu", say=print) is old
    assert re.search(r"repro \(unknown\) than this checkout .*: run `make image`", capsys.readouterr().out)
