"""One session of an agent, as a process: what it checks first, how it ends, and that nothing outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="requirements/agents.txt is not installed")
from agent_job import Job, call, message, text  # noqa: E402
from conftest import CLEAN_ENV, ROOT, alive, until  # noqa: E402

from repro import config  # noqa: E402
from repro.agents import preflight, session, task  # noqa: E402
from repro.agents.events import EVENTS, Ending, Record  # noqa: E402
from repro.errors import UsageError  # noqa: E402
from repro.system.procfs import processes  # noqa: E402

SOLUTION = "solutions/L1_36_RMSNorm.py"
CREATE = call("str_replace_based_edit_tool", command="create", path=SOLUTION, file_text="x = 1\n")
DONE = message(text("done"))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.close()


def start(job: Job, **changes: Any) -> subprocess.Popen[str]:
    """The session as a process that could be the first one of a container."""
    job.write(**changes)
    python, *program = config.COMMAND
    command = ["env", "--default-signal=INT", python, "-W", "error", *program, "agent", job.folder]
    env = os.environ | {"ANTHROPIC_API_KEY": "planted-key", "HF_TOKEN": "planted-token"}
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)


STARTS = """
sleep 300 & echo $! >> pids
setsid env -i /bin/sh -c 'echo $$ >> pids; exec sleep 300' &
(setsid env -i /bin/sh -c 'trap "" TERM INT; echo $$ >> pids; sleep 300' &)
while [ $(wc -l < pids) -lt 3 ]; do sleep 0.05; done
"""


@pytest.mark.clock
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_agent_with_all_that_it_started_and_keeps_its_work(job: Job, number: int) -> None:
    """Also what left its session, its parent and its environment behind."""
    job.serve([message(CREATE), message(call("bash", 2, command=STARTS + "touch there; sleep 300"))])
    process = start(job)
    until((job.folder / "work" / "there").exists, 30)
    begin = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0 and time.monotonic() - begin < 10, err
    outcome = job.outcome()
    assert outcome["status"] == "infra_error" and signal.Signals(number).name in outcome["detail"]
    assert outcome["turns"] == 2 and (job.folder / "work" / SOLUTION).read_text() == "x = 1\n"
    pids = [int(line) for line in (job.folder / "work" / "pids").read_text().split()]
    assert len(pids) == 3 and not any(alive(pid) for pid in pids)


@pytest.mark.clock
def test_a_signal_wakes_a_session_that_waits_for_the_model(job: Job) -> None:
    job.serve([{"hang_s": 100}])
    process = start(job)
    until(lambda: job.requests(), 30)
    process.terminate()
    begin = time.monotonic()
    process.communicate(timeout=30)
    assert job.outcome()["status"] == "infra_error" and time.monotonic() - begin < 10


@pytest.mark.slow
def test_the_wall_budget_ends_a_command_and_what_it_started(job: Job) -> None:
    job.serve([message(CREATE), message(call("bash", 2, command=STARTS + "sleep 300"))])
    outcome = job.run(budgets={"wall_s": 3})
    assert outcome["status"] == "timeout" and "3 s" in outcome["detail"] and outcome["wall_s"] < 15
    pids = [int(line) for line in (job.folder / "work" / "pids").read_text().split()]
    assert len(pids) == 3 and not any(alive(pid) for pid in pids)
    assert job.events()[-1] | {"t": 0, "detail": ""} == {"t": 0, "kind": "end", "status": "timeout", "detail": ""}


@pytest.mark.clock
def test_an_agent_that_does_not_come_back_cannot_keep_the_outcome_from_being_written(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck:
        def run(self) -> Ending:
            time.sleep(20)
            return Ending("completed")

    job.serve([DONE])
    monkeypatch.setattr(session, "PATIENCE_S", 1.0)
    monkeypatch.setattr(session, "runner", lambda *_: Stuck())
    outcome = job.run(budgets={"wall_s": 1})
    assert outcome["status"] == "timeout" and outcome["wall_s"] < 10


def test_programs_left_behind_by_an_agent_that_is_done_are_ended(job: Job) -> None:
    job.serve([message(CREATE), message(call("bash", 2, command=STARTS)), DONE])
    assert job.run()["status"] == "completed"
    assert not any(alive(int(pid)) for pid in (job.folder / "work" / "pids").read_text().split())


@pytest.mark.slow
def test_dead_programs_are_buried_while_the_agent_works(job: Job) -> None:
    """Else a shell that starts many in the background uses up a container's process ids."""
    states = "cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' | while read state parent rest; do "
    states += "if [ $parent = $PPID ]; then echo $state; fi; done"
    orphans = f"for i in $(seq 50); do (setsid true &) ; done; sleep 1; {states}"
    job.serve([message(CREATE), message(call("bash", 2, command=orphans)), DONE])
    process = start(job)
    process.communicate(timeout=60)
    ours = job.events("tool_result")[1]["text"].split()
    assert ours and set(ours) <= {"S", "R", "D"}, ours


@pytest.mark.slow
def test_events_are_there_as_they_happen(job: Job) -> None:
    """A session that is killed leaves all that came before."""
    job.serve([message(CREATE), message(call("bash", 2, command="touch there; sleep 300"))])
    process = start(job)
    until((job.folder / "work" / "there").exists, 30)
    process.kill()
    process.communicate()
    kinds = [event["kind"] for event in job.events()]
    assert kinds == ["preflight", "request", "assistant", "tool_use", "tool_result", "request", "assistant", "tool_use"]
    os.killpg(shell_of(job), signal.SIGKILL)


def shell_of(job: Job) -> int:
    """The session of the shell that works in a job's folder."""
    for pid in processes():
        try:
            if os.readlink(f"/proc/{pid}/cwd") == str(job.folder / "work"):
                return os.getsid(pid)
        except OSError:
            continue
    raise AssertionError("no shell works there")


@pytest.mark.slow
def test_no_secret_of_the_session_reaches_the_agents_programs(job: Job) -> None:
    job.serve([message(CREATE), message(call("bash", 2, command="env; cat /proc/$$/environ | tr '\\0' '\\n'")), DONE])
    process = start(job)
    process.communicate(timeout=60)
    shown = job.events("tool_result")[1]["text"]
    assert "planted" not in shown and "REPRO_RESULTS=" in shown and "TRITON_INTERPRET=1" in shown


# -- before the first request

KB = {"arm": "with_kb", "knowledge": "local"}


def test_a_knowledge_base_with_other_tools_than_expected_ends_it_before_any_request(job: Job) -> None:
    job.serve([DONE], mcp=True)
    outcome = job.run(**KB, expect_tools=["echo", "search_knowledge"])
    assert outcome["status"] == "infra_error" and "search_knowledge" in outcome["detail"] and job.requests() == []


def test_a_knowledge_base_that_is_missing_ends_it_before_any_request(job: Job) -> None:
    job.serve([DONE])
    outcome = job.run(**KB, expect_tools=["echo"])
    assert outcome["status"] == "infra_error" and "does not answer" in outcome["detail"] and job.requests() == []


def test_a_knowledge_base_in_an_arm_without_one_ends_it_before_any_request(job: Job) -> None:
    job.serve([DONE], mcp=True)
    outcome = job.run()
    assert outcome["status"] == "infra_error" and "baseline" in outcome["detail"] and job.requests() == []


@pytest.mark.clock
def test_a_gateway_that_is_not_there_ends_it_at_once(job: Job) -> None:
    outcome = job.run()
    assert outcome["status"] == "infra_error" and "gateway cannot be reached" in outcome["detail"]
    assert outcome["wall_s"] < 10


def test_an_interface_that_is_up_is_a_way_out_and_one_that_is_down_is_none(tmp_path: Path) -> None:
    (tmp_path / "dev").write_text("Inter-| Receive\n face |bytes\n    lo: 0\n tunl0: 0\n  eth0: 0\n  odd0: 0\n")
    for name, flags in (("lo", "0x9"), ("tunl0", "0x80"), ("eth0", "0x1003")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "flags").write_text(flags + "\n")
    assert preflight.ways_out(tmp_path, tmp_path) == ["eth0", "odd0"]


def test_a_machine_with_a_network_is_no_container(job: Job) -> None:
    if not preflight.ways_out():
        pytest.skip("this machine has no network to be seen")
    job.serve([DONE])
    outcome = job.run(isolation="container")
    assert outcome["status"] == "infra_error" and "has a network" in outcome["detail"] and job.requests() == []


# -- the task


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"job": "x"}', '{"options": {"unknown": 1}}'])
def test_a_folder_without_a_task_is_refused_in_one_line(tmp_path: Path, broken: str) -> None:
    if broken:
        (tmp_path / "agent.json").write_text(broken)
    command = [*config.COMMAND, "agent", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("repro: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_file_that_names_the_arm_is_removed_before_the_agent_works(job: Job) -> None:
    """Its programs may read all of its folder and every environment; the baseline is not told that it is one."""
    look = call("bash", command="ls ..; grep -rs 'the-[a]rm' .. /proc/$$/environ; env")
    job.serve([message(look), message(CREATE), DONE])
    process = start(job, arm="the-arm")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and job.outcome()["status"] == "completed", (out, err)
    (found, _) = job.events("tool_result")
    assert "agent.json" not in found["text"] and "the-arm" not in found["text"] and "events.jsonl" in found["text"]


def test_an_unknown_agent_or_problem_is_refused(job: Job) -> None:
    job.serve([DONE])
    assert "no agent 'gpt'" in job.run(agent="gpt")["detail"]
    with pytest.raises(UsageError, match="L9_99"):
        job.write(problems=["L9_99"])


def test_every_arm_gets_the_same_prompt(job: Job) -> None:
    arms = [job.write(arm="baseline"), job.write(**KB, expect_tools=["echo"]),
            job.write(arm="placebo", knowledge="placebo", expect_tools=["echo"])]  # fmt: skip
    assert len({task.prompt(each) for each in arms}) == 1 and len({task.system(each) for each in arms}) == 1
    told = (task.prompt(arms[1]) + task.system(arms[1])).lower()
    assert not any(word in told for word in ("knowledge", "mcp", "arm ", "baseline", "search"))


def test_the_prompt_names_every_problem_its_files_and_the_command(job: Job) -> None:
    one = task.prompt(job.write())
    whole = task.prompt(job.write(mode="suite", problems=["L1_36", "L3_43"], device="cuda", size="full"))
    assert str(job.folder / "work" / SOLUTION) in one and f"{job.folder}/problems/L1_36_RMSNorm.py" in one
    assert "--device cpu --size smoke" in one and "There is no GPU here" in one and "$" not in one + whole
    assert "solutions/L3_43_MinGPTCausalAttention.py" in whole and "--device cuda --size full" in whole
    assert "There is no GPU" not in whole and "each of the 2 problems" in whole
    for rule in ("ModelNew", "strict=True", "atol=rtol=1e-2", "1.2", "--trust dev", "at least one kernel"):
        assert rule in one, rule


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [False, True])
def test_the_search_is_off_unless_the_study_gives_it_to_every_arm(job: Job, *, allowed: bool) -> None:
    tried = call("bash", command="repro optimize L1_36 --from nowhere.py --engine local --device cpu")
    job.serve([message(tried), message(CREATE), DONE])
    assert job.run(optimize=allowed)["status"] == "completed"
    (told, _) = job.events("tool_result")
    assert told["is_error"] and ("optimize is off in this study" in told["text"]) != allowed
    assert ("nowhere.py" in told["text"]) == allowed
    prompts = {task.prompt(job.write(arm=arm, optimize=allowed)) for arm in ("baseline", "placebo")}
    (prompt,) = prompts
    assert ("repro optimize ID --from FILE --trust dev" in prompt) == ("optimize" in prompt) == allowed


def test_limits_are_written_in_words() -> None:
    assert task.limits({"wall_s": 2400, "turns": 200, "tokens": 2_000_000, "usd": 20.0, "kb_calls": 200}) == (
        "40 minutes, 200 turns, 2,000,000 tokens and 20.00 USD of model use"
    )
    assert task.limits({"wall_s": None, "turns": 5}) == "5 turns" and task.limits({}) == "no fixed limit"


# -- replay


def test_a_recording_is_carried_out_again_for_real(job: Job, tmp_path: Path) -> None:
    job.serve([message(CREATE), message(call("bash", 2, command="echo 2 >> " + SOLUTION)), DONE])
    assert job.run()["status"] == "completed"
    first = (job.folder / "work" / SOLUTION).read_text()
    (tmp_path / "again").mkdir()
    again = Job(tmp_path / "again")
    (again.folder / "replay.jsonl").write_bytes((job.folder / EVENTS).read_bytes())
    outcome = again.run(agent="replay")
    again.close()
    assert outcome["status"] == "completed" and outcome["tool_calls"] == job.outcome()["tool_calls"]
    assert (again.folder / "work" / SOLUTION).read_text() == first == "x = 1\n2\n"


def test_an_invalid_recording_is_reported(job: Job) -> None:
    (job.folder / "replay.jsonl").write_text("no json\n")
    outcome = job.run(agent="replay")
    assert outcome["status"] == "infra_error" and "is not a recording" in outcome["detail"]


# -- the record


def test_after_its_end_a_record_takes_nothing_more(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.add("request")
    record.finish(Ending("completed"), 1.0)
    record.add("late")
    assert [json.loads(line)["kind"] for line in (tmp_path / EVENTS).read_text().splitlines()] == ["request", "end"]
    with pytest.raises(ValueError, match="no status"):
        Ending("fine")


HARVEST = """
import os, pathlib, sys
from repro.engines import agent_local
os.setuid(12345)
basket = agent_local._harvest(pathlib.Path(sys.argv[1]))
print(sorted(basket.files), sorted(basket.cut))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="root reads every file")
def test_files_that_cannot_be_read_are_named(open_folder: Path) -> None:
    """Each of them ended the study."""
    solutions, closed = open_folder / "job" / "work" / "solutions", open_folder / "job" / "transcript"
    for folder in (solutions, closed):
        folder.mkdir(parents=True)
    for name, mode in (("a.py", 0o644), ("b.py", 0o000)):
        (solutions / name).write_text("x = 1\n")
        (solutions / name).chmod(mode)
    (closed / "c.jsonl").write_text("{}")
    closed.chmod(0o444)
    command = [sys.executable, "-c", HARVEST, str(open_folder / "job")]
    done = subprocess.run(
        command, capture_output=True, text=True, env=CLEAN_ENV | {"PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.stdout == "['work/solutions/a.py'] ['transcript/c.jsonl', 'work/solutions/b.py']\n", done.stderr
