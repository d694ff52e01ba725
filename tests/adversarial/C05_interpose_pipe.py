#: problem = "L1_82"
#: size = "full"
#: timing = true
#: expect.verdict = ["correct", "rejected", "incorrect", "timeout"]
#: expect.reasons = [
#:     "clocks_disagree", "impossible_time", "protocol_tampered", "below_floor", "banned", "background_work",
#:     "timeout",
#: ]
#: labels = ["threads"]
#: max_speedup = 1.3
"""Puts a pipe of its own in the place of the one to the judge; a thread passes answers on with times divided by fifty.

Buys: forged times although every clock and every function of the worker is intact.
"""

import fcntl
import json
import os
import stat
import threading

from frames.forged_times import changed
from frames.L1_82 import Frame


def pass_on(source, target):
    buffer = b""
    while data := os.read(source, 1 << 16):
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            try:
                line = json.dumps(changed(json.loads(line))).encode()
            except ValueError:
                pass
            os.write(target, line + b"\n")


for fd in range(3, 64):
    try:
        writes = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        if not (writes and stat.S_ISFIFO(os.fstat(fd).st_mode)):
            continue
    except OSError:
        continue
    source, ours = os.pipe()
    real = os.dup(fd)
    os.dup2(ours, fd)
    threading.Thread(target=pass_on, args=(source, real), daemon=True).start()


class ModelNew(Frame):
    pass
