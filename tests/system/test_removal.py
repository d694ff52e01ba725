"""Removing what untrusted code could write to: all of it goes, and nothing beside it."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import CLEAN_ENV, ROOT, until

from repro.judge.isolation import uids
from repro.judge.processes import launcher as launch
from repro.system import procfs, removal


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder whose path is short, and open to every user; pytest's own clearing would meet what is left."""
    with tempfile.TemporaryDirectory(prefix="repro-folders-") as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)
        subprocess.run(["rm", "-rf", folder], check=True)
        os.mkdir(folder)


def nest(folder: Path, depth: int, aside: str = "") -> None:
    """A folder with N folders in each other, from below, for the path of the lowest is too long; aside: a file
    that lies beside each."""
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        if aside:
            os.close(os.open(aside, os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.mkdir("a" * 20, dir_fd=here)
        inner = os.open("a" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_a_folder_nested_deeper_than_calls_descriptors_and_paths_go_is_removed(room):
    """shutil.rmtree ended in an unexpected RecursionError, or ran out of descriptors and left it."""
    depth = 500 + max(sys.getrecursionlimit(), 1024)
    assert depth * 21 > os.pathconf("/", "PC_PATH_MAX")
    nest(room / "deep", depth, aside="file")
    (room / "deep" / "beside").mkdir()
    (room / "deep" / "beside" / "file").touch()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # what earlier tests left open
    count = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 8, before[1]))
    try:
        removal.remove(room / "deep")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert not list(room.iterdir())
    assert len(os.listdir("/proc/self/fd")) == count


def test_links_are_removed_and_what_they_name_stays(room):
    (room / "kept" / "inner").mkdir(parents=True)
    (room / "kept" / "file").write_text("x")
    (room / "gone").mkdir()
    (room / "gone" / "folder").symlink_to(room / "kept")
    (room / "gone" / "file").symlink_to(room / "kept" / "file")
    (room / "link").symlink_to(room / "kept")
    os.mkfifo(room / "gone" / "pipe")
    removal.remove(room / "gone")
    removal.remove(room / "link")
    removal.remove(room / "never there" / "nor this")
    removal.remove(room / "kept" / "file")
    assert {path.name for path in room.iterdir()} == {"kept", "link"}
    assert (room / "kept" / "file").read_text() == "x" and (room / "kept" / "inner").is_dir()


def _as_user(work: str, folder: Path) -> None:
    """Does some work in a folder as a user without rights, where this is root."""
    become = f"uids.become({uids.LAST_UID}); " if os.geteuid() == 0 else ""
    imports = "import os, sys; from repro.system import removal; from repro.judge.isolation import uids; "
    program = f"{imports}{become}{work}"
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, env=os.environ | {"PYTHONPATH": "."})


def test_folders_that_their_owner_closed_are_removed(room):
    """chmod does not keep a folder where it is."""
    _as_user(
        "os.chdir(sys.argv[1]); os.makedirs('mine/closed/in'); os.makedirs('mine/read only/in'); "
        "os.chmod('mine/closed', 0); os.chmod('mine/read only', 0o500)",
        room,
    )
    _as_user("removal.remove(sys.argv[1] + '/mine')", room)
    assert not list(room.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")
def test_an_unremovable_entry_does_not_keep_the_rest(room):
    _as_user("os.makedirs(sys.argv[1] + '/mine/a'); os.makedirs(sys.argv[1] + '/mine/b')", room)
    (room / "mine" / "theirs").mkdir(mode=0o700)
    (room / "mine" / "theirs" / "file").touch()
    _as_user("removal.remove(sys.argv[1] + '/mine')", room)
    assert [path.name for path in (room / "mine").iterdir()] == ["theirs"]
    removal.remove(room / "mine")
    assert not list(room.iterdir())


def test_a_worker_that_nests_folders_is_cleared_away(monkeypatch, room):
    """The launcher died of one, and with it every solution that was still to be judged."""
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    nest(room / "scratch", 1500)
    launch.Launcher()._clear(launch.Started(0, str(room / "scratch"), None, []))
    assert not list(room.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives workers users of their own")
@pytest.mark.parametrize("left", ["warden", "nobody"])
def test_a_workers_user_that_nests_folders_is_cleared_away(monkeypatch, room, left):
    """In its scratch folder and beside it, by its warden or, where that is gone, by the launcher."""
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    launcher = launch.Launcher()
    uid = uids.LAST_UID
    worker = launcher._warden(uid, "nests")
    for place in ("scratch", "beside"):
        folder = Path(worker.scratch) / "deep" if place == "scratch" else room / "beside"
        nest(folder, 1500)
        subprocess.run(["chown", "-R", str(uid), folder], check=True)
    if left == "nobody":
        os.kill(launcher.wardens[worker.commands], 9)
    launcher._clear(worker)
    assert not list(room.iterdir())


SYSTEM_V = """
import ctypes, os, sys
from repro.judge.isolation import uids
libc = ctypes.CDLL(None)
own, mode = uids.LAST_UID, 0o1666
def made():
    return [libc.shmget(7, 4096, mode), libc.semget(7, 1, mode), libc.msgget(7, mode)]
others = libc.shmget(9, 4096, mode)
uids.become(own)
assert min(made()) >= 0
uids.clear("/nowhere")
print([call(7, *rest) for call, *rest in ((libc.shmget, 0, 0), (libc.semget, 0, 0), (libc.msgget, 0))])
print(libc.shmget(9, 0, 0) == others)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives workers users of their own")
def test_a_worker_leaves_nothing_that_outlives_processes(room):
    """The next worker of the same user id read the shared memory of the one before."""
    env = CLEAN_ENV | {"PYTHONPATH": str(ROOT), "TMPDIR": str(room)}
    try:
        done = subprocess.run([sys.executable, "-c", SYSTEM_V], env=env, capture_output=True, text=True, check=True)
    finally:
        subprocess.run(["ipcrm", "-M", "9"], check=False, capture_output=True)
    assert done.stdout == "[-1, -1, -1]\nTrue\n", done.stderr


MAKER = """
import os, signal, subprocess, sys
from pathlib import Path
from repro.system import procfs, removal
with removal.removed(Path(sys.argv[1])) as held:
    Path(sys.argv[1]).mkdir()
    program = "import os, sys; print(os.getpid(), flush=True); sys.stdin.readline()"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=0, pass_fds=[held])
    sys.stdin.close()
    if sys.argv[2] == "killed":
        signal.pause()
"""


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_a_folder_is_removed_when_its_maker_and_the_processes_that_hold_it_have_ended(how, tmp_path):
    """Nothing that removes it is a child of its maker."""
    folder, command = tmp_path / "folder", [sys.executable, "-c", MAKER, tmp_path / "folder", how]
    env = CLEAN_ENV | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdin is not None and maker.stdout is not None
        child = int(maker.stdout.readline())
        if how == "killed":
            assert procfs.children(maker.pid) == [child]
            maker.kill()
            maker.wait()
        time.sleep(0.2)
        assert folder.exists(), "a process holds it"
        maker.stdin.close()
        if how == "ended":
            assert maker.wait(20) == 0 and not folder.exists()
        until(lambda: not folder.exists(), 20)
