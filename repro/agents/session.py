"""`repro agent FOLDER`: runs inside an agent's container, from agent.json to agent-outcome.json.

The agent works in a thread. The main thread keeps the time, handles signals and writes the outcome, whatever the agent
does. If this is process 1 of a container, programs of the agent cannot kill it.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Protocol

from repro import config
from repro.agents import children, preflight, task
from repro.agents.deadline import Deadline, Stopped
from repro.agents.events import OUTCOME, TRANSCRIPT, Ending, Record
from repro.agents.relay import Relay
from repro.agents.task import Task
from repro.agents.tools_knowledge import Knowledge
from repro.errors import ReproError, UsageError
from repro.system.prctl import PR_SET_DUMPABLE, prctl
from repro.system.procfs import descendants

AGENTS = ("sdk", "claude-code", "replay")
TICK_S = 0.25
# How long a stopped agent may take to end before the outcome is written without it. It is less than an engine waits
# between SIGTERM and SIGKILL.
PATIENCE_S = 16.0
# The start of the command `repro` in a study without the search: equal in every arm.
NO_OPTIMIZE = """if [ "$1" = optimize ]; then echo 'repro: optimize is off in this study' >&2; exit 1; fi
"""


class Runner(Protocol):
    """An agent: works until it has ended. Raises Stopped if the session ends first."""

    def run(self) -> Ending: ...


class Session:
    """One agent in one folder."""

    def __init__(self, chosen: Task) -> None:
        self.task = chosen
        self.record = Record(chosen.folder)
        self.deadline = Deadline(chosen.budgets.get("wall_s"))
        self.relay = Relay(chosen.relay_port, chosen.socket)
        self.ending: Ending | None = None
        # Closing the relay makes a request under way fail, which ends the agent's wait for it.
        self.deadline.on_stop(self.relay.close)
        # Processes that existed before, which are not the agent's.
        self._before = set(descendants(os.getpid()))

    def run(self) -> Ending:
        """Run the whole session and always write an outcome. Raises OSError if the folder cannot be written."""
        children.adopt()
        handlers = {number: signal.signal(number, self._hear) for number in (signal.SIGTERM, signal.SIGINT)}
        thread = threading.Thread(target=self._work, name="agent", daemon=True)
        try:
            thread.start()
            while thread.is_alive():
                thread.join(TICK_S)
                children.bury(self._before)
                if self.deadline.stopping():
                    self._wind_up(thread)
                    break
            ending = self._judge()
        finally:
            children.end_all(self._before)
            self.relay.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        self.record.finish(ending, self.deadline.elapsed_s())
        return ending

    def _hear(self, number: int, _frame: object) -> None:
        self.deadline.stop(signal.Signals(number).name)

    def _wind_up(self, thread: threading.Thread) -> None:
        self.record.add("limit", reason=self.deadline.reason)
        until = time.monotonic() + PATIENCE_S
        while thread.is_alive() and time.monotonic() < until:
            self.deadline.wake()
            thread.join(TICK_S)
            children.bury(self._before)

    def _judge(self) -> Ending:
        """Return the ending that counts: why the session stopped the agent, else the agent's own report."""
        reason, said = self.deadline.reason, self.ending
        if reason == "wall":
            return Ending("timeout", f"the wall budget of {self.task.budgets['wall_s']:.0f} s is spent")
        if reason:
            return Ending("infra_error", f"ended by {reason}")
        if said is None:
            return Ending("agent_error", "the agent ended without a report")
        if said.status == "completed" and (missing := self.task.missing()):
            if len(missing) == len(self.task.problems):
                return Ending("gave_up", f"ended without a solution. {said.detail}".strip())
            return Ending("completed", f"without {', '.join(missing)}. {said.detail}".strip())
        return said

    def _work(self) -> None:
        """Run the agent. This is its thread's function."""
        try:
            self.ending = self._agent()
        except Stopped:
            return
        except preflight.Unfit as error:
            self.ending = Ending("infra_error", str(error))
        except ReproError as error:
            self.ending = Ending("infra_error", str(error))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            detail = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            self.ending = Ending("infra_error", detail[:500])
            traceback.print_exc()

    def _agent(self) -> Ending:
        env = prepare(self.task)
        self.relay.start()
        knowledge: Knowledge | None = None
        if self.task.agent != "replay" or self.task.expect_tools:
            knowledge, self.record.preflight = preflight.check(self.task, self.relay)
        self.record.add("preflight", **self.record.preflight)
        self.deadline.check()
        return runner(self, env, knowledge).run()


def runner(session: Session, env: dict[str, str], knowledge: Knowledge | None) -> Runner:
    """Return the agent that a task names. Raises UsageError."""
    name = session.task.agent
    if name == "sdk":
        from repro.agents.sdk import SdkAgent

        return SdkAgent(session.task, env, session.deadline, session.record, knowledge, session.relay.url)
    if name == "claude-code":
        from repro.agents.claude_code import ClaudeCode

        return ClaudeCode(session.task, env, session.deadline, session.record, session.relay.url)
    if name == "replay":
        from repro.agents.replay import Replay

        return Replay(session.task, env, session.deadline, session.record, knowledge)
    raise UsageError(f"no agent {name!r} works in a container", f"there are {', '.join(AGENTS)}")


def prepare(chosen: Task) -> dict[str, str]:
    """Make the agent's folders and its command `repro`; return the environment of all its programs.

    The environment is an allow-list, so that this process's own variables cannot leak into a program.
    """
    commands, results = chosen.folder / "bin", chosen.folder / "results"
    for each in (chosen.solutions, chosen.scratch, commands, results, chosen.folder / TRANSCRIPT):
        each.mkdir(parents=True, exist_ok=True)
    command = commands / "repro"
    refusal = "" if chosen.optimize else NO_OPTIMIZE
    command.write_text(f'#!/bin/sh\n{refusal}exec {shlex.join(config.COMMAND)} "$@"\n')
    command.chmod(0o755)
    fixtures = results / "fixtures"
    if not fixtures.is_symlink():
        fixtures.symlink_to(chosen.folder / "fixtures")
    env = config.worker_env(chosen.scratch, interpret=chosen.device == "cpu")
    env["PATH"] = f"{commands}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', os.defpath)}"
    return env | {"REPRO_RESULTS": str(results), "REPRO_STATE": str(chosen.scratch / "state")}


def serve(folder: Path) -> int:
    """Run the agent of a folder. Return 0 if an outcome was written, whatever it says. Raises ReproError."""
    chosen = task.read(folder)
    prctl(PR_SET_DUMPABLE, 0)  # programs of the agent have its user, but must not trace it or write its memory
    try:
        (folder / task.TASK).unlink()  # it names the arm, which the agent must not know
        ending = Session(chosen).run()
    except OSError as error:
        raise ReproError(f"cannot write {folder / OUTCOME}", error.strerror or str(error)) from error
    print(f"{chosen.job}: {ending.status}{f': {ending.detail}' if ending.detail else ''}", flush=True)
    return 0
