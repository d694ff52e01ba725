"""The agent `claude-code`: the Claude Code CLI without user settings, connected to the gateway, event by event."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

from repro.agents import children, sdk_provider
from repro.agents import task as texts
from repro.agents.claude_stream import Lines, Stream
from repro.agents.deadline import Deadline
from repro.agents.events import TRANSCRIPT, Ending, Record
from repro.agents.task import Task
from repro.agents.tools_knowledge import SERVER
from repro.errors import PrerequisiteError
from repro.system import jsonio
from repro.system.procfs import descendants, kill

PROGRAM = "claude"
# The tools that `--bare` offers; Edit creates a file by replacing nothing.
TOOLS = "Bash,Edit,Read"
CHUNK_BYTES = 1 << 16
TICK_S = 0.25
# Each signal, and how long the CLI has to end before the next one. After SIGINT it still reports its usage.
SIGNALS = ((signal.SIGINT, 10.0), (signal.SIGTERM, 5.0))


class ClaudeCode:
    """One run of the CLI: prompt on stdin, events on stdout. Both streams are kept in `transcript/`."""

    def __init__(self, task: Task, env: dict[str, str], deadline: Deadline, record: Record, url: str) -> None:
        self.task, self.deadline, self.record = task, deadline, record
        self.stream, self.lines = Stream(record), Lines()
        self.folder = task.folder / TRANSCRIPT
        self.config = self.folder / "mcp.json"
        self.env = env | environment(task, url)
        servers = {SERVER: {"type": "http", "url": f"{url}/mcp"}} if task.expect_tools else {}
        jsonio.write(self.config, {"mcpServers": servers})

    def command(self) -> list[str]:
        """Return the command line, equal in all arms except for the contents of the `--mcp-config` file.

        It sets no budget in money: the CLI's prices are wrong for models that it does not know, and the gateway counts.
        Raises PrerequisiteError if the CLI is not installed.
        """
        program = shutil.which(PROGRAM, path=self.env["PATH"])
        if program is None:
            remedy = "Build the image with CLAUDE_CODE (docs/agent-study.md), or choose --agent sdk."
            raise PrerequisiteError("Claude Code is not installed here", f"no {PROGRAM} in PATH", remedy)
        command = [program, "-p", "--bare", "--model", self.task.model]
        command += ["--output-format", "stream-json", "--verbose"]
        command += ["--permission-mode", "bypassPermissions", "--tools", TOOLS]
        command += ["--strict-mcp-config", "--mcp-config", str(self.config)]
        command += ["--no-session-persistence", "--setting-sources", ""]
        if (turns := self.task.budgets.get("turns")) is not None:
            command += ["--max-turns", str(int(turns))]
        if self.task.options.effort:
            command += ["--effort", self.task.options.effort]
        return command

    def run(self) -> Ending:
        """Run the CLI until it ends. Raises Stopped."""
        prompt = self.folder / "prompt.md"
        prompt.write_text(f"{texts.system(self.task)}\n{texts.prompt(self.task)}")
        with (
            prompt.open("rb") as stdin,
            (self.folder / "claude.jsonl").open("wb") as raw,
            (self.folder / "claude.stderr").open("wb") as stderr,
        ):
            process = children.start(
                self.command(), stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, cwd=self.task.work, env=self.env
            )
            assert process.stdout is not None
            with process.stdout as stdout:
                unfit = self._follow(process, stdout.fileno(), raw.fileno())
        self.stream.settle()
        self.deadline.check()
        if unfit:
            return Ending("infra_error", unfit)
        return self._ending(process.returncode)

    def _follow(self, process: subprocess.Popen[bytes], stdout: int, raw: int) -> str:
        """Read events until the CLI has ended; end it if it must stop. Return why the job is unfit, or ""."""
        unfit = ""
        try:
            while process.poll() is None:
                self._read(stdout, raw, TICK_S)
                unfit = self.unfit()
                if unfit or self.deadline.stopping():
                    break
            self._end(process, stdout, raw)
        finally:
            kill(descendants(process.pid))
            process.wait()
        # A program that the CLI left may hold the pipe open, so only the data in it is read, without waiting for its
        # end.
        while self._read(stdout, raw, 0.0):
            pass
        for line in self.lines.end():
            self.stream.line(line)
        return unfit

    def _read(self, stdout: int, raw: int, timeout_s: float) -> bool:
        """Read printed data. Return False if there is none, or at the end."""
        if not select.select([stdout], [], [], timeout_s)[0]:
            return False
        chunk = os.read(stdout, CHUNK_BYTES)
        os.write(raw, chunk)
        for line in self.lines.feed(chunk):
            self.stream.line(line)
        if not chunk:
            time.sleep(timeout_s)  # the pipe was closed before the CLI ended
        return bool(chunk)

    def _end(self, process: subprocess.Popen[bytes], stdout: int, raw: int) -> None:
        """Signal the CLI to end, more strongly each time; the caller kills it if that fails."""
        for number, patience_s in SIGNALS:
            if process.poll() is not None:
                return
            process.send_signal(number)
            until = time.monotonic() + patience_s
            while process.poll() is None and time.monotonic() < until:
                self._read(stdout, raw, TICK_S)

    def unfit(self) -> str:
        """Return why this run cannot represent its arm, or "". The CLI itself continues without a dead server."""
        if self.stream.init is None or not self.task.expect_tools:
            return ""
        if (state := self.stream.connected()) != "connected":
            return f"Claude Code is not connected to the knowledge base: its state is {state or 'not listed'!r}"
        if (shown := self.stream.tools()) != sorted(self.task.expect_tools):
            return f"Claude Code shows the model the tools {shown}; expected {sorted(self.task.expect_tools)}"
        return ""

    def _ending(self, code: int) -> Ending:
        result = self.stream.result
        if result is None:
            tail = (self.folder / "claude.stderr").read_text(errors="replace").strip().splitlines()[-1:]
            why = f": {tail[0][:300]}" if tail else ""
            return Ending("agent_error", f"Claude Code ended with exit code {code} and without a result{why}")
        return ending_of(result)


def ending_of(result: dict[str, object]) -> Ending:
    """Return the ending that the CLI's last event means."""
    subtype, said = str(result.get("subtype")), str(result.get("result") or result.get("errors") or "")[:600]
    if subtype in ("error_max_turns", "error_max_budget_usd"):
        return Ending("budget", subtype)
    if result.get("stop_reason") == "refusal":
        return Ending("refused", said)
    if not result.get("is_error"):
        return Ending("completed", f"Claude Code ended its turn ({subtype})")
    if result.get("api_error_status") is not None or "API Error" in said:
        return sdk_provider.ending_of(said)
    return Ending("agent_error", f"{subtype}: {said}")


def environment(task: Task, url: str) -> dict[str, str]:
    """Return environment variables of the CLI beside those of every program, equal in all arms.

    ENABLE_TOOL_SEARCH=false shows the model a server's tools at once, instead of after a search for them.
    """
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "repro-agent",
        "ANTHROPIC_SMALL_FAST_MODEL": task.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": task.model,
        "BASH_DEFAULT_TIMEOUT_MS": str(int(task.options.bash_s * 1000)),
        "BASH_MAX_TIMEOUT_MS": str(int(task.options.bash_s * 1000)),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(task.options.output_tokens),
        "CLAUDE_CONFIG_DIR": str(Path(task.scratch) / "claude"),
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "IS_SANDBOX": "1",
        "MCP_TOOL_TIMEOUT": str(int(task.options.tool_s * 1000)),
    }
