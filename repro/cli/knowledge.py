"""`repro knowledge`: serve the knowledge base and a tool that judges a kernel, over MCP by stdio."""

from __future__ import annotations

import argparse
import subprocess
import sys

from repro import config
from repro.errors import PrerequisiteError
from repro.knowledge.tools import Answer, ToolSpec
from repro.runs.progress import Progress
from repro.system.jsonio import Json

TEXT = "serve knowledge and a tool that judges a kernel, over MCP"
EVALUATE = ToolSpec(
    "evaluate",
    "Judges a kernel file on a problem as `repro evaluate --trust dev` does, in seconds to a minute. Returns the "
    "verdict, where the output is wrong, and what to do.",
    {
        "type": "object",
        "properties": {
            "file": {"type": "string", "description": "Path of the file that defines ModelNew or kernel_function."},
            "problem": {"type": "string", "description": "Id such as L1_36, or the path of a KernelBench file."},
        },
        "required": ["file", "problem"],
    },
    (),
)
_LIMIT_S = 900


def add(parser: argparse.ArgumentParser) -> None:
    """Add no argument: a client starts the server, which works from any folder."""


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Serve until the client closes standard input."""
    try:
        from repro.knowledge.server import Server
    except ModuleNotFoundError as error:
        raise PrerequisiteError(
            "the knowledge server needs the package mcp",
            str(error),
            "pip install '.[agents]' in a checkout, or make setup",
        ) from error
    Server("local", {EVALUATE: evaluate}).run("stdio")
    return 0


def evaluate(arguments: Json) -> Answer:
    """Answer a call of the tool `evaluate` with what the command prints."""
    if set(arguments) != {"file", "problem"} or not all(isinstance(value, str) for value in arguments.values()):
        return Answer("evaluate takes file and problem, both strings.", is_error=True)
    words = ["evaluate", f"--problem={arguments['problem']}", "--trust=dev", "--", arguments["file"]]
    command = [sys.executable, str(config.ROOT / "repro"), *words]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return Answer(f"No verdict within {_LIMIT_S} seconds.", is_error=True)
    return Answer(
        (done.stdout if done.returncode == 0 else done.stdout + done.stderr).strip(), is_error=done.returncode != 0
    )
