"""The launcher: what workers start ends with them, a stopped process does not run, nothing outlives judge or launcher.

`python test_launcher.py MODE NAME` divides itself as a job does (MODE divided) or starts a launcher below itself
(alone), and calls NAME. With `NAME,NAME,...` it calls one check after the other, as a job
serves one solution after the other: torch is imported once for all of them. In a container of the image the workers
have users.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from repro import config
from repro.errors import JudgeError, SolutionError
from repro.judge.isolation import uids as users
from repro.judge.processes import launcher as launch
from repro.judge.processes.forkserver import Forked
from repro.system import procfs
from repro.system.jsonio import Json
from repro.system.procfs import forks, processes

WAIT_S = 20.0
# A solution that starts what a solution can start. Each counts in a byte of shared memory of its own and leaves its
# process id behind it: a thread, a child, one with a session of its own, a daemon, and a daemon whose first thread has
# ended, which /proc shows as a zombie.
PROGRAM = """
import ctypes, mmap, os, platform, stat, struct, threading, time

FD = next(fd for fd in range(3, 64) if stat.S_ISREG(os.fstat(fd).st_mode))
SHARED = mmap.mmap(FD, 4096)

def count(place):
    struct.pack_into("=i", SHARED, 64 + 4 * place, os.getpid())
    while True:
        SHARED[place] = (SHARED[place] + 1) % 256
        time.sleep(0.002)

def child(place, *, session=False, daemon=False, headless=False):
    if os.fork() == 0:
        if session:
            os.setsid()
        if not daemon or os.fork() == 0:
            os.closerange(3, FD)
            os.closerange(FD + 1, 64)
            if headless:
                threading.Thread(target=count, args=(place,)).start()
                ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # this thread alone
            count(place)
        os._exit(0)

threading.Thread(target=count, args=(0,), daemon=True).start()
child(1)
child(2, session=True)
child(3, session=True, daemon=True)
child(4, session=True, daemon=True, headless=True)

class ModelNew:
    pass
"""
# One that kills whatever it may.
HUNT = """
import os

for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if int(pid) != os.getpid():
            os.kill(int(pid), 9)
    except OSError:
        pass

class ModelNew:
    pass
"""
# One that looks at what it is: its own session, one thread, no descriptor but its pipes and the memory that it shares,
# the environment of a worker and nothing that another worker left.
SELF = """
import os, sys, tempfile

here = os.getcwd()
assert os.getsid(0) == os.getpid() and os.getppid() == {launcher}, (os.getsid(0), os.getppid())
assert len(os.listdir("/proc/self/task")) == 1, os.listdir("/proc/self/task")
mine = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
links = [os.readlink(path) for path in mine if os.path.lexists(path)]
kinds = sorted(link.split(":")[0] for link in links if not link.startswith("/proc/%d/" % os.getpid()))
assert kinds == ["/dev/null", *["/memfd"] * 4, *["pipe"] * 2], links  # its log and the memory, each twice
named = {{"HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"}}
assert all(os.environ[name].startswith(here) for name in named) and tempfile.gettempdir() == here, os.environ
assert not {{name for name in os.environ if name.startswith("REPRO_")}}, os.environ
began = open("/proc/self/environ").read() + open("/proc/self/cmdline").read()  # of the process that it is a fork of
assert "repro.judge" in began and "REPRO_" not in began and "test_launcher" not in began, began
assert not hasattr(sys, "marked")
sys.marked = True
print("said by", here, flush=True)

class ModelNew:
    pass
"""
# One that does something when its process ends.
LAST_WORDS = """
import atexit

atexit.register(print, "last words", flush=True)

class ModelNew:
    pass
"""
# One that would reach what later workers are made of.
REACH = """
import os

tries = [lambda: os.kill({forkserver}, 9), lambda: os.kill(-{forkserver}, 9), lambda: os.kill({forkserver}, 0),
         lambda: open("/proc/{forkserver}/mem", "rb"), lambda: open("/proc/{forkserver}/mem", "r+b"),
         lambda: os.readlink("/proc/{forkserver}/fd/0"), lambda: open("/proc/{forkserver}/environ", "rb").read()]
for number, attempt in enumerate(tries):
    try:
        attempt()
    except OSError:
        continue
    raise AssertionError(f"attempt {{number}} on the fork server succeeded")

class ModelNew:
    pass
"""
# One that is another process of another session every few milliseconds, for some 20 s, and counts in the first byte.
HOPS = """
import os, stat, sys

FD = next(fd for fd in range(3, 64) if stat.S_ISREG(os.fstat(fd).st_mode))
HOP = \"\"\"
import os, time
for count in range(6000):
    os.pwrite(%d, bytes([count %% 256]), 0)
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.003)
\"\"\"
if os.fork() == 0:
    os.closerange(3, FD)
    os.closerange(FD + 1, 64)
    os.set_inheritable(FD, True)
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", HOP % FD])

class ModelNew:
    pass
"""
# One that leaves 1500 dead processes to the process that adopts them.
DEAD = """
import os, sys

LEAVE = \"\"\"
import os
for _ in range(1500):
    if os.fork():
        os.wait()
    else:
        os.fork()
        os._exit(0)
\"\"\"
os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-I", "-S", "-c", LEAVE])

class ModelNew:
    pass
"""
THREAD, CHILD, SESSION, DAEMON, HEADLESS = EVERYONE = tuple(range(5))
LAUNCHER = 0  # its process id


class Busy:
    """A worker whose solution runs PROGRAM."""

    def __init__(self, name: str = "busy", program: str = PROGRAM):
        import torch

        from repro.judge.gpu.shared_memory import SharedBuffer
        from repro.judge.processes.client import WorkerProcess

        self.shared = SharedBuffer(4096, torch.device("cpu"))
        self.shared.bytes.zero_()
        self.worker = WorkerProcess(name, torch.device("cpu"), {"staging": self.shared}, trusted=False)
        self.hello = self.worker.start()
        self.define(program)
        if program is PROGRAM:
            wait_for(lambda: all(self.counts()) and all(self.pids()))

    def define(self, program: str):
        """Has the worker import a solution."""
        from repro.problems import catalogue

        problem = catalogue.load("L1_36", size="smoke")
        source = {"id": problem.id, "source": base64.b64encode(problem.path.read_bytes()).decode(),
                  "dtype": problem.dtype, "overrides": problem.overrides}  # fmt: skip
        self.worker.ask({"op": "define", "source": base64.b64encode(program.encode()).decode(), "entry": "ModelNew",
                         "problem": source, "inputs": 1}, 60)  # fmt: skip

    def counts(self) -> list[int]:
        return [int(self.shared.bytes[place]) for place in EVERYONE]

    def pids(self) -> list[int]:
        return list(map(int, self.shared.bytes[64:84].view(__import__("torch").int32)))

    def moving(self, seconds: float = WAIT_S) -> set[int]:
        """The processes that count on within this time; as soon as all of them do."""
        before, deadline = self.counts(), time.monotonic() + seconds
        found = set()
        while time.monotonic() < deadline and len(found) < len(EVERYONE):
            found |= {place for place in EVERYONE if self.counts()[place] != before[place]}
            time.sleep(0.01)
        return found


def living(pids: list[int]) -> list[int]:
    """Those that have a thread which runs."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            states = [
                task.read_text().rsplit(")", 1)[1].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")
            ]
            found += [pid] if set(states) - {"Z", "X"} else []
    return found


def wait_for(condition: Callable[[], Any], what: str = "it"):
    deadline = time.monotonic() + WAIT_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {WAIT_S:.0f} s"
        time.sleep(0.02)
    return value


# -- checks: in a judge


def check_everything_that_a_worker_started_ends_with_it():
    """Its child, one with a session of its own, a daemon that lost its parent; another worker goes on. Under one user
    the owner of an orphaned daemon cannot be known: all of them end with the first worker."""
    first, second = Busy("first"), Busy("second")
    pids = first.pids()
    scratch = first.worker.scratch
    assert len({*pids, *second.pids()}) == 10 and sorted(living(pids)) == sorted(pids) and scratch.exists()
    first.worker.close()
    assert not living([first.worker.started.pid, *pids]) and not scratch.exists()
    others = set(EVERYONE) if second.worker.started.uid is not None else {THREAD, CHILD, SESSION}
    wait_for(lambda: second.moving(1.0) == others, "the other worker's going on")
    second.worker.close()
    assert not living(second.pids())


def check_a_stopped_worker_stands_still_and_a_woken_one_goes_on():
    """With a user of its own all of it; with the judge's what has its parent still, sessions of its own or not. To be
    resumed takes signals alone: its processes are not searched for then, which takes milliseconds of a timed call."""
    from repro.judge.processes import client  # imports torch, which must not be there before the split

    busy, looked, descendants = Busy(), [], launch.descendants

    def looking(pid):
        looked.append(pid)
        return descendants(pid)

    launch.descendants = client.descendants = looking
    reached = set(EVERYONE) if busy.worker.started.uid is not None else {THREAD, CHILD, SESSION}
    assert busy.moving() == set(EVERYONE)
    for _ in range(3):
        busy.worker.stop()
        assert busy.worker.rest(), (
            "on a busy machine a thread goes on until the one that takes the signal gets its turn"
        )
        assert not busy.moving(0.3) & reached, "stopped, and still counting"
        assert busy.worker.rested() and len(busy.worker.resting or {}) >= len(reached - {THREAD}) + 1
        seen = len(looked)
        busy.worker.wake()
        assert len(looked) == seen, "it was looked for"
        wait_for(lambda: busy.moving(0.1) >= reached, "going on")
    assert bool(looked) is (busy.worker.started.uid is None)
    busy.worker.stop()
    assert busy.worker.rest() and busy.worker.rested()
    busy.worker.wake()
    busy.worker.forks, client.forks = 1, lambda: 1
    try:
        seen = len(looked)
        busy.worker.stop()
        assert busy.worker.rest() and len(looked) == seen, "looked for, though the machine forked no process"
    finally:
        client.forks = forks
    for number in (launch.GO, launch.STOP):
        try:
            os.kill(busy.pids()[CHILD], number)
        except PermissionError:  # a judge without root cannot signal them
            assert busy.worker.started.signal(number)
        time.sleep(0.05)
    assert not busy.worker.rested(), "one of them ran for a while, and is at rest again"
    assert busy.worker.unrest.endswith("ms of CPU time; its threads are stopped")
    busy.worker.stop()
    assert busy.worker.ask({"op": "hello"}, 60)["pid"] == busy.worker.started.pid, "a request wakes it"
    busy.worker.stop()
    busy.worker.close()
    assert not living(busy.pids()), "what is stopped can be ended"


def check_who_is_forked_between_two_calls_stands_still_too():
    """A known process is not searched for again, a foreign one is not looked at; a new child is neither."""
    busy = Busy()
    for turn in range(3):
        busy.worker.stop()
        assert busy.worker.rest()
        known = {*(busy.worker.resting or {})}
        with contextlib.suppress(SolutionError):  # it is no solution
            busy.define("import os, time\nif os.fork() == 0:\n    time.sleep(600)\n")
        busy.worker.stop()
        assert busy.worker.rest() and len({*(busy.worker.resting or {})} - known) == 1, turn
        if turn == 1:
            busy.worker.strangers.clear()  # all are looked at again
    busy.worker.close()


# A child that a timer wakes 2 s after it was stopped: it leaves a sibling that lives on, and is gone at once.
HEIR = """
import ctypes, os, signal, time
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int),
                ("left", ctypes.c_char * 48)]
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ready, armed = os.pipe()
if os.fork():
    os.read(ready, 1)
else:
    signal.signal(signal.SIGCONT, lambda *_: None)
    libc, timer = ctypes.CDLL(None), ctypes.c_int()
    libc.syscall(222, 1, ctypes.byref(Event(None, signal.SIGCONT, 0, b"")), ctypes.byref(timer))
    last = time.perf_counter()
    while time.perf_counter() - last < 1.5:  # stopped before it is set again, the timer is a little older than this
        last = time.perf_counter()
        libc.syscall(223, timer, 0, ctypes.byref((ctypes.c_long * 4)(0, 0, 2, 0)), None)
        os.write(armed, b".")
        time.sleep(0.001)
    if libc.syscall(56, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        time.sleep(600)
    os._exit(0)
"""


def check_who_ended_while_it_was_stopped_has_run():
    """A process id without a process does not count as at rest, and its orphans were not there before."""
    busy = Busy()
    before = {*busy.pids()}
    with contextlib.suppress(SolutionError):  # it is no solution
        busy.define(HEIR)
    busy.worker.stop()
    assert busy.worker.rest() and busy.worker.rested()
    (child,) = {*(busy.worker.resting or {})} - before - {busy.worker.started.pid}
    wait_for(lambda: procfs.dead(child), "the end of the child")
    assert not busy.worker.rested()
    busy.worker.close()


def check_a_worker_that_exits_leaves_nothing():
    """Its solution ends the process itself; what it had started is found when the worker is closed."""
    from repro.errors import SolutionDied

    busy = Busy()
    try:
        busy.define("import os\nos._exit(5)\n")
    except SolutionDied as error:
        assert error.code == "worker_exited", error
    else:
        raise AssertionError("it did not exit")
    busy.worker.close()
    assert not living([busy.worker.started.pid, *busy.pids()]) and not busy.worker.scratch.exists()


def check_who_is_another_process_every_moment_ends_with_its_worker():
    """A search of /proc finds processes that are gone by then, or none; so it is for the worker itself."""
    from repro.errors import SolutionDied

    for exits in (False, True):
        hopper = Busy("hopper", HOPS)
        wait_for(lambda hopper=hopper: THREAD in hopper.moving(0.1), "hopping")
        if exits:
            with contextlib.suppress(SolutionDied):
                hopper.define("import os\nos._exit(5)\n")
            wait_for(lambda hopper=hopper: not living([hopper.worker.started.pid]))
        hopper.worker.close()
        assert not hopper.moving(0.5), f"it hops on, and the worker {'had ended' if exits else 'was ended'}"
        assert not hopper.worker.scratch.exists()


def check_the_dead_that_a_worker_leaves_hold_nobody_up():
    """Each was followed through all of /proc: some thousands kept the next solution waiting for an hour."""
    busy = Busy("dead", DEAD)
    begin = time.monotonic()
    busy.worker.close()
    assert time.monotonic() - begin < 15
    ours = (LAUNCHER, "Z")
    assert not [pid for pid, facts in processes().items() if facts == ours], "they are taken leave of"


def check_ends_twice():
    """Killing and closing again what is gone does no harm."""
    busy = Busy()
    busy.worker.kill()
    busy.worker.kill()
    busy.worker.stop()
    busy.worker.close()
    busy.worker.close()
    assert not living([busy.worker.started.pid, *busy.pids()])


def check_a_solution_that_ends_its_warden_is_told_and_ended():
    """All processes of a user may signal each other, a warden too: then the worker could not be stopped any more."""
    from repro.errors import SolutionRejected

    busy = Busy()
    uid = busy.worker.started.uid
    if uid is None:
        return
    hunter = Busy("hunter", HUNT)
    pids = [hunter.worker.started.pid]
    try:
        hunter.worker.stop()
    except SolutionRejected as error:
        assert error.code == "protocol_tampered"
    hunter.worker.close()
    assert not living(pids) and not hunter.worker.scratch.exists()
    assert busy.moving() == set(EVERYONE), "another worker was hit"
    busy.worker.close()
    assert not living(busy.pids())


def check_every_worker_has_a_user_of_its_own_where_the_launcher_may_give_it_one():
    first, second = Busy("first"), Busy("second")
    uids = [first.hello["uid"], second.hello["uid"]]
    if first.worker.started.uid is None:
        assert uids == [os.getuid()] * 2
    else:
        assert len({*uids, os.getuid(), 0}) == 4 and all(users.FIRST_UID <= uid < users.LAST_UID for uid in uids)
        if config.in_container():
            assert os.getuid() == config.CONTAINER_UID
        for busy in (first, second):
            assert os.stat(busy.worker.scratch).st_mode & 0o077 == 0, "others may look into its scratch folder"
    first.worker.close()
    second.worker.close()


def forkserver_beside(only: Busy) -> int:
    """The one child of the launcher that forks workers, where this is the only worker."""
    workers = [only.worker.started.pid, *only.pids()]
    found = [
        pid
        for pid, (parent, state) in processes().items()
        if parent == LAUNCHER and state != "Z" and pid not in workers
        and b"repro.judge" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]  # fmt: skip
    assert len(found) == 1, found
    return found[0]


def check_a_fork_is_what_a_process_of_its_own_would_be():
    """Twice, so that the second shows that the first left it nothing; what each prints goes to its own log."""
    for name in ("first", "second"):
        worker = Busy(name, SELF.format(launcher=LAUNCHER)).worker
        assert worker.printed().rstrip() == f"said by {worker.scratch}", worker.printed().rstrip()
        worker.close()


def check_a_worker_that_its_judge_left_ends_as_a_process_does():
    """What a solution registered for the end runs, wherever it is a fork of."""
    worker = Busy("left", LAST_WORDS).worker
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, worker.channel.write_fd)  # the judge's end of the pipe is closed
    os.close(null)
    wait_for(lambda: "last words" in worker.printed().rstrip(), "its end")
    worker.close()


def check_no_solution_reaches_what_workers_are_made_of():
    first = Busy("first")
    forkserver = forkserver_beside(first)
    hostile = Busy("hostile", REACH.format(forkserver=forkserver))
    later = Busy("later")
    assert living([forkserver]) and later.moving() == set(EVERYONE)
    for busy in (first, hostile, later):
        busy.worker.close()
    assert living([forkserver]), "it goes on when workers end"


def check_a_forkserver_that_died_is_made_anew():
    """The out-of-memory killer may choose it: the workers that it made go on, and others follow."""
    first = Busy("first")
    forkserver = forkserver_beside(first)
    try:
        os.kill(forkserver, signal.SIGKILL)
    except PermissionError:  # in a container it is root's, and the judge is not
        first.worker.close()
        return
    wait_for(lambda: not living([forkserver]), "its end")
    second = Busy("second")
    assert first.moving() == second.moving() == set(EVERYONE)
    first.worker.close()
    second.worker.close()
    assert not living([*first.pids(), *second.pids()])


CHECKS = [name for name in list(globals()) if name.startswith("check_")]

# -- what a process is asked to do


def end_by(how: str):
    """Ends the judge: an exit code, or a signal by its name."""
    if how.isdigit():
        sys.exit(int(how))
    if how == "raise":
        raise RuntimeError("the judge failed")
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(WAIT_S)


def tell(then: str):
    """Prints its process id, then dies or waits to be killed."""
    busy = Busy()
    workers = [busy.worker.started.pid, *busy.pids()]
    print(json.dumps({"launcher": os.getppid(), "judge": os.getpid(), "workers": workers}), flush=True)
    if then == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(WAIT_S)


def main(mode: str, name: str, *arguments: str):
    global LAUNCHER
    if mode == "divided":
        launch.divide()
        LAUNCHER = os.getppid()
        assert "torch" not in sys.modules, "the launcher has none"
    else:
        process = launch.current().process
        assert process is not None
        LAUNCHER = process.pid
    if "," not in name:
        return globals()[name](*arguments)
    for each in name.split(","):
        said = ""
        try:
            globals()[each]()
        except Exception:
            said = traceback.format_exc()
        print(json.dumps([each, said]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.exit(0)

import pytest  # noqa: E402 - the image has none

pytestmark = pytest.mark.timeout(180)
WHOLE_ALONE = pytest.mark.skipif(
    os.environ.get("REPRO_TEST_WHOLE") != "1", reason="REPRO_TEST_WHOLE=1 starts workers in every way"
)
HARDENED = [
    *("--user", "0:0", "--cap-drop", "ALL", "--cap-add", "SETUID", "--cap-add", "SETGID", "--init"),
    *("--security-opt", "no-new-privileges", "--network", "none", "--read-only"),
    *("--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777,size=1g", "--pids-limit", "256", "--memory", "4g"),
]


@pytest.fixture
def start(tmp_path):
    """Starts this file as a program, temporary files below the test's folder; what is left of it is killed."""
    begun = []

    def started(*arguments):
        env = os.environ | {"TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1", "REPRO_MARK": "ours"}
        # a session in the background ignores Ctrl-C, and its children inherit that
        command = ["env", "--default-signal=INT", sys.executable, __file__, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
                                   process_group=0)  # fmt: skip
        begun.append(process)
        return process

    yield started
    for process in begun:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def finished(process: subprocess.Popen[str]) -> int:
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return process.returncode


# Each in a process of its own: the first two by `make test`, and the last because it leaves a worker without a warden.
QUICK = (
    "check_everything_that_a_worker_started_ends_with_it",
    "check_who_is_forked_between_two_calls_stands_still_too",
)
WARDEN = "check_a_solution_that_ends_its_warden_is_told_and_ended"
TOGETHER = {
    "divided": [name for name in CHECKS if name not in (*QUICK, WARDEN)],
    "alone": [name for name in CHECKS if name != WARDEN],
    "container": [name for name in CHECKS if name != WARDEN],
}


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What each check says that one process calls in turn: nothing, or its traceback. The process leaves no file."""

    @functools.cache
    def said(where):
        folder, names = tmp_path_factory.mktemp(where), TOGETHER[where]
        command = contained() if where == "container" else [sys.executable, __file__, where]
        try:
            done = subprocess.run(
                [*command, ",".join(names)], capture_output=True, text=True, timeout=150, process_group=0,
                env=os.environ | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1", "REPRO_MARK": "ours"},
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            return dict.fromkeys(names, f"{error}: {error.stdout!r}")
        if done.returncode or list(folder.iterdir()):
            return dict.fromkeys(names, f"exit code {done.returncode}, {list(folder.iterdir())}: {done.stderr}")
        found = dict(map(json.loads, done.stdout.splitlines()))
        return {name: found.get(name, f"not told: {done.stderr}") for name in names}

    return said


@pytest.mark.parametrize("name", [*QUICK, pytest.param(WARDEN, marks=pytest.mark.slow)])
def test_in_a_divided_process(name, start, tmp_path):
    """As a job runs under ENGINE=local; nothing is left in the folder of temporary files."""
    finished(start("divided", name))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", TOGETHER["divided"])
def test_in_one_divided_process(name, together):
    assert together("divided")[name] == ""


@WHOLE_ALONE
@pytest.mark.slow
@pytest.mark.parametrize("name", TOGETHER["alone"])
def test_where_the_judge_starts_a_launcher(name, together):
    """As a program that calls `evaluate` does."""
    assert together("alone")[name] == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user takes root")
def test_all_processes_of_a_user_are_killed_even_if_none_was_seen(monkeypatch):
    """Its worker ended by itself and left a process that is another one every few milliseconds: hardly a look at /proc
    finds it, and it lived on under a number that another launcher gives away again."""
    monkeypatch.setattr(launch, "of_user", lambda uid: [])
    uid = users.LAST_UID - 1
    launcher = launch.Launcher(iter([uid]))
    begun = launcher._warden(uid, "hopper")
    shared = mmap.mmap(-1, 4096)
    worker = os.fork()
    if worker == 0:
        users.become(uid)
        if os.fork() == 0:
            for count in range(4000):
                shared[0] = count % 256
                if os.fork():
                    os._exit(0)
                os.setsid()
                time.sleep(0.002)
        os._exit(5)

    def moves(within_s):
        before, deadline = shared[0], time.monotonic() + within_s
        while shared[0] == before and time.monotonic() < deadline:
            time.sleep(0.01)
        return shared[0] != before

    launcher.children[worker] = Forked(worker)
    launcher.started[worker] = replace(begun, pid=worker)
    try:
        assert moves(30.0)  # a fork of this large process takes long where others want the cores
        deadline = time.monotonic() + 30.0
        while launcher.poll(worker) != 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert launcher.poll(worker) == 5
    finally:
        launcher.remove(worker)
    assert not moves(0.5) and not Path(begun.scratch).exists()


def test_a_process_unreadable_for_a_moment_is_looked_at_again(monkeypatch):
    """As a process that is being replaced by another program: /proc says nothing of it then. A process
    of another user is not looked at again."""
    asked, hidden, status = [], {os.getpid()}, procfs._status

    def moment(pid, name):
        asked.append(pid)
        if pid in hidden:
            hidden.remove(pid)
            raise ProcessLookupError
        return status(pid, name)

    monkeypatch.setattr(procfs, "_status", moment)
    strangers, sleeper, us = set(), subprocess.Popen(["sleep", "60"]), os.getuid()
    try:
        assert procfs.of_user_but(us, strangers) is None and os.getpid() not in dict(strangers)
        assert {os.getpid(), sleeper.pid} <= {*(procfs.of_user_but(us, strangers) or [])}
        assert procfs.of_user_but(4_000_000, strangers) == [] and sleeper.pid in dict(strangers)
        asked.clear()
        assert sleeper.pid not in (procfs.of_user_but(us, strangers) or []) and sleeper.pid not in asked
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_proc_that_hides_processes_is_an_error_and_no_rejection(monkeypatch):
    """As with hidepid=1: the folder of another user's process is there and closed, for as long as it lives."""

    def closed(pid, name):
        raise PermissionError(13, "Permission denied", f"/proc/{pid}/status")

    monkeypatch.setattr(procfs, "_status", closed)
    with pytest.raises(JudgeError, match="hidepid"):
        procfs.of_user_but(4_000_000, set())


@pytest.mark.skipif(os.getuid() != 0, reason="the kernel tells it to root")
def test_a_thread_that_still_runs_is_not_at_rest_though_its_state_is_stopped(monkeypatch):
    busy = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert busy.stdout is not None and busy.stdout.readline()
        monkeypatch.setattr(procfs, "stat", lambda _: ["T"])
        assert not procfs.at_rest(busy.pid)
        busy.send_signal(signal.SIGSTOP)
        wait_for(lambda: procfs.at_rest(busy.pid), "leaving the CPU")
    finally:
        busy.kill()
        busy.communicate()


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\rUid:\t0", b"\x0c) Z", "вычислитель".encode()])
def test_a_process_may_have_any_name(name):
    """Also one that is no text, or that breaks a line: no process is overlooked for it."""
    code = f"import ctypes, time; ctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0); print(flush=True); time.sleep(60)"
    odd = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert odd.stdout is not None and odd.stdout.readline()
        us = os.getuid()
        assert odd.pid in procfs.processes() and odd.pid in procfs.descendants(os.getpid())
        assert odd.pid in procfs.of_user(us) and odd.pid in (procfs.of_user_but(us, set()) or [])
        assert not procfs.at_rest(odd.pid) and not procfs.dead(odd.pid)
    finally:
        odd.kill()
        odd.communicate()


def contained() -> list[str]:
    """As a job runs under ENGINE=docker: root that may become others and nothing else."""
    program = "/opt/repro/tests/judge/processes/test_launcher.py"
    command = ["docker", "run", "--rm", *HARDENED, "--entrypoint", "/opt/venv/bin/python", config.image()]
    return [*command, program, "divided"]


@pytest.mark.docker
@pytest.mark.parametrize("name", TOGETHER["container"])
def test_in_a_container(image, name, together):
    assert together("container")[name] == ""


@pytest.mark.docker
def test_a_solution_that_ends_its_warden_in_a_container(image):
    done = subprocess.run([*contained(), WARDEN], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr


@pytest.mark.alike
@pytest.mark.slow
@pytest.mark.parametrize("how", ["0", "3", "130", "SIGTERM", "SIGKILL", "SIGSEGV", "SIGABRT", "raise"])
def test_the_end_of_the_judge_is_the_end_of_its_launcher(how, start):
    """Exit codes and signals pass through; a judge that raises ends with 1 and its traceback, once."""
    process = start("divided", "end_by", how)
    _, err = process.communicate(timeout=60)
    expected = int(how) if how.isdigit() else 1 if how == "raise" else -getattr(signal, how)
    assert process.returncode == expected, err
    assert err.count("Traceback") == (how == "raise"), err


def told(process: subprocess.Popen[str]) -> Json:
    assert process.stdout is not None
    found = json.loads(process.stdout.readline())
    assert procfs.children(process.pid) == [found["launcher"]]
    return found


ENDED = {
    "the judge kills itself": ("die", lambda pid: None, signal.SIGKILL),
    "Ray kills the first process": ("wait", lambda pid: os.kill(pid, signal.SIGKILL), signal.SIGKILL),
    "Ctrl-C goes to the whole group": ("wait", lambda pid: os.killpg(pid, signal.SIGINT), signal.SIGINT),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDED)
def test_an_ended_judge_or_first_process_takes_launcher_and_workers_with_it(start, tmp_path, how):
    """Daemons of the solution too, and the scratch folders."""
    then, end, number = ENDED[how]
    process = start("divided", "tell", then)
    found = told(process)
    end(process.pid)
    process.communicate(timeout=30)
    assert process.returncode == -number
    wait_for(lambda: not living([found["launcher"], found["judge"], *found["workers"]]), "their end")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_killed_launcher_takes_judge_and_workers_with_it(start):
    """The worker goes, and with it its thread; the judge does not go on without a process that can stop workers."""
    process = start("divided", "tell", "wait")
    found = told(process)
    worker, _, *others = found["workers"]
    assert len(living([found["judge"], worker])) == 2
    os.kill(found["launcher"], signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    wait_for(lambda: not living([found["judge"], worker]), "their end")
    for pid in living(others):  # under one user no process is left that could find those outside the worker's group
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_that_cannot_start_says_why_and_leaves_nothing(monkeypatch, tmp_path):
    """What every worker imports cannot be imported: the message is kept, no folder stays, the next one tries again."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "triton.py").write_text("raise ImportError('no such compiler')\n")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    real = config.worker_env
    spoiled = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "modules"), *sys.path])}
    monkeypatch.setattr(
        config, "worker_env", lambda scratch, *, interpret: real(scratch, interpret=interpret) | spoiled
    )
    launcher = launch.Launcher()
    (read, write), log = os.pipe(), os.open(os.devnull, os.O_WRONLY)
    with pytest.raises(JudgeError, match="no worker could be started: .*ImportError: no such compiler"):
        launcher.start("a", "cpu", [read, write], log)
    assert not list((tmp_path / "scratch").iterdir()) and not launcher.started and not launcher.children
    monkeypatch.setattr(config, "worker_env", real)
    assert launcher.poll(launcher.start("a", "cpu", [read, write], log).pid) is None
    launcher.end()
    for fd in (read, write, log):
        os.close(fd)


# A CUDA driver that has no GPU and notes which process calls it: cuBLAS loads it whenever torch is imported.
DRIVER = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
static int noted(void) {
  char line[32];
  int length = snprintf(line, sizeof line, "%d\\n", getpid()), file = open(NOTES, O_WRONLY | O_APPEND);
  if (file >= 0) { if (write(file, line, length) < 0) _exit(9); close(file); }
  return 100;  /* CUDA_ERROR_NO_DEVICE */
}
#define CALL(name) int name(void) { return noted(); }
CALL(cuInit) CALL(cuDriverGetVersion) CALL(cuGetProcAddress) CALL(cuGetProcAddress_v2) CALL(cuDeviceGet)
CALL(cuDeviceGetCount) CALL(cuDevicePrimaryCtxRetain) CALL(cuCtxCreate_v2) CALL(cuCtxGetCurrent)
"""


@pytest.mark.slow
def test_the_forkserver_never_calls_the_cuda_driver(monkeypatch, tmp_path, fake_gpu):
    """The driver works in no fork of a process that has called it."""
    notes, library = tmp_path / "notes", tmp_path / "lib" / "libcuda.so.1"
    notes.touch()
    library.parent.mkdir()
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", f'-DNOTES="{notes}"', tmp_path / "driver.c", "-o", library], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    asks = [sys.executable, "-c", "import os, torch; torch.cuda.is_available(); print(os.getpid())"]
    asked = int(subprocess.run(asks, capture_output=True, text=True, check=True).stdout)
    assert set(map(int, notes.read_text().split())) == {asked}, "every process that asks for a GPU is noted"
    notes.write_text("")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{library.parent}:{fake_gpu['LD_LIBRARY_PATH']}")
    launcher = launch.Launcher()
    launcher.start_forkserver("cuda")
    forkserver = launcher.forkservers["cuda"]
    wait_for(lambda: forkserver.imported(5.0), "its imports")
    for compiles in (False, True):
        (theirs, answers), (requests, ours), log = os.pipe(), os.pipe(), os.open(os.devnull, os.O_WRONLY)
        started = launcher.start("a", "cuda", [requests, answers], log, compiles=compiles)
        os.write(ours, b'{"op": "hello", "n": 1}\n')
        assert json.loads(os.read(theirs, 1 << 16))["pid"] == started.pid
        for fd in (theirs, answers, requests, ours, log):
            os.close(fd)
    assert not {forkserver.process.pid} & set(map(int, notes.read_text().split()))
    launcher.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_where_root_alone_may_enter_the_temporary_folder_workers_get_no_users(monkeypatch):
    """The answer came from /tmp instead, which is where another user's search ends; every worker failed then."""
    monkeypatch.setattr(users, "__file__", "/bin/sh")  # the project and Python may be root's alone too, where this runs
    monkeypatch.setattr(users.sys, "executable", "/bin/sh")
    monkeypatch.setattr(os, "__file__", "/bin/sh")
    for mode, may in ((0o1777, True), (0o700, False)):
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            os.chmod(folder, mode)
            monkeypatch.setenv("TMPDIR", folder)
            monkeypatch.setattr(tempfile, "tempdir", None)  # as in a process that has not asked yet
            assert users.may_change() is may, folder


def test_launchers_side_by_side_never_share_a_user(monkeypatch, tmp_path):
    """One that ends its workers ends all of a user: two that gave out the same numbers killed each other's."""
    monkeypatch.setattr(users, "_USERS", tmp_path / "users")
    first, second = users.free(None), users.free(None)
    ours = [next(first) for _ in range(users._UIDS_A_RANGE + 3)]
    theirs = [next(second) for _ in range(users._UIDS_A_RANGE + 3)]
    assert not set(ours) & set(theirs)
    third = users.free(ours[0] + 4 * users._UIDS_A_RANGE)
    assert next(third) == ours[0] + 4 * users._UIDS_A_RANGE + 1, "the judge's own is given to nobody"


def test_users_in_containers_are_none_of_the_hosts():
    """Ending processes by user on the host ends them in every container: no number is given out twice."""
    host, container = users.free(None), users.free(None, contained=True)
    ours, theirs = next(host), next(container)
    assert users.FIRST_UID <= ours < users._CONTAINED_UID <= theirs < users.LAST_UID
    assert set(range(ours, users._CONTAINED_UID)).isdisjoint(range(theirs, users.LAST_UID))


def test_users_that_still_run_something_are_passed_over(monkeypatch, tmp_path):
    """What a killed launcher left behind must not meet a new worker."""
    monkeypatch.setattr(users, "_USERS", tmp_path / "users")
    monkeypatch.setattr(users, "of_user", lambda uid: [1] if uid < users.FIRST_UID + 2 else [])
    assert next(users.free(None)) == users.FIRST_UID + 2
