#: problem = "L1_36"
#: device = ["cpu"]
#: expect.verdict = ["incorrect", "rejected"]
#: expect.reasons = ["distance", "background_work"]
#: labels = ["ctypes", "threads"]
"""Finds every shared buffer of the judge in its own address space, keeps filling all but the input's with zeros.

Buys: answers of zeros, where an expected output lies in memory that both processes map.
"""

import ctypes
import threading
import time

import torch
from frames.L1_36 import Frame

LIFE_S = 60


def buffers(skip):
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if "memfd" in line and " rw" in line and not start <= skip < end:
                yield start, end - start


class ModelNew(Frame):
    filling = False

    def fill(self, address):
        end = time.monotonic() + LIFE_S
        while time.monotonic() < end:
            for start, size in buffers(address):
                ctypes.memset(start, 0, size)
            time.sleep(0.0005)

    def forward(self, x):
        if not self.filling:
            self.filling = True
            threading.Thread(target=self.fill, args=(x.data_ptr(),), daemon=True).start()
        return torch.zeros_like(x)
