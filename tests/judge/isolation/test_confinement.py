"""What a confined process still can do, and what it no longer can.

Confinement cannot be undone, so every check runs in a process of its own: `python test_confine.py MODE NAME SCRATCH
ARGUMENTS` applies it, as a worker would, and calls `NAME`. With root at hand the checks run as root and as a user
without any privilege; without root, as the user that runs the tests.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import json
import mmap
import os
import platform
import pwd
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from repro.judge.isolation import confinement  # noqa: E402
from repro.system.jsonio import Json

ORDINARY = 12345
ATTACH, SEIZE = 16, 0x4206
EPERM_OR_EACCES = (errno.EPERM, errno.EACCES)
libc = ctypes.CDLL(None, use_errno=True)

# -- checks: what must work


def check_torch(scratch: Path):
    """torch is imported and multiplies with two threads."""
    import torch

    torch.set_num_threads(2)
    assert float((torch.ones(512, 512) @ torch.ones(512, 512))[0, 0]) == 512


def doubling() -> Any:
    """A kernel in Triton, which is imported here alone: the process is confined before."""
    import triton
    import triton.language as tl

    @triton.jit
    def double(x_ptr, out_ptr, COUNT: tl.constexpr):
        at = tl.arange(0, COUNT)
        tl.store(out_ptr + at, tl.load(x_ptr + at) * 2)

    return double


def check_triton(scratch: Path):
    """A kernel runs in Triton's interpreter, which reads its source from this file."""
    import torch

    x, out = torch.arange(8.0), torch.empty(8)
    doubling()[(1,)](x, out, COUNT=8)
    assert torch.equal(out, x * 2)


def check_compile(scratch: Path):
    """torch.compile writes C++ into the scratch folder, has it compiled by g++ and loads the result."""
    import torch

    plain = {"cpp.vec_isa_ok": True, "cpp.simdlen": 1, "cpp_cache_precompile_headers": False}  # one compilation
    compiled = torch.compile(lambda x: torch.sin(x) * 2 + 1, options=plain)
    x = torch.ones(64)
    assert torch.allclose(compiled(x), torch.sin(x) * 2 + 1)
    assert list(scratch.rglob("*.so"))


def check_subprocess(scratch: Path):
    """A compiler, the program it made, a shell with redirections, a fork, a thread, a socket within the machine."""
    (scratch / "a.c").write_text("int main(void) { return 7; }\n")
    subprocess.run(["gcc", "-o", scratch / "a", scratch / "a.c"], check=True)
    assert subprocess.run([scratch / "a"], check=False).returncode == 7
    shell = subprocess.run("echo to-null > /dev/null && cat /dev/null && echo done", shell=True, capture_output=True)
    assert shell.stdout == b"done\n"
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    thread = threading.Thread(target=(scratch / "b").write_text, args=("thread",))
    thread.start()
    thread.join()
    (scratch / "folder").mkdir()
    (scratch / "b").rename(scratch / "folder" / "b")
    one, other = socket.socketpair()
    one.send(b"x")
    assert other.recv(1) == b"x"
    child = subprocess.Popen(["sleep", "60"])
    child.kill()
    assert child.wait() == -signal.SIGKILL


def check_buffer(scratch: Path, fd: str, nbytes: str):
    """Memory that was inherited as a descriptor is read and written."""
    shared = mmap.mmap(int(fd), int(nbytes))
    assert shared[:4] == b"ping"
    shared[:4] = b"pong"


def check_state(scratch: Path):
    """No capability is left, none can come back, no core file is written."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    assert all(int(status[name], 16) == 0 for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"))
    assert int(status["CapBnd"], 16) == 0 or os.getuid() != 0
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    assert Path("/proc/self/oom_score_adj").read_text().strip() == "1000"
    assert "core file size (blocks, -c) 0" in " ".join(
        subprocess.run(["bash", "-c", "ulimit -a"], capture_output=True, text=True, check=True).stdout.split()
    )


# -- checks: what must not


def refused(call: Callable[..., Any], *args, codes: tuple[int, ...] = EPERM_OR_EACCES):
    """The kernel refuses this call."""
    try:
        call(*args)
    except OSError as error:
        assert error.errno in codes, f"{call} {args}: {error}"
    else:
        raise AssertionError(f"{call} {args} was allowed")


def system(number: int, *args: int):
    """A system call by number; raises OSError."""
    if libc.syscall(number, *(ctypes.c_long(arg) for arg in args)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def number(name: str) -> int:
    """A system call's number on this machine."""
    numbers = confinement._DENIED.get(name) or confinement._ON_ITSELF_ALONE[name][0]
    return numbers[confinement._MACHINES[platform.machine()][0]]


def read_byte(path: Path) -> bytes:
    """The first byte of a file."""
    with path.open("rb") as stream:
        return stream.read(1)


def check_files(scratch: Path, other: str, secret: str):
    """Nothing is written, made, renamed, cut or removed outside the scratch folder, nor by a thread or a child."""
    outside, known = Path(other), Path(other) / "known"
    refused((outside / "new").write_text, "x")
    refused(known.write_text, "x")
    refused(os.truncate, known, 0)
    refused(known.unlink)
    refused((outside / "folder").mkdir)
    refused(known.rename, outside / "moved")
    (scratch / "mine").write_text("x")
    refused((scratch / "mine").rename, outside / "mine", codes=(*EPERM_OR_EACCES, errno.EXDEV))
    refused(os.link, known, scratch / "link", codes=(*EPERM_OR_EACCES, errno.EXDEV))
    refused((confinement.config.ROOT / "new").write_text, "x")
    refused((confinement.config.ROOT / "repro" / "__init__.py").open, "a")
    refused(Path("/dev/new").write_text, "x")
    refused(Path("/proc/sys/kernel/core_pattern").open, "r+")
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("named")  # the CUDA driver does so
    caught = []

    def in_thread():
        try:
            refused((outside / "new").write_text, "x")
        except AssertionError as error:
            caught.append(error)

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert not caught
    assert subprocess.run(["touch", outside / "new"], stderr=subprocess.DEVNULL, check=False).returncode != 0


def check_reading(scratch: Path, other: str, readable: str):
    """The checkout, its results, the user's home and others' scratch folders are closed; what was named is open."""
    assert Path(readable).read_text() == "readable"
    refused((Path(other) / "known").read_text)
    refused(os.listdir, other)
    refused((confinement.config.ROOT / "README.md").read_text)
    refused((confinement.config.ROOT / "artifacts" / "oracle" / "L1_36_RMSNorm.py").read_text)
    home = Path(pwd.getpwuid(os.getuid()).pw_dir) if os.getuid() != ORDINARY else None
    if home is not None and home.is_dir() and home not in (Path("/"), *scratch.parents):
        refused(os.listdir, home)


def check_network(scratch: Path, port: str, service: str):
    """Not even the machine itself is reached: TCP, UDP, raw packets, and services behind a socket in a file."""
    refused(socket.create_connection, ("127.0.0.1", int(port)), 5)
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_PACKET):
        refused(socket.socket, family, socket.SOCK_DGRAM)
    with socket.socket(socket.AF_UNIX) as client:
        refused(client.connect, service)
    refused(system, number("io_uring_setup"), 1, 0)


def check_parent(scratch: Path):
    """The parent cannot be traced, read, written, signalled, slowed down or limited."""
    parent = os.getppid()
    for request in (ATTACH, SEIZE):
        refused(system, number("ptrace"), request, parent, 0, 0)
    for name in ("process_vm_readv", "process_vm_writev"):
        refused(system, number(name), parent, 0, 0, 0, 0, 0)
    for name in ("environ", "mem", "maps", "fd/0", "cwd"):
        path = Path(f"/proc/{parent}/{name}")
        refused(os.readlink if name in ("fd/0", "cwd") else read_byte, path)
    refused(os.kill, parent, signal.SIGTERM)
    refused(os.kill, parent, 0)
    refused(os.killpg, os.getpgid(parent), signal.SIGTERM)
    refused(os.kill, -1, signal.SIGTERM)
    refused(signal.pidfd_send_signal, os.pidfd_open(parent), signal.SIGTERM)
    refused(os.sched_setaffinity, parent, {0})
    refused(os.setpriority, os.PRIO_PROCESS, parent, 19)
    refused(system, number("prlimit64"), parent, 0, 0, 0)


def check_sibling(scratch: Path, pid: str):
    """A process of the same user that is no parent, such as the judge beside its launcher, is not signalled either."""
    refused(os.kill, int(pid), signal.SIGTERM)
    refused(os.kill, int(pid), 0)


def check_kernel(scratch: Path):
    """Namespaces, mounts, keys, tracing and clocks are closed, and a child is made all the same."""
    for name in confinement._DENIED:
        refused(system, number(name), 0, 0, 0, 0, 0)
    refused(
        system,
        confinement._CLONE[confinement._MACHINES[platform.machine()][0]],
        0x10000000 | signal.SIGCHLD,
        0,
        0,
        0,
        0,
    )
    refused(time.clock_settime, time.CLOCK_REALTIME, 0)
    assert subprocess.run(["unshare", "--user", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0


def check_filter_alone(scratch: Path, other: str):
    """Without Landlock the filter still stands: the fallback on a kernel that has none."""
    (Path(other) / "new").write_text("Landlock is off")
    check_parent_by_filter()
    for family in (socket.AF_INET, socket.AF_INET6):
        refused(socket.socket, family)
    check_kernel(scratch)


def check_parent_by_filter():
    """What of `check_parent` needs no Landlock."""
    refused(os.kill, os.getppid(), signal.SIGTERM)
    refused(os.killpg, os.getpgid(os.getppid()), signal.SIGTERM)
    refused(system, number("ptrace"), ATTACH, os.getppid(), 0, 0)


def check_peek(scratch: Path, pid: str):
    """Of an unconfined process of the same user: a shielded one is closed to it."""
    for name in ("environ", "mem", "maps"):
        refused(Path(f"/proc/{pid}/{name}").read_bytes)
    refused(os.listdir, f"/proc/{pid}/fd")
    refused(system, number("ptrace"), ATTACH, int(pid), 0, 0)
    here = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(ctypes.create_string_buffer(8)), 8))
    for name in ("process_vm_readv", "process_vm_writev"):
        refused(system, number(name), int(pid), ctypes.addressof(here), 1, ctypes.addressof(here), 1, 0)


def check_gpu(scratch: Path, handle: str, nbytes: str):
    """The driver, memory of a shielded process, Triton with ptxas, torch.compile, TF32 products, the profiler."""
    import torch

    from repro.judge.gpu import driver
    from repro.judge.source import kernels as kernel_origins

    double = doubling()
    device = torch.device("cuda:0")
    torch.empty(1, device=device)  # a handle is opened in a context
    x = driver.open_handle(handle, int(nbytes), device).view(torch.float32)
    out = torch.empty_like(x)
    double[(1,)](x, out, COUNT=x.numel())
    assert torch.equal(out, torch.full_like(x, 14.0))
    compiled = torch.compile(lambda x: torch.sin(x).sum())
    assert torch.allclose(compiled(x), torch.sin(x).sum())
    x.copy_(out)
    a = torch.ones(256, 256, device=device)

    def work():
        double[(1,)](x, out, COUNT=x.numel())
        compiled(x)
        torch.mm(a, a)

    kernels, reason = kernel_origins.profile(work)
    names = " ".join(name for name, _ in kernels)
    assert not reason and kernel_origins.share(kernels, Path(__file__)) and "triton_" in names, (reason, kernels)
    assert re.search("gemm|nvjet|cutlass", names), kernels
    print(json.dumps(kernels), file=sys.stderr)


def check_shielded_gpu(scratch: Path):
    """The driver starts in a shielded process, whose /proc/self belongs to root, and hands out memory."""
    assert set(confinement.shield().values()) == {"applied"}
    import torch

    from repro.judge.gpu import driver

    data, handle = driver.allocate(64, torch.device("cuda:0"))
    assert handle and int(data.fill_(3).sum()) == 192
    driver.free(data)


# -- how they are run


def main():
    """Confines this process as `mode` says, prints what was applied, runs a check."""
    mode, name, folder, *arguments = sys.argv[1:]
    scratch = Path(folder)
    sys.modules["test_confine"] = sys.modules["__main__"]
    os.chdir(scratch)
    readable = [Path(__file__), *map(Path, arguments[1:])] if name == "check_reading" else [Path(__file__)]
    applied = {}
    if mode == "no-landlock":
        confinement._abi = lambda: (_ for _ in ()).throw(OSError(errno.ENOSYS, "Function not implemented"))  # type: ignore
    if mode != "free":
        shielded = [int(arguments[0])] if name == "check_sibling" else []
        applied = confinement.confine(scratch, readable, shielded)
    print(json.dumps(applied), flush=True)
    globals()[name](scratch, *arguments)


if __name__ == "__main__":
    main()
    raise SystemExit

import pytest  # noqa: E402


@functools.cache
def interpreter(uid: int) -> tuple[str, dict[str, str]] | None:
    """A Python that this user can start, and the path by which it finds what this one has; None where there is none."""
    path = os.pathsep.join(entry for entry in sys.path if entry and "python3" not in Path(entry).name)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for candidate in (sys.executable, f"/usr/bin/{version}"):
        env = {"PATH": os.defpath + ":/usr/local/bin", "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [candidate, "-P", "-c", "import importlib.util as u; assert u.find_spec('torch')"]
        try:
            done = subprocess.run(command, env=env, cwd="/", capture_output=True, **identity(uid), check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return candidate, env
    return None


def identity(uid: int) -> Json:
    """What starts a process as another user."""
    return {} if uid == os.getuid() else {"user": uid, "group": uid, "extra_groups": []}


Run = Callable[..., dict[str, str]]


@pytest.fixture
def tmp_path():
    """A folder that every user may reach, unlike pytest's own, which each start of pytest closes to others."""
    found = Path(tempfile.mkdtemp(prefix="repro-confined-"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found)


@pytest.fixture(params=["root", "ordinary"] if os.getuid() == 0 else ["ordinary"])
def confined(request, tmp_path):
    """Runs a check as a user, in a scratch folder of its own, and returns what was applied."""
    uid = 0 if request.param == "root" else ORDINARY if os.getuid() == 0 else os.getuid()
    found = interpreter(uid)
    if found is None:
        pytest.skip(f"user {uid} has no Python here that finds torch")
    if uid == 0 and os.environ.get("REPRO_TEST_WHOLE") != "1" and interpreter(ORDINARY) is not None:
        pytest.skip("REPRO_TEST_WHOLE=1 confines root too; workers have users of their own")
    python, env = found
    scratch, other = tmp_path / "scratch", tmp_path / "other"
    for folder in (scratch, other):
        folder.mkdir()
        os.chown(folder, uid, uid)
    (other / "known").write_text("known")
    os.chown(other / "known", uid, uid)

    def run(name, *arguments, mode="confined", fds=()):
        caches = {
            "HOME": str(scratch), "TMPDIR": str(scratch), "USER": "nobody",
            "TRITON_INTERPRET": "0" if name == "check_gpu" else "1",
            "TRITON_CACHE_DIR": f"{scratch}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor",
        }  # fmt: skip
        command = [python, "-P", __file__, mode, name, str(scratch), *map(str, arguments)]
        done = subprocess.run(
            command, env=env | caches, cwd="/", capture_output=True, text=True, pass_fds=fds, start_new_session=True,
            timeout=120, check=False, **identity(uid),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[0])

    run.other, run.uid = other, uid  # type: ignore[attr-defined]
    yield run


def landlock_here() -> int:
    """The version of Landlock of this kernel, 0 for none."""
    try:
        return confinement._abi()
    except OSError:
        return 0


needs_landlock = pytest.mark.skipif(landlock_here() < confinement._OLDEST_ABI, reason="this kernel has no Landlock")


def test_everything_is_applied_where_the_kernel_has_it(confined):
    applied = confined("check_state")
    assert list(applied) == [
        "oom_score_adj",
        "limits",
        "no_new_privs",
        "capabilities",
        "landlock",
        "pdeathsig",
        "seccomp",
    ]
    without = {name for name, said in applied.items() if not said.startswith("applied")}
    assert without <= ({"landlock"} if landlock_here() < confinement._OLDEST_ABI else set()), applied
    assert "not bound" not in applied["landlock"], "a thread ran before"


@pytest.mark.parametrize(
    "name",
    [
        "check_subprocess",
        *(pytest.param(f"check_{what}", marks=pytest.mark.slow) for what in ("torch", "triton", "compile")),
    ],
)
def test_operations_that_solutions_need_are_allowed(confined, name):
    confined(name)


def test_an_inherited_buffer_is_shared(confined):
    fd = os.memfd_create("buffer")
    os.write(fd, b"ping" + bytes(4092))
    confined("check_buffer", fd, 4096, fds=(fd,))
    assert os.pread(fd, 4, 0) == b"pong"
    os.close(fd)


@needs_landlock
def test_nothing_is_written_outside_the_scratch_folder(confined, tmp_path):
    confined("check_files", tmp_path / "other", "")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["known"]
    assert (tmp_path / "other" / "known").read_text() == "known"


@needs_landlock
def test_only_what_is_needed_is_read(confined, tmp_path):
    (tmp_path / "given").write_text("readable")
    confined("check_reading", tmp_path / "other", tmp_path / "given")


def test_sockets_cannot_connect(confined, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as service:
        monkeypatch.chdir(tmp_path)  # the name of such a socket is short
        service.bind("service")
        service.listen()
        (tmp_path / "service").chmod(0o777)
        confined("check_network", server.getsockname()[1], os.path.relpath(tmp_path / "service", tmp_path / "scratch"))


@needs_landlock
def test_the_parent_is_out_of_reach(confined):
    confined("check_parent")


def test_a_named_process_is_out_of_reach(confined):
    """The same without Landlock, whose scope covers every process outside: the filter knows the one that was named."""
    for mode in ("confined", "no-landlock"):
        sibling = subprocess.Popen(["sleep", "60"], **identity(confined.uid), start_new_session=True)  # type: ignore
        try:
            confined("check_sibling", sibling.pid, mode=mode)
            assert sibling.poll() is None
        finally:
            sibling.kill()
            sibling.wait()


def test_the_kernel_offers_nothing_more(confined):
    confined("check_kernel")


def test_without_landlock_the_rest_is_applied_and_said(confined, tmp_path):
    applied = confined("check_filter_alone", tmp_path / "other", mode="no-landlock")
    assert applied.pop("landlock").startswith("not applied: [Errno 38]")
    assert all(said.startswith("applied") for said in applied.values())


def test_a_machine_without_a_table_is_said_to_have_no_filter(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert confinement._seccomp([]) == "not applied: no table for riscv64"


def test_a_shielded_process_is_closed_to_its_own_user(confined):
    """Root reads everything, so an ordinary user looks."""
    if confined.uid == 0:  # type: ignore[attr-defined]
        pytest.skip("root may look")
    program = f"import sys, time; sys.path.insert(0, {str(confinement.config.ROOT)!r})\n" \
              "from repro.judge.isolation import confinement; "\
              "print(confinement.shield(), flush=True); time.sleep(60)"  # fmt: skip
    python, env = interpreter(confined.uid) or ("", {})  # type: ignore[attr-defined]
    judge = subprocess.Popen([python, "-P", "-c", program], env=env, cwd="/", stdout=subprocess.PIPE,
                             **identity(confined.uid))  # type: ignore[attr-defined]  # fmt: skip
    try:
        assert judge.stdout is not None
        assert judge.stdout.readline() == b"{'undumpable': 'applied', 'subreaper': 'applied'}\n"
        confined("check_peek", judge.pid, mode="free")
    finally:
        judge.kill()
        judge.communicate()


# -- tables and programs


def test_structures_have_the_kernel_s_layout():
    assert ctypes.sizeof(confinement._Ruleset) == 24
    assert ctypes.sizeof(confinement._PathBeneath) == 12 and confinement._PathBeneath.parent_fd.offset == 8
    assert ctypes.sizeof(confinement._Program) == 16 and confinement._Program.instructions.offset == 8


@pytest.mark.parametrize(
    "abi, files, net, scoped",
    [(1, 0x1FFF, 0, 0), (2, 0x3FFF, 0, 0), (3, 0x7FFF, 0, 0), (4, 0x7FFF, 3, 0), (5, 0xFFFF, 3, 0), (6, 0xFFFF, 3, 2),
     (7, 0xFFFF, 3, 2), (9, 0xFFFF, 3, 2)],
)  # fmt: skip
def test_no_kernel_is_asked_for_more_than_it_knows(abi, files, net, scoped):
    ruleset = confinement._ruleset(abi)
    assert (ruleset.files, ruleset.net, ruleset.scoped) == (files, net, scoped)


def test_the_first_landlock_is_not_used(monkeypatch):
    """It refuses every rename between folders, and Triton's cache renames."""
    monkeypatch.setattr(confinement, "_abi", lambda: 1)
    assert confinement._landlock(Path("/nowhere"), []) == "not applied: ABI 1 is too old"


def test_rules_cover_everything_around_a_hidden_folder(tmp_path):
    """Landlock knows no exceptions, so the neighbours of a hidden folder are named one by one."""
    for name in ("a/hidden/x", "a/b", "c"):
        (tmp_path / name).mkdir(parents=True)
    hidden = [tmp_path / "a" / "hidden"]
    assert sorted(confinement._around(tmp_path, hidden)) == [tmp_path / "a" / "b", tmp_path / "c"]
    assert list(confinement._around(tmp_path / "c", hidden)) == [tmp_path / "c"]
    assert list(confinement._around(hidden[0], hidden)) == []
    assert list(confinement._around(hidden[0] / "x", hidden)) == [hidden[0] / "x"], "below it, named on purpose"


def test_the_scratch_folder_may_hold_no_device_node():
    assert confinement._OWN & (confinement._MAKE_CHAR | confinement._MAKE_BLOCK | confinement._IOCTL_DEV) == 0
    assert confinement._OWN & confinement._REFER and confinement._OWN & confinement._TRUNCATE


def decide(program: bytes, arch: int, call: int, *args: int) -> int:
    """What a filter answers to a call: a BPF machine of the five instructions that it uses."""
    data = struct.pack("<IIQ6Q", call, arch, 0, *[a & (1 << 64) - 1 for a in (*args, 0, 0, 0, 0, 0, 0)[:6]])
    code = list(struct.iter_unpack("=HBBI", program))
    at = held = 0
    while True:
        kind, yes, no, value = code[at]
        at += 1
        if kind == confinement._RETURN:
            return int(value)
        if kind == confinement._LOAD:
            held = struct.unpack_from("<I", data, value)[0]
            continue
        met = {
            confinement._JUMP_EQUAL: held == value,
            confinement._JUMP_GE: held >= value,
            confinement._JUMP_SET: bool(held & value),
        }
        at += yes if met[kind] else no


REFUSED, ALLOWED = confinement._REFUSE | errno.EPERM, confinement._ALLOW


@pytest.mark.parametrize("machine, read, exit_group", [("x86_64", 0, 231), ("aarch64", 63, 94)])
def test_the_filter_of_both_machines(machine, read, exit_group):
    """Both tables are decided here, whichever machine this is."""
    column, arch = confinement._MACHINES[machine]
    program = confinement.filter_program(machine, [-1, 4321, -4321])

    def answer(call, *args):
        return decide(program, arch, call, *args)

    assert len(program) % 8 == 0 and len(program) // 8 < 4096
    assert answer(read) == answer(exit_group) == ALLOWED
    assert {answer(numbers[column]) for numbers in confinement._DENIED.values()} == {REFUSED}
    assert decide(program, confinement._MACHINES["aarch64" if machine == "x86_64" else "x86_64"][1], read) == REFUSED
    assert decide(program, 0x40000003, read) == REFUSED, "32-bit calls"
    assert answer(confinement._X32_BIT + read) == REFUSED
    families = {family: answer(confinement._SOCKET[column], family) for family in (1, 2, 10, 16, 17, 38, 40)}
    assert {family for family, said in families.items() if said == ALLOWED} == {1, 16}
    assert answer(confinement._CLONE3[column]) == confinement._REFUSE | errno.ENOSYS
    assert (
        answer(confinement._CLONE[column], 0x003D0F00) == answer(confinement._CLONE[column], signal.SIGCHLD) == ALLOWED
    )
    assert {answer(confinement._CLONE[column], 1 << bit) for bit in (17, 25, 26, 27, 28, 29, 30)} == {REFUSED}
    for call in (confinement._KILL[column], confinement._TGKILL[column]):
        assert {answer(call, pid) for pid in (-1, 4321, -4321)} == {REFUSED}
        assert {answer(call, pid) for pid in (0, 1, 4322, 99999)} == {ALLOWED}
    for numbers, argument in confinement._ON_ITSELF_ALONE.values():
        assert answer(numbers[column], *([0] * argument)) == ALLOWED
        assert answer(numbers[column], *([0] * argument), 77) == REFUSED


def test_numbers_are_those_of_the_kernel_s_headers():
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    generic = Path("/usr/include/asm-generic/unistd.h")
    if not header.exists() or not generic.exists():
        pytest.skip("the kernel's headers are not installed here")
    tables = []
    for file in (header, generic):
        words = [line.split() for line in file.read_text().splitlines() if line.startswith("#define __NR")]
        tables.append({w[1].removeprefix("__NR_").removeprefix("__NR3264_"): w[2] for w in words if len(w) > 2})
    named = {**confinement._DENIED, **{name: numbers for name, (numbers, _) in confinement._ON_ITSELF_ALONE.items()}}
    named |= {
        "socket": confinement._SOCKET,
        "clone": confinement._CLONE,
        "clone3": confinement._CLONE3,
        "kill": confinement._KILL,
    }
    named |= {"tgkill": confinement._TGKILL, "seccomp": confinement._SECCOMP}
    for name, numbers in named.items():
        for table, ours in zip(tables, numbers, strict=True):
            assert table.get(name, str(ours)) == str(ours), name


@pytest.mark.gpu
def test_a_confined_worker_uses_the_gpu(confined):
    """It opens memory of a shielded process, compiles, launches and profiles; so nothing that CUDA needs is closed."""
    import torch

    from repro.judge.gpu import driver

    confinement.shield()
    data, handle = driver.allocate(4 * 256, torch.device("cuda:0"))
    data.view(torch.float32).fill_(7)
    torch.cuda.synchronize()
    confined("check_gpu", handle, 4 * 256)
    assert float(data.view(torch.float32)[0]) == 14
    driver.free(data)


@pytest.mark.gpu
def test_a_shielded_judge_uses_the_gpu(confined):
    confined("check_shielded_gpu", mode="free")
