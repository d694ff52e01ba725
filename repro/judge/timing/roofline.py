"""Measured ceilings of this GPU, and two times of a problem that follow: the floor, and the impossible time.

Ceilings are kept for a week in the state folder, in one file for each GPU, driver and torch version. They are measured
again earlier if the GPU's limits changed or a short copy disagrees with them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import stat
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pynvml
import torch

from repro import config
from repro.judge.correctness.precision import exact_float32
from repro.judge.gpu.memory import handle
from repro.problems.catalogue import ITEMSIZE, Problem
from repro.records.result import Ceilings
from repro.system import jsonio

# Size of copied, read or written memory: starting and ending such a kernel is less than 0.3 % of its time of 1 ms.
_COPY_BYTES, _COPY_SHARE = 2 << 30, 16
_MATMUL_SIZE = 8192
_BURST = 8
# A time below this fraction of what the ceilings allow is impossible. They are known to a few per cent.
_IMPOSSIBLE = 0.9
# Changes with the measurement, so that older files are ignored.
_CACHE_VERSION = 2
_KEPT_S = 7 * 86400.0
# Copies of the check of a kept entry: 24 ms at 4.3 TB/s.
_CHECK_REPEATS, _CHECK_TOLERANCE = 3, 0.03
_RATES = ("copy_tb_s", "read_tb_s", "write_tb_s", "bf16_tflop_s", "fp16_tflop_s", "tf32_tflop_s", "fp32_tflop_s")
Identity = dict[str, str | float | None]
Clocks = dict[str, float | None]


@dataclass(frozen=True)
class Entry:
    """A measurement in its file. of: the GPU, software and limits that it belongs to. clocks: MHz."""

    of: Identity
    measured_s: float
    rates: dict[str, float]
    clocks: Clocks = field(default_factory=dict)
    version: int = _CACHE_VERSION


def _median_ms(call: Callable[[], Any], repeats: int) -> float:
    """Return the median of `repeats` bursts of _BURST calls, ms a call. A single call of 0.25 ms reads 3 % high."""
    call()
    samples: list[float] = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(_BURST):
            call()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) / _BURST)
    return statistics.median(samples)


def _copy_bytes(device: torch.device) -> int:
    """Return _COPY_BYTES, or less on a small GPU."""
    return int(min(_COPY_BYTES, torch.cuda.get_device_properties(device).total_memory // _COPY_SHARE >> 20 << 20))


def _copy_tb_s(device: torch.device, repeats: int) -> float:
    """Measure the rate of a copy: bytes read plus bytes written, TB/s."""
    size = _copy_bytes(device)
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    return 2 * size / _median_ms(lambda: target.copy_(source), repeats) / 1e9


def _rates(device: torch.device) -> dict[str, float]:
    """Measure copy, read, write and matmul ceilings, TB/s and TFLOP/s, on random data."""
    result = {"copy_tb_s": _copy_tb_s(device, 20)}
    size = _copy_bytes(device)
    source = torch.randn(size // 4, device=device)
    # A float64 sum over half as many elements is bound by memory where a float32 sum may be bound by additions.
    wide = source.view(torch.float64)
    result["read_tb_s"] = size / min(_median_ms(s.sum, 20) for s in (source, wide)) / 1e9
    result["write_tb_s"] = size / _median_ms(lambda: source.fill_(1.0), 20) / 1e9
    source = wide = torch.empty(0)
    torch.cuda.empty_cache()
    flop = 2.0 * _MATMUL_SIZE**3
    for name, dtype, tf32, repeats in (
        ("bf16_tflop_s", torch.bfloat16, False, 5),
        ("fp16_tflop_s", torch.float16, False, 5),
        ("tf32_tflop_s", torch.float32, True, 3),
        ("fp32_tflop_s", torch.float32, False, 1),
    ):
        a = torch.randn(_MATMUL_SIZE, _MATMUL_SIZE, device=device, dtype=dtype)
        b = torch.randn(_MATMUL_SIZE, _MATMUL_SIZE, device=device, dtype=dtype)
        with exact_float32():
            torch.backends.cuda.matmul.allow_tf32 = tf32
            result[name] = flop / _median_ms(functools.partial(torch.matmul, a, b), repeats) / 1e9
        del a, b
        torch.cuda.empty_cache()
    return {name: round(value, 3) for name, value in result.items()}


def _identity(device: torch.device) -> tuple[Identity, Clocks]:
    """Return (the identity of an entry, the clocks in MHz now). Values that NVML does not report are None."""
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    of: Identity = {"gpu": uuid, "torch": torch.__version__, "driver": None}
    h = handle(uuid)
    driver = _queried(pynvml.nvmlSystemGetDriverVersion)
    if h is None or driver is None:
        return of, {}
    of["driver"] = driver.decode() if isinstance(driver, bytes) else driver
    sm, memory = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
    limits: dict[str, Callable[[], Any]] = {
        "max_sm_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(h, sm),
        "max_memory_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(h, memory),
        "power_limit_w": lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
    }
    clocks: dict[str, Callable[[], Any]] = {
        "sm_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(h, sm),
        "memory_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(h, memory),
    }
    known: Clocks = {name: _queried(query) for name, query in clocks.items()}
    return of | {name: _queried(query) for name, query in limits.items()}, known


def _queried(query: Callable[[], Any]) -> Any:
    try:
        return query()
    except pynvml.NVMLError:
        return None


def _file(of: Identity) -> Path:
    name = hashlib.sha256(f"{of['gpu']}|{of['torch']}|{of['driver']}".encode()).hexdigest()[:16]
    return config.state_dir() / "ceilings" / f"{name}.json"


def _kept(path: Path, of: Identity, now_s: float) -> Entry | None:
    """Return the entry of a file; None if it is missing, broken, old, of other limits, or writable by other users."""
    try:
        with path.open() as stream:
            facts = os.fstat(stream.fileno())
            entry = Entry(**json.load(stream))
        if facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return None
        whole = entry.version == _CACHE_VERSION and entry.of == of
        fresh = 0 <= now_s - float(entry.measured_s) <= _KEPT_S
        rates = {name: float(entry.rates[name]) for name in _RATES}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    usable = all(math.isfinite(rate) and rate > 0 for rate in rates.values())
    return entry if whole and fresh and usable else None


def _keep(path: Path, entry: Entry) -> None:
    """Write an entry. If the folder cannot be written, the next run measures again."""
    try:
        jsonio.write(path, asdict(entry))
        path.chmod(0o644)
    except OSError:
        return


@functools.cache
def measure(device: torch.device) -> Ceilings:
    """Return the ceilings of a GPU, measured now or taken from their file."""
    of, clocks = _identity(device)
    path, now_s = _file(of), time.time()
    entry = _kept(path, of, now_s)
    if entry is not None:
        short = _copy_tb_s(device, _CHECK_REPEATS)
        torch.cuda.empty_cache()
        if abs(short / entry.rates["copy_tb_s"] - 1) > _CHECK_TOLERANCE:
            entry = None
    cached = entry is not None
    if entry is None:
        rates = _rates(device)
        entry = Entry(of, now_s, rates, _identity(device)[1])
        _keep(path, entry)
    limits = {n: value for n, value in of.items() if n.startswith(("max_", "power_")) and not isinstance(value, str)}
    at = datetime.fromtimestamp(entry.measured_s, UTC).isoformat(timespec="seconds")
    measured = {name: entry.rates[name] for name in _RATES}
    return Ceilings(**measured, cached=cached, measured_at=at, limits=limits, clocks=entry.clocks)


def rate(klass: str, ceilings: Mapping[str, float]) -> float:
    """Return the TFLOP/s that bound a result of this precision class.

    The tf32 class also holds fp16 kernels, so its rate is fp16's. An honest fp32 product can be split into three of
    half the mantissa (tf32 or bf16), so its rate is at least a third of theirs.
    """
    if klass == "fp32":
        return max(ceilings["fp32_tflop_s"], ceilings["tf32_tflop_s"] / 3, ceilings["bf16_tflop_s"] / 3)
    return ceilings[{"tf32": "fp16_tflop_s", "bf16": "bf16_tflop_s"}[klass]]


def _bytes(problem: Problem) -> int:
    assert problem.work is not None
    return (problem.work.read_elements + problem.work.written_elements) * ITEMSIZE[problem.dtype]


def _memory_ms(problem: Problem, ceilings: Mapping[str, float]) -> float:
    """Return the time of the compulsory bytes, ms, at the rate of their mix of reads and writes.

    Reading, copying and writing are measured; the time of a byte is interpolated between them. Memory that is only read
    is faster than in a copy.
    """
    assert problem.work is not None
    read, written = problem.work.read_elements, problem.work.written_elements
    copy = ceilings["copy_tb_s"]
    pure = max(copy, ceilings["read_tb_s" if read > written else "write_tb_s"])
    mixed = 2 * min(read, written) / (read + written)
    return _bytes(problem) * (mixed / copy + (1 - mixed) / pure) / 1e9


def floor_ms(problem: Problem, klass: str, ceilings: Mapping[str, float]) -> float | None:
    """Return the lower bound of an efficient kernel's time, ms; None if the problem's work is unknown.

    It is the larger of the bytes' time and the operations' time at the class's rate. Problems without contractions are
    bound by memory.
    """
    if problem.work is None:
        return None
    return max(_memory_ms(problem, ceilings), problem.work.flop / rate(klass, ceilings) / 1e9)


def impossible_ms(problem: Problem, klass: str, ceilings: Mapping[str, float]) -> float | None:
    """Return the time in ms below which no honest kernel can be; None if the problem's work is unknown.

    It takes the bytes at the fastest memory rate and the operations of the best known algorithm, less the ceilings'
    uncertainty.
    """
    if problem.work is None:
        return None
    fastest = max(ceilings[name] for name in ("copy_tb_s", "read_tb_s", "write_tb_s"))
    needed = problem.work.flop * problem.work.fast_algorithm
    return _IMPOSSIBLE * max(_bytes(problem) / fastest, needed / rate(klass, ceilings)) / 1e9
