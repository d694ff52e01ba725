"""The CUDA driver through ctypes: memory shared with other processes, stream waits, digests and persisting L2 lines.

It uses raw allocations and handles: torch's own sharing keeps reference counts in files of one user, but judge and
worker are different users. Failures raise JudgeError with the driver's message. `commitment.py` describes digests.
"""

from __future__ import annotations

import base64
import ctypes
import functools
import struct
from pathlib import Path
from typing import Any

import torch

from repro.errors import JudgeError

_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1
# Wait until the value at an address has reached a number (compared cyclically).
_AT_LEAST = 0
# Two blocks of 1024 threads fill the thread slots of a multiprocessor, so that nothing runs beside the gate.
_GATE_BLOCKS_PER_SM, _GATE_THREADS = 2, 1024
# Of a digest kernel: threads of a block, bytes of each load, bytes that a block writes.
_DIGEST_THREADS, _READ_BYTES, STATE_BYTES = 256, 16, 16
# Of the distance kernel: threads of a block, numbers that a block writes, most elements that it reads, and its dtypes.
_DISTANCE_THREADS, _SUMS, _SPAN = 256, 8, 1 << 14
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * _HANDLE_BYTES),)


@functools.cache
def _cuda() -> ctypes.CDLL:
    library = ctypes.CDLL("libcuda.so.1")
    library.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, _Handle, ctypes.c_uint]
    return library


def _check(code: int, what: str) -> None:
    if code:
        text = ctypes.c_char_p()
        _cuda().cuGetErrorString(code, ctypes.byref(text))
        raise JudgeError(f"the CUDA driver failed: {what}", (text.value or b"?").decode())


class _Memory:
    """Foreign memory in the form that torch accepts as a tensor."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


def _tensor(address: int, nbytes: int, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(_Memory(address, nbytes), device=device)


def allocate(nbytes: int, device: torch.device) -> tuple[torch.Tensor, str]:
    """Allocate a flat uint8 tensor, and return it with the ticket (base64) by which another process opens it.

    Raises torch.cuda.OutOfMemoryError if the device has no room.
    """
    torch.cuda.init()
    torch.empty(1, device=device)  # the context must exist and be current
    address = ctypes.c_uint64()
    allocate = functools.partial(_cuda().cuMemAlloc_v2, ctypes.byref(address), ctypes.c_size_t(nbytes))
    if (code := allocate()) == 2:
        torch.cuda.empty_cache()
        code = allocate()
    if code == 2:
        raise torch.cuda.OutOfMemoryError(f"no room for {nbytes} bytes of shared memory")
    _check(code, f"allocating {nbytes} bytes")
    handle = _Handle()
    _check(_cuda().cuIpcGetMemHandle(ctypes.byref(handle), address), "making an IPC handle")
    return _tensor(address.value, nbytes, device), base64.b64encode(bytes(handle)).decode()


def free(tensor: torch.Tensor) -> None:
    """Free an allocation. Nothing may use the tensor afterwards."""
    torch.cuda.synchronize()
    _check(_cuda().cuMemFree_v2(ctypes.c_uint64(tensor.data_ptr())), "freeing shared memory")


def fill(address: int, nbytes: int, byte: int) -> None:
    """Fill memory of this process on the default stream, without waiting."""
    value, size = ctypes.c_ubyte(byte), ctypes.c_size_t(nbytes)
    _check(_cuda().cuMemsetD8Async(ctypes.c_uint64(address), value, size, None), f"filling {nbytes} bytes")


def open_handle(ticket: str, nbytes: int, device: torch.device) -> torch.Tensor:
    """Open the memory behind a ticket in this process, as a flat uint8 tensor."""
    address = ctypes.c_uint64()
    handle = _Handle.from_buffer_copy(base64.b64decode(ticket))
    _check(_cuda().cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, _LAZY_PEER_ACCESS), "opening an IPC handle")
    return _tensor(address.value, nbytes, device)


def reset_persisting() -> None:
    """Turn persisting lines of the L2 into ordinary ones, which a flush evicts."""
    _cuda().cuCtxResetPersistingL2Cache()


def wait_for(flag: torch.Tensor, number: int, stream: Any) -> None:
    """Hold a torch stream until the 32-bit number at the beginning of `flag` has reached `number`.

    Waiting occupies no multiprocessor, so other work on the GPU goes on.
    """
    address, handle = ctypes.c_uint64(flag.data_ptr()), ctypes.c_void_p(stream.cuda_stream)
    code = _cuda().cuStreamWaitValue32_v2(handle, address, ctypes.c_uint32(number), ctypes.c_uint(_AT_LEAST))
    _check(code, "having a stream wait")


def write(flag: torch.Tensor, number: int, stream: Any) -> None:
    """Write a number to `flag`, in its turn in a torch stream. This releases streams that wait for it."""
    address, handle = ctypes.c_uint64(flag.data_ptr()), ctypes.c_void_p(stream.cuda_stream)
    code = _cuda().cuStreamWriteValue32_v2(handle, address, ctypes.c_uint32(number), ctypes.c_uint(0))
    _check(code, "ending a stream's wait")


class _Kernel:
    """A kernel loaded from the PTX file of the same name in this folder."""

    def __init__(self, name: str, device: torch.device, threads: int) -> None:
        torch.empty(1, device=device)
        self.name, self.threads = name, threads
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        image = Path(__file__).with_name(f"{name}.ptx").read_bytes() + b"\0"
        _check(_cuda().cuModuleLoadData(ctypes.byref(module), image), f"loading the {name}")
        _check(_cuda().cuModuleGetFunction(ctypes.byref(self._function), module, name.encode()), f"finding the {name}")
        self._launch = _cuda().cuLaunchKernel

    def __call__(self, stream: Any, blocks: int, *values: Any) -> None:
        """Enqueue the kernel on a torch stream. values: ctypes numbers, in the order of its parameters."""
        arguments = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        handle = ctypes.c_void_p(stream.cuda_stream)
        code = self._launch(self._function, blocks, 1, 1, self.threads, 1, 1, 0, handle, arguments, None)
        _check(code, f"launching the {self.name}")


class Gate:
    """A kernel that keeps every multiprocessor busy for a time, so that work enqueued behind it waits.

    It hides the launch latency of a call; no other stream can work meanwhile. Long gates are only used for a solution
    in the judge's own process, whose stream cannot wait for the judge (`wait_for`).
    """

    def __init__(self, device: torch.device) -> None:
        self._kernel = _Kernel("gate", device, _GATE_THREADS)
        self._blocks = _GATE_BLOCKS_PER_SM * torch.cuda.get_device_properties(device).multi_processor_count

    def __call__(self, microseconds: float, stream: Any) -> None:
        """Enqueue the gate on a torch stream."""
        self._kernel(stream, self._blocks, ctypes.c_uint64(int(microseconds * 1000)))


class Digest:
    """Computes the states of segments of memory, in one kernel that reads it once."""

    def __init__(self, device: torch.device) -> None:
        self._kernel = _Kernel("digest", device, _DIGEST_THREADS)
        self._states = torch.empty(
            1 << 16, dtype=torch.uint8, device=device
        )  # ahead, so that no timed call allocates it

    def __call__(self, flat: torch.Tensor, turns: int, first: int, key: bytes) -> bytes:
        """Return `commitment.states` of bytes on the device. Raises JudgeError if they are not aligned to 16 bytes."""
        address, size = flat.data_ptr(), turns * _DIGEST_THREADS * _READ_BYTES
        if address % _READ_BYTES:
            raise JudgeError("a digest of memory that is not aligned to 16 bytes", hex(address))
        count = -(-flat.numel() // size)
        if count * STATE_BYTES > self._states.numel():
            self._states = torch.empty(count * STATE_BYTES, dtype=torch.uint8, device=flat.device)
        if count:
            numbers = map(ctypes.c_uint32, (turns, first, *struct.unpack("<4I", key)))
            data, end = map(ctypes.c_uint64, (address, flat.numel()))
            stream = torch.cuda.current_stream(flat.device)
            self._kernel(stream, count, data, end, *numbers, ctypes.c_uint64(self._states.data_ptr()))
        return bytes(self._states[: count * STATE_BYTES].cpu().numpy())


class Comparison:
    """Adds up the distances of a chunk of output from its reference, in one kernel that reads both once."""

    def __init__(self, device: torch.device) -> None:
        self._kernel = _Kernel("distance", device, _DISTANCE_THREADS)

    def __call__(
        self, ours: torch.Tensor, due: torch.Tensor, tolerances: list[float], step: int, first: int, bins: torch.Tensor
    ) -> torch.Tensor:
        """Return the sums of `distance.cu` (rows, blocks of a row, _SUMS), and add to `bins`.

        ours: (rows, columns), a dtype of KINDS; due: the same shape in fp64; both contiguous. tolerances: two.
        """
        rows, columns = due.shape
        per_row = -(-columns // _SPAN)
        sums = torch.empty((rows, per_row, _SUMS), dtype=torch.float64, device=due.device)
        u32, u64, f64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double
        self._kernel(
            torch.cuda.current_stream(due.device), rows * per_row,
            u64(ours.data_ptr()), u32(KINDS[ours.dtype]), u64(due.data_ptr()), u64(columns), u32(per_row), u64(_SPAN),
            *map(f64, tolerances), u64(step), u64(first), u64(sums.data_ptr()), u64(bins.data_ptr()),
        )  # fmt: skip
        return sums


@functools.cache
def comparison(device: torch.device) -> Comparison:
    """Return the kernel of a device, loaded once."""
    return Comparison(device)
