"""What a job holds while it runs: one GPU, and the host's processors that go with it.

Two jobs on one GPU would disturb each other's times. A GPU is therefore leased by a lock on a file with its UUID, which
every run of repro on the machine respects. It has SHARED places: a job takes all, one that is not timed a single one.
Jobs on different GPUs would disturb each other's compilation and launches. Each GPU of a run therefore has processors
of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from repro import config
from repro.errors import EngineError, PrerequisiteError

Progress = Callable[[str], None]
_POLL_S = 0.5
# Most of their time is the host's.
SHARED = 3
# Said once before a wait; a caller that raises at this line does not wait.
WAITING = "waiting for a GPU: other jobs or runs hold them all"
# How long a job waits for another GPU than a throttled one, or for the only one to cool.
_COOL_S = 60.0
_PROCESSORS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Lease:
    """What one job holds. gpu: a UUID, or an index where NVML does not answer; None on the CPU. cpus: the processors
    of this GPU; empty if the job may use all."""

    gpu: str | None = None
    cpus: frozenset[int] = frozenset()

    @property
    def cpuset(self) -> str | None:
        """Return the processors as a container's engine takes them, such as `0,1,64`; None for all."""
        return ",".join(map(str, sorted(self.cpus))) or None


def visible() -> list[str]:
    """Return the UUIDs of this machine's GPUs by NVML, in index order; empty if there is none."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
    except pynvml.NVMLError:
        return []


def kinds() -> dict[str, str]:
    """Return UUID -> product and memory of this machine's GPUs by NVML, such as `NVIDIA H100 80GB HBM3, 80 GiB`.

    Times on GPUs of different kinds do not compare.
    """
    import pynvml

    kinds_of = {}
    for uuid in visible():
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        total = pynvml.nvmlDeviceGetMemoryInfo(handle).total
        kinds_of[uuid] = f"{pynvml.nvmlDeviceGetName(handle)}, {round(total / 2**30)} GiB"
    return kinds_of


def select(gpus: str) -> list[str]:
    """Return the GPUs that `GPUS` names, each once: `all`, `none`, indices or UUIDs.

    Indices are kept if NVML does not answer.
    """
    if gpus == "none":
        return []
    known = visible()
    if gpus == "all":
        return known
    names = [name.strip() for name in gpus.split(",") if name.strip()]
    try:
        return list(dict.fromkeys(known[int(name)] if name.isdigit() and known else name for name in names))
    except IndexError:
        raise PrerequisiteError(f"no GPU {gpus}", f"this machine has {len(known)}") from None


def cores() -> list[frozenset[int]]:
    """Return the cores that this process may use, socket by socket, each as its hardware threads."""
    allowed = os.sched_getaffinity(0)
    socket_of: dict[frozenset[int], int] = {}
    for cpu in sorted(allowed):
        topology = _PROCESSORS / f"cpu{cpu}" / "topology"
        try:
            siblings = _listed((topology / "thread_siblings_list").read_text())
            socket = int((topology / "physical_package_id").read_text())
        except (OSError, ValueError):
            siblings, socket = {cpu}, 0
        socket_of.setdefault(frozenset(siblings & allowed), socket)
    return sorted(socket_of, key=lambda core: (socket_of[core], min(core)))


def _listed(text: str) -> set[int]:
    """Return the numbers of a list such as `0-2,64`."""
    edges = [part.split("-") for part in text.strip().split(",")]
    return {number for edge in edges for number in range(int(edge[0]), int(edge[-1]) + 1)}


def leases(gpus: list[str]) -> list[Lease]:
    """Return a lease for each GPU, with an equal share of the cores; all cores if the machine has one GPU or few cores.

    A share is fixed, so that a GPU has the same processors however many jobs and runs use the machine's others.
    """
    of, every = cores(), [*dict.fromkeys([*visible(), *gpus])]
    each = len(of) // len(every) if len(every) > 1 else 0
    return [Lease(every[at], frozenset().union(*of[at * each : (at + 1) * each])) for at in map(every.index, gpus)]


def _opened(name: str) -> BinaryIO:
    """Open a lock that all users of this machine respect, for reading. Raises EngineError."""
    try:
        file = config.shared_state() / name
        with contextlib.suppress(FileExistsError):  # a file of another user can be opened, but not created again
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDONLY, 0o666))
            file.chmod(0o644)
        return file.open("rb")
    except OSError as error:
        remedy = "Name a folder that all users share in REPRO_STATE."
        raise EngineError("the GPU cannot be locked", f"{error.filename}: {error.strerror}", remedy) from error


def _throttled(lease: Lease, candidates: list[Lease], avoid: str) -> bool:
    """Return whether a GPU is the one to avoid; of an only one, whether it is not yet cool."""
    from repro.fingerprint import gpu, query

    uuid = str(lease.gpu)
    return not gpu.cool(uuid) if len(candidates) == 1 else query.hashed(uuid) == avoid


def _locked(lease: Lease, place: int) -> BinaryIO | None:
    """Lock one of a GPU's SHARED places; return the open lock, or None if another holds it."""
    stream = _opened(f"place-{lease.gpu}-{place}.lock" if place else f"gpu-{lease.gpu}.lock")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stream.close()
        return None
    return stream


def _taken(
    candidates: list[Lease],
    mine: dict[tuple[Lease, int], BinaryIO],
    kept: contextlib.ExitStack,
    *,
    shares: bool,
) -> Lease | None:
    """Lock the places that are free, until there are enough of one GPU: then let go the others and return it.

    mine: what was locked before, and is now. kept: closes it in the end.
    """
    places = itertools.product(candidates, range(SHARED))
    # where jobs share, a second one on a GPU comes after one on each
    for lease, place in sorted(places, key=lambda each: each[1]) if shares else places:
        before = shares or not place or (lease, place - 1) in mine
        if before and (lease, place) not in mine and (stream := _locked(lease, place)):
            mine[lease, place] = kept.enter_context(stream)
            if shares or place == SHARED - 1:
                for other in (lock for (gpu, _), lock in mine.items() if gpu is not lease):
                    other.close()
                return lease
    return None


@contextlib.contextmanager
def hold(
    candidates: list[Lease],
    progress: Progress,
    stopping: threading.Event | None = None,
    avoid: str = "",
    shares: bool = False,
) -> Iterator[Lease]:
    """Hold the first of `candidates` whose GPU is free while the block runs; wait if all are taken.

    avoid: hash of the UUID of a GPU that was throttled. For _COOL_S it is left alone; if it is the only one, until it
    is cool. shares: whether one place of a GPU is enough, and not all. A call that waits for all keeps those that it
    has, so that the others come to an end. Yields an empty lease without candidates. Raises EngineError if `stopping`
    is set before it holds one.
    """
    waited, patience = False, time.monotonic() + _COOL_S
    with contextlib.ExitStack() as kept:
        mine: dict[tuple[Lease, int], BinaryIO] = {}
        while stopping is None or not stopping.is_set():
            if not candidates:
                yield Lease()
                return
            hot = bool(avoid) and time.monotonic() < patience
            allowed = [lease for lease in candidates if not (hot and _throttled(lease, candidates, avoid))]
            if lease := _taken(allowed, mine, kept, shares=shares):
                yield lease
                return
            if not waited:
                first = f"at most {_COOL_S:.0f} s, for one that is not throttled"
                progress(f"waiting for a GPU: {first}" if avoid else WAITING)
                waited = True
            time.sleep(_POLL_S)
    raise EngineError("the run was stopped", "the job had not begun")


@contextlib.contextmanager
def confined(cpus: frozenset[int]) -> Iterator[None]:
    """Start child processes on these processors while the block runs; an empty set changes nothing.

    Only this thread's affinity changes, and a child inherits that of the thread that starts it.
    """
    if not cpus:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
