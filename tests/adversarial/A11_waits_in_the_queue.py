#: problem = "L1_82"
#: size = "full"
#: device = ["cuda"]
#: timing = true
#: timeout_s = 20
#: expect.verdict = ["correct", "incorrect", "rejected", "timeout"]
#: expect.reasons = [
#:     "timed_output_wrong", "nondeterministic_wrong", "distance", "background_work", "input_modified",
#:     "clocks_disagree", "deferred_write", "baseline_disturbed", "timeout",
#: ]
#: labels = ["ctypes", "side_stream", "threads"]
#: max_speedup = 1.3
"""A thread keeps the work of the next call in the GPU's queue, behind a wait of the driver for the input's memory.

Buys: no process runs and no multiprocessor is taken until the inputs are there; the work is then done in the flush.
"""

import ctypes
import threading
import time

import torch
from frames.L1_82 import Frame

GEQ, WAIT_S = 0, 0.004
driver = ctypes.CDLL("libcuda.so.1")
address = ctypes.c_uint64


class ModelNew(Frame):
    x = ready = sample = event = None

    def probe(self):
        return self.x.view(-1)[:: max(1, self.x.numel() // 64)].clone()

    def keep_waiting(self):
        side, release = torch.cuda.Stream(), torch.cuda.Stream()
        last = self.x.data_ptr() + 4 * (self.x.numel() - 1)
        with torch.no_grad(), torch.cuda.stream(side):
            while True:
                # poisoned inputs are no positive numbers: the wait ends when new ones have come to their end
                driver.cuStreamWaitValue32_v2(ctypes.c_void_p(side.cuda_stream), address(last), ctypes.c_uint32(1), GEQ)
                self.ready, self.sample = self.conv2d(self.x), self.probe()
                event = torch.cuda.Event()
                event.record()
                begin = time.monotonic()
                while not event.query():
                    if time.monotonic() - begin > WAIT_S:  # another process may wait for the GPU
                        at = ctypes.c_void_p(release.cuda_stream)
                        driver.cuStreamWriteValue32_v2(at, address(last), ctypes.c_uint32(1), 0)
                        begin = time.monotonic()
                    time.sleep(0.0001)

    def forward(self, x):
        if self.x is None:
            self.x = x
            out = self.conv2d(x)
            self.ready, self.sample = out, self.probe()
            threading.Thread(target=self.keep_waiting, daemon=True).start()
            return out.clone()
        if x.data_ptr() == self.x.data_ptr() and torch.equal(self.probe(), self.sample):
            return self.ready.clone()
        return self.conv2d(x)
