"""What torch.compile made of the baselines, kept from one job to the next on a machine.

A worker of a baseline receives what an earlier job kept through its staging buffer, and compiles only what is missing.
The judge never interprets these bytes, and no worker reaches the folder: it is the judge's user's alone. It is used
only if every worker has a user of its own. The name of a file is the hash of everything that a compilation depends on,
with the problem's whole source, so that no problem can change another one's baselines.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import torch

from repro import config
from repro.errors import SolutionDied, SolutionError, SolutionTimeout
from repro.judge import baselines
from repro.judge.correctness.verification import Evaluation
from repro.judge.implementation import Implementation
from repro.problems.plan import Weights

_Answer = TypeVar("_Answer")
# All files together. Beyond that, those go that were used longest ago.
MOST_BYTES = 2 << 30


def first_call(
    evaluation: Evaluation, implementation: Implementation, variant: str, call: Callable[[], _Answer]
) -> _Answer:
    """Return the answer of a baseline's first call, with what an earlier job kept, and keep what it adds to that.

    A call that fails with what was kept is made again without it.
    """
    us, workers = os.geteuid(), evaluation.workers
    if variant.startswith("eager") or variant in implementation.made or implementation.hello.get("uid", us) == us:
        return call()
    name = _name(evaluation, variant)
    found = _read(name)
    if found:
        data = torch.frombuffer(bytearray(found), dtype=torch.uint8)
        workers.send(implementation, Weights([], {"compiled": data}))
        with contextlib.suppress(SolutionError):
            workers.ask(implementation, {"op": "take"})
    try:
        answer = call()
    except SolutionError as error:
        with contextlib.suppress(OSError):  # the next job compiles it anew
            (_folder() / name).unlink(missing_ok=True)
        if not found or isinstance(error, SolutionDied | SolutionTimeout):
            raise
        workers.ask(implementation, {"op": "forget", "variant": variant})
        answer = call()
    with contextlib.suppress(SolutionError):  # what cannot be kept costs no baseline
        _keep(evaluation, implementation, variant, name)
    return answer


def _keep(evaluation: Evaluation, implementation: Implementation, variant: str, name: str) -> None:
    """Note how many graphs a worker made anew, and keep them. Raises SolutionError if it does not give them."""
    workers = evaluation.workers
    made = workers.ask(implementation, {"op": "compiled"})
    size, graphs = made["size"], made["graphs"]
    assert isinstance(size, int) and isinstance(graphs, int)
    implementation.made[variant] = graphs
    if graphs and size <= MOST_BYTES:
        step, fetch = evaluation.slots.staging_bytes, evaluation.comparison.elements
        counts = {start: min(step, size - start) for start in range(0, size, step)}
        pieces = (fetch(implementation, (), torch.uint8, *each).cpu().numpy() for each in counts.items())
        _write(name, b"".join(map(bytes, pieces)))
    workers.release(implementation)


def _name(evaluation: Evaluation, variant: str) -> str:
    """Return the hash of all that a compilation depends on: stack, GPU, flags, problem, weights' shapes."""
    facts = (
        (torch.__version__, torch.version.cuda, metadata.version("triton")),
        evaluation.slots.device.type == "cuda" and torch.cuda.get_device_name(),
        Path(baselines.__file__).read_bytes(),
        evaluation.problem.message(),
        evaluation.fixture.weights_sha256,
        variant,
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()


# -- the folder --------------------------------------------------------------------------------------------------------


def _folder() -> Path:
    """Return the folder, made if it is missing. Raises OSError if another user could write to it or exchange it."""
    folder = config.compiled_dir()
    folder.mkdir(0o700, parents=True, exist_ok=True)
    owners = {path.lstat().st_uid for path in (folder, folder.parent)}
    if folder.lstat().st_mode != stat.S_IFDIR | 0o700 or not owners <= {0, os.geteuid()}:
        raise PermissionError(f"other users may change {folder}")
    return folder


def _read(name: str) -> bytes:
    """Return a file's bytes, and note that it was used; none if there is no such file or the folder is not ours."""
    with contextlib.suppress(OSError):
        file = _folder() / name
        os.utime(file)
        return file.read_bytes()
    return b""


def _write(name: str, data: bytes) -> None:
    """Write a file whole or not at all, and remove those used longest ago while all are larger than MOST_BYTES."""
    with contextlib.suppress(OSError):
        folder, total = _folder(), 0
        new = folder / secrets.token_hex()
        new.write_bytes(data)
        new.replace(folder / name)
        for file in sorted(folder.iterdir(), key=os.path.getmtime, reverse=True):
            total += file.stat().st_size
            if total > MOST_BYTES:
                file.unlink()
