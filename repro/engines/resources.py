"""An exclusive lease of one GPU, since two jobs on one GPU would disturb each other's times."""

from __future__ import annotations

import contextlib
import fcntl
import threading
import time
from collections.abc import Callable, Iterator

from repro import config
from repro.errors import EngineError, PrerequisiteError

POLL_S = 0.5


def visible() -> list[str]:
    """Return the UUIDs of this machine's GPUs by NVML, in index order; empty if there is none."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
    except pynvml.NVMLError:
        return []
    return [u.decode() if isinstance(u, bytes) else u for u in uuids]


def select(gpus: str) -> list[str]:
    """Return the GPUs that `GPUS` names: `all`, `none`, indices or UUIDs. Indices are kept if NVML does not answer."""
    if gpus == "none":
        return []
    known = visible()
    if gpus == "all":
        return known
    names = [name.strip() for name in gpus.split(",") if name.strip()]
    try:
        return [known[int(name)] if name.isdigit() and known else name for name in names]
    except IndexError:
        raise PrerequisiteError(f"no GPU {gpus}", f"this machine has {len(known)}") from None


@contextlib.contextmanager
def hold(
    candidates: list[str], progress: Callable[[str], None], stopping: threading.Event | None = None
) -> Iterator[str | None]:
    """Hold the first free GPU of `candidates` while the block runs; wait if all are taken.

    Yields None without candidates. Raises EngineError if `stopping` is set while it waits.
    """
    if not candidates:
        yield None
        return
    folder = config.state_dir()
    folder.mkdir(parents=True, exist_ok=True)
    waited = False
    while True:
        for name in candidates:
            stream = (folder / f"gpu-{name}.lock").open("a")
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                stream.close()
                continue
            with stream:
                yield name
            return
        if not waited:
            progress("waiting for a GPU: another run of repro holds the lease")
            waited = True
        if stopping is not None and stopping.is_set():
            raise EngineError("the run was stopped", "it waited for a GPU")
        time.sleep(POLL_S)
