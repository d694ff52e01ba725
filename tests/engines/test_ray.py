"""The Ray engine on a real cluster of several raylets on this machine: verdicts, losses, the end of a run.

The machine has no GPU, so that jobs run on the CPU.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import CLEAN_ENV, CPU, ROOT, WHOLE, Tool, ask_docker, manifest, rows, until, verdict_of
from ray_cluster import Nodes, cluster

from repro.bundle.write import Bundle
from repro.system.jsonio import Json
from repro.system.procfs import alive, descendants

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed; make test-slow installs it"
    ),
    pytest.mark.timeout(1200),
]

# How many made-up problems the suite holds, and how many raylets are killed while it runs.
SUITE, KILLS = (100, 10) if WHOLE else (6, 2)
# A cheap one, because Triton's interpreter takes minutes for others.
SHIPPED = ("L1_82", *("L1_36 L1_97 L2_34 L2_37 L2_84 L2_99 L3_43 L3_44 L3_20".split() if WHOLE else ()))
RAY = ("--engine", "ray", "--device", "cpu", "--size", "smoke")
# What must be equal in rows of two engines. Distances differ, because seeds are secret.
EQUAL = ("problem", "solution", "verdict", "precision_class", "labels")

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
    def forward(self, x):
        return torch.tanh(x * self.scale) + x
rows, columns = {rows}, {columns}
def get_inputs():
    return [torch.randn(rows, columns)]
def get_init_inputs():
    return [{scale}]
"""
# Wrong for large scales, so that the suite has both verdicts.
SOLUTION = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = min(scale, 2.0)
    def forward(self, x):
        return torch.tanh(x * self.scale) + x
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def nodes(folder: Path) -> Iterator[Nodes]:
    """Three nodes of one slot each."""
    with cluster(3, folder) as started:
        yield started


def suite(folder: Path, problems: int = SUITE) -> list[object]:
    """The arguments that evaluate one solution of made-up problems, in one process a problem without a sandbox."""
    folder.mkdir(exist_ok=True)
    (folder / "solution.py").write_text(SOLUTION)
    found = ["evaluate", folder / "solution.py", "--no-timing", "--trust", "dev"]
    for number in range(problems):
        file = folder / f"p{number:03}.py"
        file.write_text(PROBLEM.format(rows=4 + number % 5, columns=32 + number, scale=0.5 + number % 4))
        found += ["--problem", file]
    return found


def on(nodes: Nodes) -> tuple[object, ...]:
    """The arguments for a cluster."""
    return ("--engine", f"ray:{nodes.address}", *RAY[2:])


def told(bundle: Path) -> Json:
    """What rows say that must not depend on the engine."""

    def verdict(entry: Json) -> Json:
        return {name: entry.get(name) for name in EQUAL} | {"codes": [reason["code"] for reason in entry["reasons"]]}

    return {
        name: (row["status"], row["content"], list(map(verdict, (row["result"] or {}).get("results", []))))
        for name, row in rows(bundle).items()
    }


def lines(bundle: Path) -> list[str]:
    file = bundle / "rows.jsonl"
    return [json.loads(line)["row"] for line in file.read_text().splitlines()] if file.exists() else []


def left(folder: Path) -> list[str]:
    """Processes and folders of jobs below the nodes' temporary folder."""
    tool = Tool(folder.parent / "nothing")
    tool.tmp = folder
    jobs = filter(re.compile(r" (job|agent|gateway)\b|repro\.judge").search, tool.processes())
    return [*jobs, *map(str, folder.glob("repro-job-*"))]


def gone(folder: Path) -> None:
    """Waits until nothing is left below it."""
    with contextlib.suppress(AssertionError):
        until(lambda: not left(folder), 120)
    assert not left(folder)


def test_shipped_problems_have_the_rows_of_the_local_engine(nodes, folder, judge_tool):
    tool = judge_tool
    study = ["run", "--agent", "oracle", "--controls", "none", "--no-timing"]
    study += [word for problem in SHIPPED for word in ("--problem", problem)]
    for where in (CPU, on(nodes)):
        done = tool.finish(tool.start(*study, *where, RAY_INNER="local"), 1000)
        done.succeeded()
    local, ray = (bundle for bundle in tool.bundles() if bundle.name.endswith("-run"))
    assert told(local) == told(ray), f"{told(local)}, {told(ray)}"
    assert len(rows(ray)) == len(SHIPPED)
    facts = manifest(ray)["engine"]
    assert facts["engine"] == "ray" and facts["inner"] == "local" and len(facts["nodes"]) == 1
    assert all(row["node"] in facts["nodes"] and row["fingerprint_id"] for row in rows(ray).values())
    assert not left(folder) and tool.within("verify", ray).code == 0


def test_killed_raylets_and_workers_lose_no_row_and_write_none_twice(nodes, folder, tmp_path):
    tool, draw = Tool(tmp_path), random.Random(SUITE)
    command = suite(tmp_path / "suite")
    process = tool.start(*command, *on(nodes), RAY_INNER="local")
    found = lambda: len(lines(tool.bundles()[0])) if tool.bundles() else 0  # noqa: E731
    for number in range(KILLS):
        until(lambda number=number: found() > number * SUITE // (KILLS + 1) or process.poll() is not None, 300)
        assert process.poll() is None
        os.kill(draw.choice(nodes.raylets), signal.SIGKILL)
        nodes.ask("add")
    until(lambda: (left(folder) and workers(nodes)) or process.poll() is not None, 200)
    for pid in workers(nodes):
        os.kill(pid, signal.SIGKILL)
    done = tool.finish(process, 1000)
    done.succeeded()
    (bundle,) = tool.bundles()
    assert sorted(lines(bundle)) == sorted(manifest(bundle)["plan"]), "each row is written once"
    assert {row["status"] for row in rows(bundle).values()} == {"done"}
    verdicts = {row["problem"]: verdict_of(row) for row in rows(bundle).values()}
    assert verdicts == {f"p{n:03}": "correct" if n % 4 < 2 else "incorrect" for n in range(SUITE)}
    gone(folder)
    assert tool.within("verify", bundle).code == 0


def test_ctrl_c_leaves_nothing_on_any_node_and_resume_goes_on_elsewhere(nodes, folder, tmp_path):
    """Also on a cluster of the command's own, as documented, whose node has no Docker engine and runs processes."""
    tool, nowhere = Tool(tmp_path), f"unix://{tmp_path}/none.sock"
    command = suite(tmp_path / "suite")
    process = tool.start(*command, *on(nodes), RAY_INNER="local")
    until(lambda: tool.bundles() and len(lines(tool.bundles()[0])) >= 2 and left(folder), 150)
    process.send_signal(signal.SIGINT)
    done = tool.finish(process, 120)
    assert done.code == 130 and "Repeat with --resume" in done.complaint, done.err
    assert not left(folder), "the command ends after everything that it started"
    (bundle,) = tool.bundles()
    before = lines(bundle)
    assert manifest(bundle)["status"] == "interrupted" and 2 <= len(before) < SUITE

    process = tool.start(*command, "--engine", "ray:local", *RAY[2:], "--resume", DOCKER_HOST=nowhere)
    until(lambda: len(lines(bundle)) >= len(before) + 2 or process.poll() is not None, 300)
    process.kill()  # the driver dies; its cluster of this machine too
    tool.finish(process)
    gone(tool.tmp)
    second = lines(bundle)
    assert len(second) > len(before), "the first rows of that node"
    done = tool.finish(tool.start(*command, *on(nodes), "--resume", RAY_INNER="local"), 1000)
    done.succeeded()
    whole = lines(bundle)
    assert whole[: len(second)] == second and sorted(whole) == sorted(manifest(bundle)["plan"])
    gone(folder)
    gone(tool.tmp)
    assert tool.within("verify", bundle).code == 0


def test_the_death_of_the_head_ends_the_run_and_keeps_its_rows(folder, tmp_path):
    """On a cluster of its own. `--resume` goes on with the local engine.

    Calls of the third problem wait while `held` exists: nodes could finish all jobs sooner than the silence of their
    head is noticed.
    """
    tool, command, held = Tool(tmp_path), suite(tmp_path / "suite", 3), tmp_path / "held"
    held.touch()
    begin = "def forward(self, x):\n"
    wait = f"        while self.scale == 2.0 and os.path.exists({str(held)!r}):\n            time.sleep(0.1)\n"
    text = "import os, time\n" + SOLUTION.replace(begin, begin + wait)
    (tmp_path / "suite" / "solution.py").write_text(text)
    with cluster(2, folder) as nodes:
        process = tool.start(*command, *on(nodes), RAY_INNER="local")
        until(lambda: tool.bundles() and len(lines(tool.bundles()[0])) == 2, 150)
        (head,) = below(nodes.pid, b"gcs_server")
        os.kill(head, signal.SIGKILL)
        done = tool.finish(process, 120)
    assert done.code == 2 and "the Ray cluster" in done.complaint and "--resume" in done.complaint, done.err
    (bundle,) = tool.bundles()
    before = lines(bundle)
    assert manifest(bundle)["status"] == "incomplete" and len(before) >= 2
    gone(folder)
    held.unlink()
    done = tool.finish(tool.start(*command, *CPU, "--resume"), 600)
    done.succeeded()
    assert lines(bundle)[: len(before)] == before and {row["status"] for row in rows(bundle).values()} == {"done"}


def test_files_larger_than_the_object_store_do_not_end_the_run(nodes, tmp_path):
    """Ray moves objects that do not fit to the node's disk."""
    program = """
import sys
from repro.engines.ray import RayEngine
from repro.records.job import Job

engine = RayEngine(gpus="none", device="cpu", address=sys.argv[1])
for n in range(3):
    job = Job(f"job{n}", "fingerprint", files={"f": bytes([n]) * (40 << 20)})
    (found,) = engine.submit([job], lambda _: None)
    print(job.id, found.status, found.error)
"""
    env = CLEAN_ENV | Tool(tmp_path).environment() | {"RAY_INNER": "local", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, nodes.address]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.split("\n")[:3] == [f"job{n} done " for n in range(3)], done.stdout + done.stderr


STUDY = """
import sys
from pathlib import Path
from repro.engines.ray import RayEngine
from repro.records.job import Job
from repro.records.row import Planned
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.runs.rows import Row

rows = [Row(Planned(row=f"row{n}"), Job(f"row{n}", "fingerprint")) for n in range(6)]
run = Run(RayEngine(gpus="all", device="cuda", address="local"), Path(sys.argv[1]), Progress(quiet=True))
run.execute(rows, run.open("evaluate", rows, {}), lambda row: "")
"""


def test_the_gpus_of_one_host_are_workers_with_cores_of_their_own(tmp_path, fake_gpu):
    """Two simulated GPUs, without Docker and with nothing that names the nodes' engine; one worker is killed."""
    tool = Tool(tmp_path)
    ours = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "PYTHONPATH": str(ROOT), "FAKE_NVML_GPUS": "2"}
    command = [sys.executable, "-c", STUDY, str(tool.results)]
    with subprocess.Popen(command, env=CLEAN_ENV | tool.environment() | fake_gpu | ours) as process:
        until(lambda: serving(process.pid) and left(tool.tmp) or process.poll() is not None, 200)
        os.kill(serving(process.pid)[0], signal.SIGKILL)
        assert process.wait(300) == 0
    (bundle,) = tool.bundles()
    assert sorted(lines(bundle)) == sorted(manifest(bundle)["plan"]) and not left(tool.tmp)
    assert (
        manifest(bundle)["engine"]["inner"] == "local" and len({r["gpu_uuid_hash"] for r in rows(bundle).values()}) == 2
    )
    (machine,) = Bundle.open(bundle).fingerprints().values()
    found = {name: machine["values"][name]["value"] for name in ("visible_devices", "cpu_count")}
    assert found == {"visible_devices": "1 by UUID", "cpu_count": len(os.sched_getaffinity(0)) // 2}


def containers(nodes: Nodes) -> list[str]:
    """The containers and volumes of runs on these nodes, and of dead processes. Other tests run beside this one."""
    kinds = (("ps", "--all", "--format", '{{.Label "repro.owner"}}'),
             ("volume", "ls", "--format", '{{.Label "repro.owner"}}'))  # fmt: skip
    owners = [owner for kind in kinds for owner in ask_docker(*kind, "--filter", "label=repro.run").split()]
    mine = {pid for raylet in nodes.raylets for pid in descendants(raylet)}
    return [owner for owner in owners if not alive(owner) or int(owner.split("-")[1]) in mine]


@pytest.mark.docker
def test_containers_of_two_nodes_give_the_rows_of_local_processes_and_end_with_the_run(image, nodes, folder, tmp_path):
    tool, before = Tool(tmp_path), Counter(containers(nodes))
    command = suite(tmp_path / "suite", 4)
    assert tool(*command, *CPU).code == 0
    assert tool(*command, *on(nodes), RAY_INNER="docker").code == 0
    local, ray = tool.bundles()
    assert told(local) == told(ray) and sorted(lines(ray)) == sorted(manifest(ray)["plan"])
    facts = manifest(ray)["engine"]
    assert facts["isolation"] == "containers" and facts["stack"]["image"].startswith("sha256:")
    until(lambda: not Counter(containers(nodes)) - before, 120)
    gone(folder)

    process = tool.start(*command, *on(nodes), RAY_INNER="docker")
    until(lambda: Counter(containers(nodes)) - before or process.poll() is not None, 200)
    process.send_signal(signal.SIGINT)
    done = tool.finish(process, 120)
    assert done.code == 130 and not Counter(containers(nodes)) - before, done.err


def workers(nodes: Nodes) -> list[int]:
    """Ray's processes that serve a job."""
    return [pid for raylet in nodes.raylets for pid in serving(raylet)]


def serving(ancestor: int) -> list[int]:
    """Those below a process."""
    return below(ancestor, b"ray::Worker")


def below(ancestor: int, command: bytes) -> list[int]:
    """The processes below another one whose command line holds this; some may end meanwhile."""
    found = []
    for pid in descendants(ancestor):
        with contextlib.suppress(OSError):
            if command in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found
