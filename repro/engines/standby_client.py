"""Runs a `repro` command in a fork of a sitting's standby; in a new process if there is none.

A program of its own that imports little, so that it starts in milliseconds. It has the streams, the exit code and the
ending signal of the command, and passes signals on.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import sys

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
PR_SET_PDEATHSIG = 1


def main(words: list[str]) -> int:
    """Run a command; return its exit code."""
    if words[:1] == ["job"]:  # a job ends with the process that started it
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            pid, answers = ask(connection, words)
        except (OSError, ValueError):
            if {"-v", "--verbose"} & set(words):
                print("repro: in a new process: the sitting's standby does not answer", file=sys.stderr, flush=True)
            os.execv(sys.executable, [sys.executable, "-P", os.path.join(PACKAGE, "__main__.py"), *words])  # noqa: S606

        def pass_on(number: int, _: object) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

        for number in PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, pass_on)
        status = answers.readline()
    # a standby that was killed has killed the command
    code = os.waitstatus_to_exitcode(int(status)) if status.strip() else -signal.SIGKILL
    if code < 0:
        end_by(-code)
    return code


def ask(connection: socket.socket, words: list[str]):  # type: ignore[no-untyped-def]
    """Ask the standby for a fork that runs a command. Return its process id and the stream of further answers.

    Raises OSError or ValueError if there is no standby, or it ends.
    """
    connection.connect(os.environ.get("REPRO_STANDBY", ""))
    told = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    message = json.dumps(told).encode()
    socket.send_fds(connection, [len(message).to_bytes(4)], [0, 1, 2])
    connection.sendall(message)
    answers = connection.makefile("rb")
    return int(answers.readline()), answers


def end_by(number: int) -> None:
    """End this process by a signal, without a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
