"""The CUDA driver through ctypes: memory that other processes can open, what holds a stream, the states that
`digests.py` describes, persisting lines.

Raw allocations and handles, because torch's own sharing keeps its reference counts in files of one user, and judge and
worker are two. Everything raises JudgeError with the driver's own words.
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

HANDLE_BYTES = 64
LAZY_PEER_ACCESS = 1
# A stream waits until what lies at an address has reached a number (cyclically).
AT_LEAST = 0
# Two blocks of 1024 threads fill the thread slots of a multiprocessor, so that nothing runs beside the gate.
GATE_BLOCKS_PER_SM, GATE_THREADS = 2, 1024
# Of a digest: threads of a block, bytes that each reads at once, bytes that a block writes.
DIGEST_THREADS, READ_BYTES, STATE_BYTES = 256, 16, 16


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


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
    """What torch needs to see foreign memory as a tensor."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


def _tensor(address: int, nbytes: int, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(_Memory(address, nbytes), device=device)


def allocate(nbytes: int, device: torch.device) -> tuple[torch.Tensor, str]:
    """A flat uint8 tensor in an allocation of its own, and the ticket (base64) by which another process opens it.

    Raises torch.cuda.OutOfMemoryError where the device has no room.
    """
    torch.cuda.init()
    torch.empty(1, device=device)  # the context must exist and be current
    address = ctypes.c_uint64()
    code = _cuda().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes))
    if code == 2:
        torch.cuda.empty_cache()
        code = _cuda().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes))
    if code == 2:
        raise torch.cuda.OutOfMemoryError(f"no room for {nbytes} bytes of shared memory")
    _check(code, f"allocating {nbytes} bytes")
    handle = _Handle()
    _check(_cuda().cuIpcGetMemHandle(ctypes.byref(handle), address), "making an IPC handle")
    return _tensor(address.value, nbytes, device), base64.b64encode(bytes(handle)).decode()


def free(tensor: torch.Tensor) -> None:
    """Gives an allocation back. Nothing may use the tensor afterwards."""
    torch.cuda.synchronize()
    _check(_cuda().cuMemFree_v2(ctypes.c_uint64(tensor.data_ptr())), "freeing shared memory")


def open_handle(ticket: str, nbytes: int, device: torch.device) -> torch.Tensor:
    """The memory behind a ticket, in this process."""
    address = ctypes.c_uint64()
    handle = _Handle.from_buffer_copy(base64.b64decode(ticket))
    _check(_cuda().cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, LAZY_PEER_ACCESS), "opening an IPC handle")
    return _tensor(address.value, nbytes, device)


def reset_persisting() -> None:
    """Turns persisting lines of the L2 back into ordinary ones, which a flush evicts."""
    _cuda().cuCtxResetPersistingL2Cache()


def wait_for(flag: torch.Tensor, number: int, stream: Any) -> None:
    """Holds a torch stream until the number (32 bits) at the beginning of `flag` has come to `number`. That takes no
    multiprocessor: whoever else is on the GPU works on."""
    address, handle = ctypes.c_uint64(flag.data_ptr()), ctypes.c_void_p(stream.cuda_stream)
    code = _cuda().cuStreamWaitValue32_v2(handle, address, ctypes.c_uint32(number), ctypes.c_uint(AT_LEAST))
    _check(code, "having a stream wait")


def write(flag: torch.Tensor, number: int, stream: Any) -> None:
    """Writes a number there in its turn in a torch stream: who waits for it goes on."""
    address, handle = ctypes.c_uint64(flag.data_ptr()), ctypes.c_void_p(stream.cuda_stream)
    code = _cuda().cuStreamWriteValue32_v2(handle, address, ctypes.c_uint32(number), ctypes.c_uint(0))
    _check(code, "ending a stream's wait")


class _Kernel:
    """The one kernel of a PTX file beside this one, of the file's name."""

    def __init__(self, name: str, device: torch.device, threads: int) -> None:
        torch.empty(1, device=device)
        self.name, self.threads = name, threads
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        image = Path(__file__).with_name(f"{name}.ptx").read_bytes() + b"\0"
        _check(_cuda().cuModuleLoadData(ctypes.byref(module), image), f"loading the {name}")
        _check(_cuda().cuModuleGetFunction(ctypes.byref(self._function), module, name.encode()), f"finding the {name}")
        self._launch = _cuda().cuLaunchKernel

    def __call__(self, stream: Any, blocks: int, *values: Any) -> None:
        """Enqueues it on a torch stream. values: ctypes numbers, in the order of its parameters."""
        arguments = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        handle = ctypes.c_void_p(stream.cuda_stream)
        code = self._launch(self._function, blocks, 1, 1, self.threads, 1, 1, 0, handle, arguments, None)
        _check(code, f"launching the {self.name}")


class Gate:
    """A kernel that keeps every multiprocessor busy for a time, so that what is enqueued behind it waits: the launch
    latency of a call is hidden while it runs, and no other stream can work meanwhile.

    For long it holds a solution in the judge's own process alone, whose stream cannot wait for the judge (`wait_for`).
    """

    def __init__(self, device: torch.device) -> None:
        self._kernel = _Kernel("gate", device, GATE_THREADS)
        self._blocks = GATE_BLOCKS_PER_SM * torch.cuda.get_device_properties(device).multi_processor_count

    def __call__(self, microseconds: float, stream: Any) -> None:
        """Enqueues the gate on a torch stream."""
        self._kernel(stream, self._blocks, ctypes.c_uint64(int(microseconds * 1000)))


class Digest:
    """States of segments of memory, in one kernel that reads it once."""

    def __init__(self, device: torch.device) -> None:
        self._kernel = _Kernel("digest", device, DIGEST_THREADS)
        self._states = torch.empty(1 << 16, dtype=torch.uint8, device=device)  # no timed call waits for memory

    def __call__(self, flat: torch.Tensor, turns: int, first: int, key: bytes) -> bytes:
        """`digests.states` of bytes on the device. Waits for them. Raises JudgeError where they are not aligned."""
        address, size = flat.data_ptr(), turns * DIGEST_THREADS * READ_BYTES
        if address % READ_BYTES:
            raise JudgeError("a digest of memory that is not aligned to 16 bytes", hex(address))
        count = -(-flat.numel() // size)
        if count * STATE_BYTES > self._states.numel():
            self._states = torch.empty(count * STATE_BYTES, dtype=torch.uint8, device=flat.device)
        if count:
            numbers = (ctypes.c_uint32(number) for number in (turns, first, *struct.unpack("<4I", key)))
            data, end = (ctypes.c_uint64(number) for number in (address, flat.numel()))
            stream = torch.cuda.current_stream(flat.device)
            self._kernel(stream, count, data, end, *numbers, ctypes.c_uint64(self._states.data_ptr()))
        return bytes(self._states[: count * STATE_BYTES].cpu().numpy())
