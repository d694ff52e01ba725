"""How a command ends: the exit code and the message of each kind of failure."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable

from repro.errors import ReproError, printable
from repro.system import signals


def complain(text: str) -> None:
    """Print a message on stderr: one line, on a terminal broken between words."""
    text = printable(f"repro: {text}")
    if sys.stderr.isatty():
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 100  # 0: the terminal does not know
        text = textwrap.fill(text, columns, break_long_words=False, break_on_hyphens=False)
    print(text, file=sys.stderr)


def _terminate(*_: object) -> None:
    """End a run at SIGTERM as at Ctrl-C: jobs are stopped, and what was measured is kept."""
    raise KeyboardInterrupt


def _ignore() -> None:
    """Let no signal change the exit code while Python unloads its modules; torch's take up to a second."""
    for number in signals.ENDING:
        signal.signal(number, signal.SIG_IGN)


def exit_code(run: Callable[[argparse.Namespace], int]) -> int:
    """Run a command and return its exit code; an expected failure is printed as one line.

    run: gets an empty namespace, in which it puts the command's options as soon as they are known.
    """
    atexit.register(_ignore)
    code = _exit_code(run)
    if signals.END_AT_ONCE.is_set():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)
    return code


def _exit_code(run: Callable[[argparse.Namespace], int]) -> int:
    args = argparse.Namespace()
    signal.signal(signal.SIGTERM, _terminate)
    try:
        return run(args)
    except SystemExit as stop:  # of --help and --version
        return 1 if stop.code else 0
    except ReproError as error:
        if getattr(args, "verbose", False):
            traceback.print_exc()
        complain(f"{error}")
        return error.exit_code
    except KeyboardInterrupt:
        again = "with --resume to go on, or without to start again" if hasattr(args, "resume") else "to start again"
        complain(f"interrupted. Repeat the command {again}.")
        return 130
    except BrokenPipeError:
        return 0
    except ModuleNotFoundError as error:
        complain(f"{error.name} is not installed here. Run `make setup ENGINE=local` or `pip install .` in a checkout.")
        return 1
    except Exception as error:  # a fault of ours: Python's own exit code would be 1, which blames the user
        traceback.print_exc()
        complain(f"internal error: {type(error).__name__}: {error}")
        return 2
