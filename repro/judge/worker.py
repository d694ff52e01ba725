"""The untrusted process: imports one solution and runs it on what the judge hands it.

Started as `python -m repro.judge.worker READ_FD WRITE_FD DEVICE`. It answers one JSON line to each request. It holds
no expected value, no threshold and no result: what it says of its own outputs is a tripwire, the bytes that it copies
into the judge's buffer are what counts. A trusted instance of the same program holds the torch baselines.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from repro import problems
from repro.errors import SolutionError
from repro.inputs import WEIGHT_SEED, torch_dtype
from repro.judge import binder, interpreter
from repro.judge.buffers import open_ticket, view
from repro.judge.protocol import Channel, ChannelClosed

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
MAX_FILE_BYTES = 4 << 30

# Bound before a solution is imported, so that patching torch.cuda.Event or time later changes nothing here.
_Event = torch.cuda.Event
_elapsed = torch.cuda.Event.elapsed_time
_record = torch.cuda.Event.record
_synchronize = torch.cuda.synchronize
_clock_ns = time.perf_counter_ns

# variant -> (TF32 for cuDNN, TF32 for matmul, through torch.compile)
BASELINES = {
    "eager": (True, False, False),
    "eager_fp32": (False, False, False),
    "eager_tf32": (True, True, False),
    "compile": (True, False, True),
    "compile_fp32": (False, False, True),
    "compile_tf32": (True, True, True),
}


def confine() -> None:
    """No new privileges, no core files, bounded files, first to go when memory is short, gone with the judge."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def describe(value: Any, inputs: list[Any]) -> dict[str, Any]:
    """Structure, type and memory of what a solution returned."""
    if isinstance(value, tuple | list):
        return {"kind": "sequence", "items": [describe(item, inputs) for item in value]}
    if not isinstance(value, torch.Tensor):
        return {"kind": "other", "type": type(value).__name__}
    facts: dict[str, Any] = {"kind": "tensor", "type": type(value).__name__, "plain": type(value) is torch.Tensor}
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        return facts | {"layout": str(value.layout)}
    storages = {t.untyped_storage().data_ptr() for t in inputs if isinstance(t, torch.Tensor)}
    return facts | {
        "layout": str(value.layout),
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "dense": _dense(value),
        "device": value.device.type,
        "storage_bytes": value.untyped_storage().nbytes() - value.storage_offset() * value.element_size(),
        "aliases_input": value.untyped_storage().data_ptr() in storages,
    }


def _dense(value: torch.Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlap, in some order of the dimensions."""
    order = sorted((d for d in range(value.dim()) if value.shape[d] > 1), key=value.stride, reverse=True)
    return value.permute([*order, *(d for d in range(value.dim()) if d not in order)]).is_contiguous()


class Worker:
    """State of one worker: opened buffers, the solution's module, its callables, its last output."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.buffers: dict[str, torch.Tensor] = {}
        self.state: dict[str, torch.Tensor] = {}
        self.calls: dict[str, Callable[..., Any]] = {}
        self.output: Any = None
        self.flush: torch.Tensor | None = None
        self.module: Any = None
        self.model: torch.nn.Module | None = None
        self.built_with: Any = None

    def hello(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "torch": torch.__version__}

    def attach(self, buffers: dict[str, Any]) -> dict[str, Any]:
        if self.device.type == "cuda":
            torch.cuda.init()  # opening an IPC handle before the context exists is a segmentation fault
        self.buffers = {name: open_ticket(ticket) for name, ticket in buffers.items()}
        if self.device.type == "cuda":
            size = torch.cuda.get_device_properties(self.device).L2_cache_size
            self.flush = torch.empty(max(2 * size, 1 << 20), dtype=torch.uint8, device=self.device)
        return {}

    def define(self, source: str | None, entry: str, problem: dict[str, Any], inputs: int) -> dict[str, Any]:
        """Imports the problem file and, where `source` is given, the solution; checks that `entry` is there."""
        overrides = {k: tuple(v) if isinstance(v, list) else v for k, v in problem["overrides"].items()}
        self.problem = problems.Problem(
            problem["id"], problem["id"], Path(problem["path"]), problem["dtype"], "", overrides
        )
        self.entry, self.input_count = entry, inputs
        self.problem_module = self.problem.module()
        if source is None:
            self.module = self.problem_module
            return {}
        spec = importlib.util.spec_from_file_location("solution", source)
        assert spec is not None and spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        sys.modules["solution"] = self.module
        try:
            spec.loader.exec_module(self.module)
        except SyntaxError as error:
            raise SolutionError("syntax_error", f"{error.msg} at line {error.lineno}") from error
        except BaseException as error:
            raise SolutionError("import_error", f"{type(error).__name__}: {error}") from error
        if not callable(getattr(self.module, entry, None)):
            raise SolutionError("no_entry", f"the file defines no {entry}")
        return {}

    def piece(self, name: str, dtype: str, shape: list[int], start: int, count: int) -> dict[str, Any]:
        """Elements [start, start + count) of one tensor of the state dict, from the staging buffer."""
        kind = getattr(torch, dtype)
        if start == 0:
            self.state[name] = torch.empty(shape, dtype=kind, device=self.device)
        flat = self.state[name].view(-1)
        flat[start : start + count].copy_(view(self.buffers["staging"], kind, (count,)))
        if self.device.type == "cuda":
            _synchronize()  # the judge writes the next piece over this one as soon as it is answered
        return {}

    def load(self, init: list[Any], variants: list[str]) -> dict[str, Any]:
        """Builds the model where it is new or its constructor arguments changed, then loads the weights strictly."""
        init = [tuple(v) if isinstance(v, list) else v for v in init]
        state, self.state = self.state, {}
        name = "Model" if self.entry == "kernel_function" else self.entry
        owner = self.problem_module if self.entry in ("kernel_function", "Model") else self.module
        if self.model is None or self.built_with != init:
            self.model = None
            torch.manual_seed(WEIGHT_SEED)
            model = getattr(owner, name)(*init)
            if not isinstance(model, torch.nn.Module):
                raise SolutionError("not_a_module", f"{name} is not a torch.nn.Module")
            self.model = model.to(torch_dtype(self.problem.dtype)).to(self.device).eval()
            self.built_with = init
        try:
            self.model.load_state_dict(state, strict=True)
        except RuntimeError as error:
            raise SolutionError("state_dict_mismatch", str(error)) from error
        self.bind(variants)
        return {}

    def bind(self, variants: list[str]) -> None:
        assert self.model is not None
        for variant in variants:
            if variant in BASELINES and self.entry == "Model":
                if BASELINES[variant][2]:
                    if variant not in self.calls:
                        self.calls[variant] = torch.compile(self.model)
                else:
                    self.calls[variant] = self.model
            elif self.entry == "kernel_function":
                self.calls[variant] = binder.bind(self.module.kernel_function, self.model, self.input_count)
            else:
                self.calls[variant] = self.model

    def _inputs(self, inputs: list[dict[str, Any]]) -> list[Any]:
        return [
            view(self.buffers[i["slot"]], getattr(torch, i["dtype"]), tuple(i["shape"])) if "slot" in i else i["value"]
            for i in inputs
        ]

    def _flags(self, variant: str) -> None:
        if self.entry == "Model":
            cudnn, matmul, _ = BASELINES[variant]
            torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = cudnn, matmul

    def run(self, variant: str, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """One call; its output is kept for `fetch`."""
        self.output = None
        self._flags(variant)
        values = self._inputs(inputs)
        with torch.no_grad():
            self.output = self.calls[variant](*values)
        if self.device.type == "cuda":
            _synchronize()
        return {"output": describe(self.output, values)}

    def fetch(self, path: list[int], start: int, count: int) -> dict[str, Any]:
        """Elements [start, start + count) of one output tensor into the staging buffer."""
        value = self.output
        for index in path:
            value = value[index]
        value = value.detach()
        if value.is_contiguous() or value.dim() == 0:
            flat = value.reshape(-1)[start : start + count]
        else:  # only the rows asked for: the whole would be copied
            row = value[0].numel()
            flat = value[start // row : -(-(start + count) // row)].reshape(-1)[start % row :][:count]
        view(self.buffers["staging"], flat.dtype, (count,)).copy_(flat)
        if self.device.type == "cuda":
            _synchronize()
        return {}

    def release(self) -> dict[str, Any]:
        """Lets go of the output and of cached memory, so that the next variant finds it free."""
        self.output = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return {}

    def peak(self) -> dict[str, Any]:
        """Peak bytes that this process's tensors held since the last call, and what its allocator reserved."""
        if self.device.type != "cuda":
            return {"allocated": None, "reserved": None}
        facts = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
        torch.cuda.reset_peak_memory_stats()
        return facts

    def time(self, variant: str, inputs: list[dict[str, Any]], calls: int) -> dict[str, Any]:
        """`calls` timed calls with a flushed L2 before each; milliseconds by events and by the host's clock."""
        self.output = None
        self._flags(variant)
        values, call = self._inputs(inputs), self.calls[variant]
        device_ms, host_ms = [], []
        cuda = self.device.type == "cuda"
        with torch.no_grad():
            if cuda:  # the block before let go of all memory: this call takes it again
                self.output = call(*values)
            for _ in range(calls):
                self.output = None
                if cuda and self.flush is not None:
                    self.flush.zero_()
                    start, end = _Event(enable_timing=True), _Event(enable_timing=True)
                    _synchronize()
                    begin = _clock_ns()
                    _record(start)
                    self.output = call(*values)
                    _record(end)
                    _synchronize()
                    host_ms.append((_clock_ns() - begin) / 1e6)
                    device_ms.append(float(_elapsed(start, end)))
                else:
                    begin = _clock_ns()
                    self.output = call(*values)
                    host_ms.append((_clock_ns() - begin) / 1e6)
        return {"device_ms": device_ms or host_ms, "host_ms": host_ms, "output": describe(self.output, values)}


def answer(worker: Worker, message: dict[str, Any]) -> dict[str, Any]:
    """Runs one request; an exception becomes an answer with a reason code."""
    op = message.pop("op")
    try:
        result: dict[str, Any] = getattr(worker, op)(**message)
        return result
    except SolutionError as error:
        return {"error": error.detail, "code": error.code}
    except torch.cuda.OutOfMemoryError as error:
        return {"error": str(error), "code": "out_of_memory"}
    except MemoryError as error:
        return {"error": f"MemoryError: {error}", "code": "out_of_memory"}
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        # torch's allocator on the CPU raises a plain RuntimeError
        code = "out_of_memory" if "DefaultCPUAllocator: can't allocate memory" in str(error) else "exception"
        return {"error": f"{type(error).__name__}: {error} ({where})", "code": code}


def main() -> None:
    """Serves requests until the judge closes the pipe."""
    confine()
    channel = Channel(int(sys.argv[1]), int(sys.argv[2]))
    for fd in (channel.read_fd, channel.write_fd):
        os.set_inheritable(fd, False)
    worker = Worker(torch.device(sys.argv[3]))
    if worker.device.type == "cpu":
        torch.set_num_threads(1)
        interpreter.mend()
    with contextlib.suppress(ChannelClosed):
        while True:
            channel.send(answer(worker, channel.receive()))


if __name__ == "__main__":
    main()
