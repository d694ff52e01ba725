"""Ranges of this process's memory on the GPU."""

import ctypes

SPAN, STEP = 4 << 30, 2 << 20


def ranges(address):
    """(base, bytes) of every allocation that this context maps within 4 GiB of an address."""
    cuda, found = ctypes.CDLL("libcuda.so.1"), {}
    for at in range(max(STEP, address - SPAN), address + SPAN, STEP):
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        if cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(at)) == 0:
            found[base.value] = size.value
    return cuda, found
