"""The image holds what the work needs and nothing more, and a job in it lets a solution reach nothing but its own.

The first is checked inside, where there is no pytest: `test_image` starts the image with this file as its program. One
check again, by hand:

    docker run --rm --entrypoint python repro tests/e2e/test_image.py check_versions

The second is what solutions say that the engine ran in a job, with users of their own: they raise with it.
"""

import ctypes
import errno
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback

import repro
from repro import config
from repro.records.options import Options

HARDENED = [
    *("--network", "none"),
    "--read-only",
    *("--tmpfs", "/tmp:exec,mode=1777,size=1g"),
    *("--volume", "/job"),
    *("--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges"),
    *("--pids-limit", "256"),
    *("--memory", "4g"),
]


def check_versions():
    import torch
    import triton

    assert torch.__version__.partition("+")[0] == config.PINS["torch"], torch.__version__
    assert torch.version.cuda == config.PINS["cuda"], torch.version.cuda
    assert triton.__version__ == config.PINS["triton"], triton.__version__


def check_lock_file():
    """What is installed is what requirements/image.txt says, package by package; pip came with the venv."""
    lock = (config.ROOT / "requirements/image.txt").read_text()
    locked = {(name, version) for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE)}
    found = {(dist.name.lower().replace("_", "-"), dist.version) for dist in importlib.metadata.distributions()}
    found = {(name, version) for name, version in found if name not in ("pip", "repro")}
    assert found <= locked, f"not in the lock file: {sorted(found - locked)}"
    elsewhere = {"httpx2-jsfetch", "pywin32"}  # locked for other platforms than Linux
    missing = {name for name, _ in locked} - {name for name, _ in found} - elsewhere
    assert not missing, f"not installed: {sorted(missing)}"


def check_imports():
    for name in ("dotenv", "numpy", "pynvml", "rich", "setuptools", "tabulate"):
        importlib.import_module(name)


def check_no_launcher():
    """The image launches no containers and runs no tests of its own: these belong to the host."""
    for name in ("docker", "pytest"):
        assert importlib.util.find_spec(name) is None, f"{name} is installed"


def check_python_headers():
    header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
    assert header.is_file(), f"{header} is missing"


def check_c_compiler():
    """Triton compiles a launcher for each kernel at run time, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = pathlib.Path(folder, "twice.c"), pathlib.Path(folder, "twice.so")
        source.write_text("#include <Python.h>\nint twice(int x) { return 2 * x; }\n")
        include = f"-I{sysconfig.get_path('include')}"
        subprocess.run(["gcc", "-shared", "-fPIC", include, str(source), "-o", str(library)], check=True)
        assert ctypes.CDLL(str(library)).twice(21) == 42


def check_user():
    status = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    assert os.getuid() != 0, "this is root"
    assert int(status["CapEff"], 16) == 0, f"capabilities {status['CapEff'].strip()}"
    assert int(status["NoNewPrivs"]) == 1, "new privileges are possible"


def check_nothing_writable():
    for folder in ("/", "/opt", "/opt/repro", "/opt/repro/repro", "/opt/venv", "/usr/share/repro"):
        assert os.stat(folder).st_uid == 0, f"{folder} belongs to uid {os.stat(folder).st_uid}"
        try:
            pathlib.Path(folder, "probe").touch()
        except OSError as error:
            assert error.errno in (errno.EACCES, errno.EROFS), error
        else:
            raise AssertionError(f"{folder} is writable")


def check_scratch_writable():
    for folder in (os.environ["HOME"], os.environ["TRITON_CACHE_DIR"], os.environ["TORCHINDUCTOR_CACHE_DIR"]):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass


def check_job_is_the_judges_alone():
    """A job's files are in it, and workers are of other users."""
    facts = os.stat("/job")
    assert (facts.st_uid, facts.st_mode & 0o777) == (config.CONTAINER_UID, 0o700), oct(facts.st_mode)
    try:
        with tempfile.NamedTemporaryFile(dir="/job"):
            assert os.getuid() == config.CONTAINER_UID
    except PermissionError:
        assert os.getuid() != config.CONTAINER_UID


def check_no_network():
    routes = pathlib.Path("/proc/net/route").read_text().splitlines()[1:]
    assert not routes, f"routes: {routes}"
    with socket.socket() as client:
        client.settimeout(2)
        # 192.0.2.0/24 is set aside for documentation: no host answers there, with or without a network.
        assert client.connect_ex(("192.0.2.1", 443)) == errno.ENETUNREACH


def check_provenance():
    packages = pathlib.Path("/usr/share/repro/packages.txt").read_text().splitlines()
    names = {line.split()[0] for line in packages}
    assert {"ca-certificates", "g++", "gcc", "libc6-dev", "python3", "python3-dev", "python3-venv"} <= names
    assert all(len(line.split()) == 3 for line in packages), "a line is not: package, version, architecture"
    assert os.environ["REPRO_GIT_SHA"] and os.environ["REPRO_GIT_DIRTY"]


def check_nothing_left_over():
    """The .dockerignore held: no secrets, no repository, no results, no other environment."""
    left = [str(path) for name in (".env", ".git", ".venv", "results") if (path := config.ROOT / name).exists()]
    assert not left, left


def check_interpreter():
    """Triton's interpreter runs a kernel without a GPU. It is chosen when `@triton.jit` runs, hence the new process."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        again = [sys.executable, __file__, "check_interpreter"]
        subprocess.run(again, env=os.environ | {"TRITON_INTERPRET": "1"}, check=True, stdout=subprocess.DEVNULL)
        return
    import torch

    x, y = torch.rand(1000), torch.rand(1000)
    out = torch.empty_like(x)
    add[(4,)](x, y, out, x.numel(), BLOCK=256)
    assert torch.equal(out, x + y)


def check_triton_compiles_for_sm90():
    """An H100's machine code, made without a GPU and without nvcc by the ptxas in Triton's own wheel."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    ptxas = triton.knobs.nvidia.ptxas
    assert pathlib.Path(ptxas.path).is_relative_to(pathlib.Path(triton.__file__).parent), ptxas.path
    assert ptxas.version == config.PINS["cuda"], ptxas.version
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    compiled = triton.compile(ASTSource(add, signature, {"BLOCK": 256}), target=GPUTarget("cuda", 90, 32))
    assert ".target sm_90" in compiled.asm["ptx"]
    assert compiled.asm["cubin"].startswith(b"\x7fELF")


def check_torch_compile():
    """torch.compile builds C++ for the CPU, so g++, the headers and the caches work together."""
    import torch

    x = torch.rand(1000)
    torch.testing.assert_close(torch.compile(lambda x: torch.sin(x).sum() + 1)(x), torch.sin(x).sum() + 1)


def main(names: list[str]) -> int:
    checks = {name: check for name, check in globals().items() if name.startswith("check_")}
    failed = 0
    for name in names or checks:
        start_s = time.monotonic()
        try:
            checks[name]()
            verdict = "ok  "
        except Exception:  # each check is reported, whatever it raised
            traceback.print_exc()
            verdict, failed = "FAIL", failed + 1
        print(f"{verdict} {name} ({time.monotonic() - start_s:.1f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":  # in the image; the machine that launches it may have no triton
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)

    sys.exit(main(sys.argv[1:]))

import contextlib  # noqa: E402

import pytest  # noqa: E402 - the image has none
from conftest import attempt  # noqa: E402

from repro.engines import node  # noqa: E402
from repro.judge.isolation import uids  # noqa: E402
from repro.problems import catalogue  # noqa: E402
from repro.runs.loop import Run  # noqa: E402
from repro.runs.progress import Progress  # noqa: E402
from repro.studies import evaluation  # noqa: E402


@pytest.fixture(scope="module")
def labels(image):
    """The image's labels."""
    inspect = ["docker", "image", "inspect", "--format", "{{json .Config.Labels}}", config.image()]
    return json.loads(subprocess.run(inspect, capture_output=True, text=True, check=True).stdout)


@pytest.mark.docker
@pytest.mark.parametrize("user", [None, "54321:54321"], ids=["own-uid", "any-uid"])
def test_image(labels, user):
    """Run by hand it is an ordinary user's: its own, or any other."""
    assert labels["org.opencontainers.image.version"] == repro.__version__
    assert labels["repro.code"] == node.code(), "the image is older than this checkout: make image"

    chosen = ["--user", user] if user else []
    command = ["docker", "run", "--rm", *HARDENED, *chosen, "--entrypoint", "/opt/venv/bin/python", config.image()]
    run = subprocess.run([*command, "/opt/repro/tests/e2e/test_image.py"], capture_output=True, text=True, timeout=300)
    print(run.stdout, run.stderr)
    assert run.returncode == 0
    checks = sum(name.startswith("check_") for name in globals())
    assert run.stdout.count("ok   check_") == checks, "the image is older than this file: make image"


@pytest.mark.docker
def test_image_by_hand_runs_as_its_own_user(labels):
    command = ["docker", "run", "--rm", "--entrypoint", "id", config.image(), "--user"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "10001\n"


# -- what a solution can reach in a job

# A right solution of L1_36 that first looks around; what it found becomes the text of its exception.
LOOKS = """import ctypes, json, os, signal, socket, sys, time
import torch
from torch import nn

USERS = {{}}
for entry in filter(str.isdigit, os.listdir("/proc")):
    try:
        USERS[int(entry)] = int(open(f"/proc/{{entry}}/status").read().split("Uid:")[1].split()[0])
    except OSError:  # it ended meanwhile
        pass
OTHERS = sorted(set(USERS) - {{os.getpid()}})
JUDGE = min(pid for pid in OTHERS if USERS[pid] == @JUDGE@)
PARENT = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[1])
# A worker's scratch folder is secret, and /tmp cannot be listed: workers of this job exchange theirs.
NOTES = "/dev/shm/scratch-of-"
open(NOTES + str(os.getpid()), "w").write(os.getcwd())


def tried(what):
    try:
        return what()
    except OSError as error:
        return f"errno {{error.errno}}"


def owner(pid):
    return os.stat(f"/proc/{{pid}}").st_uid


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        found = {{}}
        notes = ["/dev/shm/" + name for name in os.listdir("/dev/shm") if ("/dev/shm/" + name).startswith(NOTES)]
        SCRATCH = sorted({{open(note).read() for note in notes}} - {{os.getcwd()}})
        {body}
        if found:
            raise RuntimeError("FOUND" + json.dumps(found, separators=(",", ":")) + "END")
        return x / torch.sqrt(x.square().mean(1, keepdim=True) + self.eps)
"""
BODIES = {
    "honest": "",
    "itself": """
        lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
        names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Groups")
        found = {name: lines[name].strip() for name in names}
        found |= {"uids": os.getresuid(), "gids": os.getresgid(), "judge": owner(JUDGE), "parent": owner(PARENT)}""",
    "reads": """
        wanted = ["/job", "/job/jobs.jsonl", "/job/fixture.json", "/job/solution_0.py", "/root", "/results/x"]
        for pid in [1, PARENT, JUDGE]:
            wanted += [f"/proc/{pid}/{name}" for name in ("mem", "environ", "fd", "maps", "auxv", "root", "cwd")]
        wanted += SCRATCH + [f"{folder}/solution.py" for folder in SCRATCH] + ["/tmp"]
        read = lambda path: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
        found["read"] = [path for path in wanted if not isinstance(tried(lambda: read(path)), str)]
        found["others"] = len(SCRATCH)""",
    "writes": """
        folders = ["/", "/job", "/tmp", "/var/tmp", "/results", "/opt/repro", "/etc", "/run", "/dev", "/proc/self"]
        folders += SCRATCH
        written = lambda path: open(os.path.join(path, "probe"), "w").close()
        found["wrote"] = [path for path in folders if tried(lambda: written(path)) is None]
        found["own"] = tried(lambda: written(".")) is None""",
    "signals": """
        trace = getattr(ctypes.CDLL(None, use_errno=True), "ecartp"[::-1])
        users, traced = set(), []
        for pid in OTHERS:
            for number in (0, signal.SIGCONT):
                if tried(lambda: os.kill(pid, number)) is None:
                    users.add(owner(pid))
            traced += [pid] if trace(16, pid, 0, 0) == 0 else []
        found = {"users": sorted(users), "traced": traced, "me": os.getuid(), "everyone": tried(lambda: os.kill(-1, 0)),
                 "owners": sorted({tried(lambda: owner(pid)) for pid in OTHERS}, key=str)}""",
    "network": """
        made = []
        for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
            def reach(family=family):
                client = socket.socket(family, socket.SOCK_STREAM)
                client.settimeout(2)
                client.connect("/var/run/docker.sock" if family == socket.AF_UNIX else ("192.0.2.1", 443))
            made.append(tried(reach))
        found = {"connected": made, "routes": len(open("/proc/net/route").read().splitlines()) - 1}""",
}  # fmt: skip


def source(body):
    return LOOKS.format(body=body.strip()).replace("@JUDGE@", str(config.CONTAINER_UID))


def looks(name):
    return evaluation.Submission(name, source(BODIES[name]).encode(), "ModelNew")


@pytest.fixture(scope="module")
def engine(labels):
    from repro.engines import docker

    made = docker.DockerEngine(gpus="none", device="cpu")
    with contextlib.closing(made.client):
        yield made


def judged(engine, results, submissions, timeout_s=60.0):
    """One job with these solutions side by side: solution -> verdict, and what is left of the run in the engine."""
    problem = catalogue.load("L1_36", size="smoke")
    options = Options(timing=False, timeout_s=timeout_s)
    job = evaluation.job(Run(engine, results, Progress(), options), "row", problem, submissions)
    outcomes, ending = attempt(engine, [job], 280.0)
    assert not ending and outcomes[0].status == "done", (ending, outcomes)
    mine = ["--quiet", "--filter", f"label=repro.run={engine.run_id}"]
    left = [subprocess.run(["docker", *what, *mine], capture_output=True, text=True, check=True).stdout
            for what in (["ps", "--all"], ["volume", "ls"])]  # fmt: skip
    assert left == ["", ""]
    return {entry.solution: entry.to_json() for entry in outcomes[0].result.results}


@pytest.fixture(scope="module")
def looked(engine, smoke_results):
    """What the solutions of one job found, and the honest one's verdict."""
    found = judged(engine, smoke_results, list(map(looks, BODIES)))
    told = {}
    for name, entry in found.items():
        if name != "honest":
            detail = entry["reasons"][0]["detail"]
            assert "FOUND" in detail and "END" in detail, entry["reasons"]
            told[name] = json.loads(detail.partition("FOUND")[2].rpartition("END")[0])
    return found, told


@pytest.mark.docker
def test_every_solution_of_a_job_has_a_user_of_its_own_and_no_right(looked):
    """No capability, not even to be had again; no other group; the judge is another user, as every solution is."""
    found, told = looked
    me = told["itself"]
    assert {me[name] for name in me if name.startswith("Cap") and name != "CapBnd"} == {"0" * 16}, me
    assert int(me["CapBnd"], 16) & ~0xC0 == 0, "SETGID and SETUID, which it may not take: no_new_privs"
    assert me["NoNewPrivs"] == "1" and me["Seccomp"] == "2" and me["Groups"] == ""
    (uid,) = set(me["uids"]) | set(me["gids"])
    assert uids.FIRST_UID <= uid < uids.LAST_UID and me["judge"] == config.CONTAINER_UID and me["parent"] == 0
    assert uid != told["signals"]["me"]
    assert {entry["separation"] for entry in found.values()} == {"user"}
    assert (found["honest"]["verdict"], found["honest"]["reasons"]) == ("correct", [])
    assert found["honest"]["confined"]["no_new_privs"] == found["honest"]["confined"]["seccomp"] == "applied"


@pytest.mark.docker
def test_a_solution_reads_nothing_of_the_job_the_judge_or_the_others(looked):
    """Fixture and other solutions; memory, environment and descriptors of judge, launcher and init; other scratch."""
    reads = looked[1]["reads"]
    assert reads["read"] == [] and reads["others"] >= 3


@pytest.mark.docker
def test_a_solution_writes_nowhere_but_in_its_scratch_folder(looked):
    assert looked[1]["writes"] == {"wrote": [], "own": True}


@pytest.mark.docker
def test_a_solution_cannot_signal_or_trace_other_users(looked):
    """Judge, launcher, init and the other workers are there to be seen, and take no signal from it."""
    signals = looked[1]["signals"]
    assert set(signals["users"]) <= {signals["me"]} and signals["traced"] == [] and signals["everyone"] != "None"
    others = {owner for owner in signals["owners"] if isinstance(owner, int)} - {signals["me"]}
    assert {0, config.CONTAINER_UID} < others, "there was no process to signal"


@pytest.mark.docker
def test_a_solution_reaches_no_network(looked):
    network = looked[1]["network"]
    assert network["routes"] == 0 and all(str(made).startswith("errno") for made in network["connected"]), network


NASTY = {
    "daemons": """
        for _ in range(8):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.closerange(3, 64)
                    while True:
                        time.sleep(0.01)
                os._exit(0)
        os._exit(1)""",
    "hangs": """
        while True:
            time.sleep(1)""",
    "eats": """
        kept = []
        while True:
            kept.append(torch.ones(1 << 26))""",
    "honest": """
        alive = {int(pid): tried(lambda: owner(pid)) for pid in os.listdir("/proc") if pid.isdigit()}
        found = {pid: uid for pid, uid in alive.items() if uid not in (0, 10001, os.getuid())}""",
}  # fmt: skip


@pytest.mark.docker
def test_a_solution_that_forks_hangs_or_eats_memory_costs_its_own_verdict_alone(engine, smoke_results, monkeypatch):
    """In one job of 2.5 GiB: daemons that leave their parent, a call without end, memory without end. Each ends with
    all its processes; the container lives, and the last solution, which looks for what is left, is correct. On a busy
    machine 2.5 GiB take longer than ten seconds to fill."""
    monkeypatch.setattr(engine, "memory", int(2.5 * (1 << 30) / 0.9))
    sources = {name: source(body) for name, body in NASTY.items()}
    submissions = [evaluation.Submission(name, source.encode(), "ModelNew") for name, source in sources.items()]
    found = judged(engine, smoke_results, submissions, timeout_s=20.0)
    verdicts = {name: (entry["verdict"], [r["code"] for r in entry["reasons"]]) for name, entry in found.items()}
    assert verdicts == {
        "daemons": ("error", ["worker_exited"]), "hangs": ("timeout", ["timeout"]), "eats": ("error", ["killed"]),
        "honest": ("correct", []),
    }, found["honest"]["reasons"]  # fmt: skip
