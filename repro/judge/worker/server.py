"""The untrusted process: imports one solution and runs it on the judge's inputs.

The fork server starts it, confined. It answers each request with one JSON line. It holds no expected value, threshold
or result. Its description of outputs is a tripwire; the judge decides by the bytes copied into its own buffer. Trusted
instances of the same program run the torch baselines.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import functools
import gc
import inspect
import io
import os
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from repro import config
from repro.errors import SolutionError
from repro.judge import baselines
from repro.judge.gpu import commitment, driver
from repro.judge.gpu.shared_memory import Input, Ticket, open_ticket, view
from repro.judge.processes import preload
from repro.judge.processes.wire import TUNES, Channel, ChannelClosed, Json
from repro.judge.source import kernels as kernel_origins
from repro.judge.worker import binding, fresh_memory, no_gpu, triton_interpreter
from repro.judge.worker.outputs import address, describe, digest, mark, nbytes, part, sealed, sums
from repro.problems import catalogue
from repro.problems.plan import WEIGHT_SEED, constructed, torch_dtype
from repro.system import importing

if TYPE_CHECKING:
    from repro.judge.processes.forkserver import Request

# Bound before a solution is imported, so that a solution cannot change them by patching torch.cuda.Event or time.
_Event = torch.cuda.Event
_elapsed = torch.cuda.Event.elapsed_time
_record = torch.cuda.Event.record
_synchronize = torch.cuda.synchronize
_stream = torch.cuda.current_stream
_clock_ns = time.perf_counter_ns
_no_grad = torch.no_grad

# A torch mode that a solution leaves on could do its work when the judge first touches the output.
_MODES = (torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack)

# Memory that a worker must leave free for the judge's chunks; the worker may use the rest.
_JUDGE_RESERVE_BYTES = 3 << 30
# Definitions that are named where none is an entry point.
_NAMED = 5
# The most bytes and the most earlier outputs that are kept, as a caller may keep them, to see whether a later call
# returns the same memory or changes them.
HOLD_BYTES, MOST_HELD = 256 << 20, 3
# The most frames of an error's trace, and the most characters of its message.
TRACE_LINES, TRACE_CHARS = 8, 2000
# Microseconds of a kernel between the wait for the inputs and the first event. Meanwhile the GPU switches from the
# judge's context to this one, before the call's clock begins.
_LEAD_US = 20.0


class Filled(TorchDispatchMode):
    """Fills the memory that torch.empty and its like return: with marks, or with zeros."""

    def __init__(self, fill: str) -> None:
        super().__init__()
        self._fill = mark if fill == "marks" else torch.Tensor.zero_

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if "empty" in str(func) and isinstance(made, torch.Tensor):
            self._fill(made)
        return made


def _tuned_before() -> None:
    """Have torch find how kernels were tuned that another job compiled. It looks beside their source, in that job's
    folder, and tunes again where a kernel began with its best configuration, or with one alone."""
    from torch._inductor.runtime import autotune_cache
    from torch._inductor.runtime import triton_heuristics as tuning
    from torch._inductor.runtime.cache_dir_utils import cache_dir
    from torch._inductor.runtime.runtime_utils import triton_config_to_hashable as same

    cache, kernel = autotune_cache.AutotuneCache, tuning.CachingAutotuner
    set_up, check = cache._setup_local_cache, kernel.recheck_autotune_cache

    def here(notes: Any, facts: Any, folder: str, key: str) -> None:
        set_up(notes, facts, os.path.join(cache_dir(), os.path.basename(folder)), key)

    def found(of: Any, reload_kernel_from_src: Callable[[], Any]) -> None:
        begun = [result.config for result in of.compile_results]
        (best, *others), notes, _ = tuning.check_autotune_cache(begun, of.filename, of.inductor_meta)
        check(of, reload_kernel_from_src)
        of.save_cache_hook = notes and notes.save
        if others or not getattr(best, "found_by_coordesc", False):
            return
        if [same(result.config) for result in of.compile_results] != [same(best)]:
            of.fn = of.fn if of.fn.fn is not None else reload_kernel_from_src().fn
            of.compile_results = [of._precompile_config(best)]
        of.compile_results[0].config.found_by_coordesc = True  # else torch would look for a better one again

    cache._setup_local_cache, kernel.recheck_autotune_cache = here, found  # type: ignore[assignment, method-assign]


def _no_modes() -> None:
    """Raise SolutionError if a torch mode is still active after a call."""
    if any(count() for count in _MODES):
        raise SolutionError(
            "deferred_write", "the call left a torch mode switched on, as torch.set_default_device does"
        )


class Worker:
    """State of one worker: open buffers, the solution's module, its callables, its last output."""

    def __init__(self, device: torch.device, scratch: Path | None, confined: dict[str, str] | None = None) -> None:
        self.device, self.confined, self.in_process = device, confined or {}, scratch is None
        self.scratch = scratch or Path(tempfile.mkdtemp(prefix="repro-dev-"))
        self.cuda = device.type == "cuda"
        self.buffers: dict[str, torch.Tensor] = {}
        self.gate: driver.Gate | None = None
        self.source: Path | None = None
        self.defined = 0
        self._empty()

    def _empty(self) -> None:
        """Hold no solution."""
        self.state: dict[str, torch.Tensor] = {}
        self.calls: dict[str, Callable[..., Any]] = {}
        self.module: Any = None
        self.model: torch.nn.Module | None = None
        self.output: Any = None
        self.built_with: Any = None
        self.static = self.reused = False
        self.held: list[tuple[Any, list[int]]] = []  # earlier outputs with their digests
        self.armed: Any = None
        self.launched: Any = None
        self.states: list[bytes] = []

    def _wait(self) -> None:
        """Wait for the GPU."""
        if self.cuda:
            _synchronize()

    def hello(self) -> Json:
        """Return the ids of this process, its torch version, and how it is confined."""
        return {"pid": os.getpid(), "uid": os.getuid(), "torch": torch.__version__, "confined": self.confined}

    def attach(self, buffers: dict[str, Ticket]) -> Json:
        """Open the shared buffers."""
        if self.cuda:
            torch.cuda.init()  # opening an IPC handle without a context is a segmentation fault
            torch.empty(1, device=self.device)
            total = torch.cuda.get_device_properties(self.device).total_memory
            torch.cuda.set_per_process_memory_fraction(max(0.1, 1 - _JUDGE_RESERVE_BYTES / total))
        self.buffers = {name: open_ticket(ticket, self.device) for name, ticket in buffers.items()}
        return {}

    def define(self, source: str | None, entry: str, problem: dict[str, Any], inputs: int) -> Json:
        """Import the problem, and the solution if `source` (base64) is given; check that it defines `entry`.

        A second solution takes the place of the first.
        """
        if self.source is not None:
            self.drop()
        self.problem = catalogue.Message(**problem).problem(self.scratch / "problem.py")
        self.entry, self.input_count = entry, inputs
        self.problem_module = self.problem.module()
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = True, False
        if source is None:
            self.module = self.problem_module
            return {}
        self.defined += 1  # Python and Triton remember the lines of a file by its name
        self.source = self.scratch / f"solution{self.defined if self.defined > 1 else ''}.py"
        text = base64.b64decode(source)
        self.source.write_bytes(text)
        try:
            self.module = importing.module_of(self.source)
        except SyntaxError as error:
            where = f"line {error.lineno}: " if error.lineno else ""
            raise SolutionError("syntax_error", f"{where}{error.msg}") from error
        except BaseException as error:
            code = self._code(error, "import_error")
            raise SolutionError(code, no_gpu.told(error)) from error
        if not callable(getattr(self.module, entry, None)):
            if not ast.parse(text).body:  # a stand-in's comment says why there is no solution
                raise SolutionError("missing", text.decode(errors="replace").strip("# \t\r\n.") or "the file is empty")
            names = [n.name for n in ast.parse(text).body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
            defined = f"; it defines {', '.join(names[:_NAMED])}" if names else ""
            raise SolutionError("no_entry", f"no ModelNew or kernel_function to call{defined}")
        return {}

    def drop(self) -> Json:
        """Drop the solution with all that it made."""
        self._empty()
        sys.modules.pop("solution", None)
        gc.collect()
        return self.release()

    def _code(self, error: BaseException, otherwise: str) -> str:
        """The reason code of an exception: without a GPU, one that asks for a GPU has a code of its own."""
        return "needs_cuda" if not self.cuda and no_gpu.lacks_gpu(error) else otherwise

    def piece(self, name: str, dtype: str, shape: list[int], start: int, count: int) -> Json:
        """Copy elements [start, start + count) of one tensor of the state dict from the staging buffer."""
        kind = getattr(torch, dtype)
        if start == 0:
            self.state[name] = torch.empty(shape, dtype=kind, device=self.device)
        flat = self.state[name].view(-1)
        flat[start : start + count].copy_(view(self.buffers["staging"], kind, (count,)))
        self._wait()  # the judge overwrites the staging buffer after the answer
        return {}

    def load(self, init: list[Any], variants: list[str]) -> Json:
        """Build the model if it is new or its constructor arguments changed, then load the weights strictly."""
        init = [tuple(v) if isinstance(v, list) else v for v in init]
        state, self.state = self.state, {}
        name = "Model" if self.entry == "kernel_function" else self.entry
        owner = self.problem_module if self.entry in ("kernel_function", "Model") else self.module
        if self.model is None or self.built_with != init:
            self.model = None
            torch.manual_seed(WEIGHT_SEED)
            model = self._constructed(getattr(owner, name), init)
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

    def _constructed(self, made: Any, init: list[Any]) -> Any:
        """Return the model. Raises SolutionError, with both signatures, if it takes other arguments than Model."""
        try:
            inspect.signature(made).bind(*init)
        except TypeError as error:
            theirs = f"the problem's Model takes {inspect.signature(self.problem_module.Model)}"
            why = f"cannot construct {self.entry}({', '.join(map(repr, init))}): {error}"
            raise SolutionError(
                "constructor", f"{why}; {self.entry} takes {inspect.signature(made)}, {theirs}"
            ) from error
        except ValueError:
            pass  # it has no signature that Python can read
        return constructed(made, init, drawn=self.source is not None)  # the problem's own Model gets a state dict

    def take(self) -> Json:
        """Give torch.compile what it made in an earlier job, which was sent as a piece."""
        with contextlib.suppress(zlib.error):  # a damaged file
            torch.compiler.load_cache_artifacts(zlib.decompress(self.state.pop("compiled").cpu().numpy().tobytes()))
        return {}

    def forget(self, variant: str) -> Json:
        """Forget what torch.compile made or took, and make a variant's callable again."""
        from torch._inductor.utils import clear_caches

        torch.compiler.reset()
        clear_caches()
        config.own_caches(Path(tempfile.mkdtemp(dir=self.scratch)))
        self.calls.pop(variant, None)
        self.bind([variant])
        return {}

    def compiled(self) -> Json:
        """Put what torch.compile made or took since the last such request in the output's place, as `size` bytes.

        graphs: how many it made.
        """
        from torch._dynamo.utils import counters
        from torch.compiler._cache import CacheArtifactManager

        found, saved = counters["inductor"], torch.compiler.save_cache_artifacts()
        graphs = found["fxgraph_cache_miss"] + found["fxgraph_cache_bypass"]
        CacheArtifactManager.clear()
        found.clear()
        data = zlib.compress(saved[0] if saved else b"", 1)
        self.output = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self.device)
        return {"size": len(data), "graphs": graphs}

    def bind(self, variants: list[str]) -> None:
        """Make a callable for each variant."""
        assert self.model is not None
        for variant in variants:
            if self.entry == "Model":
                if variant not in self.calls:
                    self.calls[variant] = baselines.callable_of(variant, self.model)
            elif self.entry == "kernel_function":
                function = self.module.kernel_function
                self.calls[variant] = binding.bind(function, self.model, self.input_count, self.built_with)
            else:
                self.calls[variant] = self.model

    def _inputs(self, inputs: list[Input]) -> list[Any]:
        return [self._input(i) if "slot" in i else i["value"] for i in inputs]

    def _input(self, given: Input) -> torch.Tensor:
        stored = view(
            self.buffers[given["slot"]], getattr(torch, given["dtype"]), tuple(given["shape"]), given["offset"]
        )
        return stored.mT if given["turned"] else stored

    def _flags(self, variant: str) -> None:
        if self.entry == "Model":
            baselines.set_flags(variant)

    def modes(self) -> Json:
        """Return the global modes that a baseline's name promises."""
        return {
            "grad": torch.is_grad_enabled(),
            "cudnn_tf32": torch.backends.cudnn.allow_tf32,
            "matmul_tf32": torch.backends.cuda.matmul.allow_tf32,
        }

    def run(self, variant: str, inputs: list[Input], *, fill: str = "") -> Json:
        """Make one call and keep its output for `fetch`. fill: of torch.empty, `marks` or `zeros`."""
        values = self._inputs(inputs)
        self.output = None
        self._flags(variant)
        fresh_memory.before_call(self.device)
        with _no_grad(), Filled(fill) if fill else contextlib.nullcontext():
            self.output = self.calls[variant](*values)
        _no_modes()
        bits = digest(sums(self.output))
        self._wait()
        self._keep(bits)
        described = describe(self.output, values)
        return {"output": described, "digest": bits, "static": self.static, "reused": self.reused}

    def _keep(self, bits: list[int]) -> None:
        """Note whether the last call returned the memory of an earlier output, or changed one; keep its own."""
        own = address(self.output)
        self.static = self.static or (own is not None and own in [address(value) for value, _ in self.held])
        self.reused = self.reused or any(digest(sums(value)) != before for value, before in self.held)
        self.held = [*self.held, (self.output, bits)][-MOST_HELD:]
        while self.held and sum(nbytes(value) for value, _ in self.held) > HOLD_BYTES:
            self.held.pop(0)

    def again(self) -> Json:
        """Return the digest of the kept output as it is now."""
        self._wait()
        return {"digest": digest(sums(self.output))}

    def fetch(self, path: list[int], start: int, count: int, order: list[int] | None = None) -> Json:
        """Copy some elements of one output tensor (`outputs.part`) into the staging buffer."""
        flat = part(self.output, path, start, count, order)
        view(self.buffers["staging"], flat.dtype, (count,)).copy_(flat)
        self._wait()
        return {}

    def release(self) -> Json:
        """Free the outputs and cached memory for the next variant."""
        self.output = None
        self.held.clear()
        if self.cuda:
            torch.cuda.empty_cache()
        return {}

    def arm(self, variant: str, inputs: list[Input], gate_us: float) -> Json:
        """Prepare a timed call as far as possible before its inputs exist, without launching it."""
        self.output = self.launched = None
        self.held.clear()
        self._flags(variant)
        events = (_Event(enable_timing=True), _Event(enable_timing=True)) if self.cuda else None
        if self.cuda:
            driver.reset_persisting()
            _synchronize()
        self.armed = (self._inputs(inputs), self.calls[variant], gate_us, events)
        return {}

    def launch(self, number: int) -> Json:
        """Enqueue the armed call behind a wait for the judge's gate to reach `number`, before its inputs exist.

        Return how long that took, ms. Without a GPU nothing is enqueued; `go` makes the call.
        """
        with _no_grad():
            before, begin = self.modes(), _clock_ns()
            if self.cuda:
                stream = _stream()
                driver.wait_for(self.buffers["gate"], number, stream)
                if self.gate is not None:
                    self.gate(_LEAD_US, stream)
                self._enqueue(stream)
                self.launched = before, (_clock_ns() - begin) / 1e6
        return {"launch_ms": (_clock_ns() - begin) / 1e6}

    def _enqueue(self, stream: Any) -> None:
        values, call, _, events = self.armed
        _record(events[0], stream)
        self.output = call(*values)
        _record(events[1], stream)

    def go(self) -> Json:
        """Make one timed call, or wait for the call that `launch` enqueued.

        Return milliseconds: device_ms by CUDA events, host_ms by the host's clock from now on, launch_ms until
        everything was launched. Without a gate, host_ms is the whole latency from an idle device to a waiting host.
        """
        values, call, gate_us, events = self.armed
        with _no_grad():
            before, launch_ms = self.launched or (self.modes(), 0.0)
            begin = _clock_ns()
            if events is None:
                self.output = call(*values)
                launch_ms = host_ms = device_ms = (_clock_ns() - begin) / 1e6
            else:
                if self.launched is None:
                    stream = _stream()
                    if gate_us and self.gate is not None:
                        self.gate(gate_us, stream)
                    self._enqueue(stream)
                    launch_ms = (_clock_ns() - begin) / 1e6
                _synchronize()
                host_ms = (_clock_ns() - begin) / 1e6
                device_ms = float(_elapsed(*events))
            _no_modes()
            times = {"device_ms": device_ms, "host_ms": host_ms, "launch_ms": launch_ms}
            return times | {"modes": [before, self.modes()]}

    def seal(self, key: str) -> Json:
        """Return the root of each tensor of the last timed output, which commits this process to it."""
        secret = bytes.fromhex(key)
        with _no_grad():
            tensors = sealed(self.output, secret)
        self.states = [states for states, _ in tensors]
        return {"roots": [commitment.root(states, size, secret) for states, size in tensors]}

    def look(self) -> Json:
        """Return the description of the last timed output, and the states behind the roots."""
        states = [base64.b64encode(states).decode() for states in self.states]
        return {"output": describe(self.output, self.armed[0]), "states": states}

    def prepare(self) -> Json:
        """Load the gate and digest kernels, and end compilation processes."""
        preload.quiet()
        if self.cuda and self.gate is None:
            self.gate = driver.Gate(self.device)
            self.gate(10, _stream())
            commitment.prepare(self.device)
            _synchronize()
        return {}

    def profile(self, variant: str, inputs: list[Input]) -> Json:
        """Return the kernels of one call, as the profiler names them."""
        self.output = None
        self._flags(variant)
        values = self._inputs(inputs)
        with _no_grad():
            kernels, reason = kernel_origins.profile(functools.partial(self.calls[variant], *values))
        return {"kernels": kernels[: kernel_origins.MOST_KERNELS], "reason": reason}


def answer(worker: Worker, message: Json) -> Json:
    """Answer one request; an exception becomes an answer with a reason code."""
    op = str(message.pop("op"))
    try:
        result: Json = getattr(worker, op)(**message)
        return result
    except KeyboardInterrupt as error:
        if worker.in_process:
            raise
        return _fault(worker, error)
    except BaseException as error:  # a solution may raise any; none may end this process
        return _fault(worker, error)


def _fault(worker: Worker, error: BaseException) -> Json:
    """Return the answer for an exception, with the frames within the solution's file and the error in full."""
    raised = error.__cause__ if isinstance(error, SolutionError) else error
    frames = traceback.extract_tb(raised.__traceback__) if raised is not None else []
    own = [frame for frame in frames if frame.filename == str(worker.source)]
    trace: Json = {}
    if raised is not None and own:
        lines = [f"line {frame.lineno}, in {frame.name}: {frame.line}" for frame in own]
        told = "".join(traceback.format_exception_only(raised))[-TRACE_CHARS:].splitlines()
        trace = {"trace": [*lines[-TRACE_LINES:], *told]}
    if isinstance(error, SolutionError):
        return {"error": error.detail, "code": error.code} | trace
    text = no_gpu.told(error)
    # torch's CPU allocator raises a plain RuntimeError
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator: can't allocate" in text:
        return {"error": text, "code": "out_of_memory"}
    where = f"line {own[-1].lineno}" if own else f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
    said = "" if not text.endswith(": ") else (own or frames)[-1].line or ""
    return {"error": f"{text}{said} ({where})", "code": worker._code(error, "exception")} | trace


def tune_alone(channel: Channel) -> None:
    """Have each benchmark of torch.compile's tuner in this process wait until the judge leaves it the GPU."""
    from torch._inductor.runtime.benchmarking import benchmarker

    benchmark = benchmarker.benchmark_gpu

    def alone(*args: Any, **options: Any) -> Any:
        channel.send({TUNES: True})
        channel.receive()
        try:
            return benchmark(*args, **options)
        finally:
            channel.send({TUNES: False})

    benchmarker.benchmark_gpu = alone  # type: ignore[method-assign]  # of the one object that every tuner calls


def serve(request: Request, confined: dict[str, str]) -> None:
    """Answer requests until the judge closes the pipe."""
    channel = Channel.of_worker(request.fds)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what it printed is there when it crashes
    worker = Worker(torch.device(request.device), Path(request.scratch), confined)
    if worker.cuda:
        preload.triton()
        if request.compiles:
            preload.processes()
            _tuned_before()
            tune_alone(channel)
    else:
        torch.set_num_threads(1)
        fresh_memory.of_process()
        triton_interpreter.mend()
        no_gpu.pass_guards()
    with contextlib.suppress(ChannelClosed):
        while True:
            message = channel.receive()
            number = message.pop("n")
            channel.send(answer(worker, message) | {"n": number})
