"""Agents in real containers beside real gateways, their replies from scripts: both arms, isolation, kills, ten at once.

Nothing here needs a key or a network. The model is the only part that is not real.
"""

from __future__ import annotations

import functools
import ipaddress
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import conftest
import pytest
from conftest import ROOT, Tool, ask_docker, fresh, manifest, rows, strict_json

from repro import config as settings
from repro.gateway import sse

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("image"), pytest.mark.timeout(900)]
wait_for = functools.partial(conftest.wait_for, seconds=240.0)
SCRIPTS = ROOT / "tests" / "agent_scripts"
STUDY = ("run", "--agent", "sdk", "--engine", "docker", "--device", "cpu", "--size", "smoke", "--no-timing",
         "--problem", "L1_36", "--retry-wait-s", "0.5")  # fmt: skip
MASKED = {"/opt/repro/artifacts", "/opt/repro/tests", "/opt/repro/repro/knowledge"}
KEY = "sk-ant-planted-0123456789abcdefghij"


def of(pid: int, role: str = "", *flags: str) -> list[str]:
    """Names of the containers that a command started, of one role or all."""
    form = '{{.Names}} {{.Label "repro.owner"}} {{.Label "repro.role"}}'
    lines = ask_docker("ps", "--no-trunc", *flags, "--filter", "label=repro.owner", "--format", form).splitlines()
    found = [line.split() for line in lines if f"-{pid}-" in line]
    return [words[0] for words in found if not role or words[2:] == [role]]


def left_over(pid: int) -> list[str]:
    """Containers and volumes that a command left behind."""
    text = ask_docker("volume", "ls", "--filter", "label=repro.owner", "--format", '{{.Name}} {{.Label "repro.owner"}}')
    return of(pid, "", "--all") + [line.split()[0] for line in text.splitlines() if f"-{pid}-" in line]


def bash(command: str) -> dict[str, Any]:
    """A reply that calls the agent's bash."""
    return {"content": [{"type": "tool_use", "name": "bash", "input": {"command": command}}], "stop_reason": "tool_use",
            "usage": {"input_tokens": 100, "output_tokens": 10}}  # fmt: skip


def solves(mark: str = "") -> dict[str, Any]:
    """A reply that hands in a solution which the judge finds wrong at once."""
    name = "solutions/L1_36_RMSNorm.py"
    return bash(f"printf '# {mark}\\nclass ModelNew:\\n    pass\\n' > {name}; cat {name}")


END = {"content": [{"type": "text", "text": "Scripted reply: done."}], "stop_reason": "end_turn"}


def write(folder: Path, **scripts: list[dict[str, Any]]) -> Path:
    """A folder of scripts: `baseline`, or any name of a script in which `__` stands for a dot."""
    folder.mkdir(exist_ok=True)
    for name, lines in scripts.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name.replace('__', '.')}.jsonl").write_text(text)
    return folder


def events(bundle: Path, job: str, kind: str, attempt: int = 1) -> list[dict[str, Any]]:
    """Events of one attempt."""
    lines = (bundle / "agents" / job / f"attempt-{attempt}" / "events.jsonl").read_text().splitlines()
    return [event for event in map(strict_json, lines) if event["kind"] == kind]


def record(bundle: Path, job: str) -> dict[str, Any]:
    """A job's record."""
    found: dict[str, Any] = strict_json((bundle / "agents" / job / "job.json").read_text())
    return found


def table(bundle: Path) -> list[Any]:
    """What must not depend on when a run was killed."""
    return sorted((name, row["content"], row["agent"]["status"], row["result"]["results"][0]["verdict"])
                  for name, row in rows(bundle).items())  # fmt: skip


# -- both arms


@pytest.fixture(scope="module")
def both_arms(image: None, tmp_path_factory: pytest.TempPathFactory, smoke_results: Path) -> SimpleNamespace:
    """The hand-written scripts of both arms, at once."""
    tool = fresh(tmp_path_factory.mktemp("arms"), smoke_results)
    process = tool.start(*STUDY, "--upstream", f"replay:{SCRIPTS}", "--jobs", 2, "--json", "out.json")
    done = tool.finish(process, 600)
    assert done.code == 0, done.err
    return SimpleNamespace(tool=tool, done=done, pid=process.pid, bundle=tool.bundles()[-1])


@pytest.mark.parametrize("arm", ["baseline", "with_kb"])
def test_an_arm_writes_a_kernel_reads_its_error_and_fixes_it(arm: str, both_arms: Any) -> None:
    job = f"L1_36/{arm}/0"
    said = " ".join(event["text"] for event in events(both_arms.bundle, job, "tool_result"))
    assert said.index("L1_36_RMSNorm: wrong: ") < said.index("L1_36_RMSNorm: correct ("), (
        "the tools ran and the judge judged"
    )
    row = rows(both_arms.bundle)[job]
    assert row["result"]["results"][0]["verdict"] == "correct" and row["agent"]["solution"]
    assert row["result"]["results"][0]["trust"] == "audited"
    told = record(both_arms.bundle, job)
    assert told["status"] == "completed" and told["isolation"]["agent"]["network"] == "none"
    calls = told["meter"]["kb"]["calls"]
    seen = told["outcome"]["preflight"]
    assert (calls, seen.get("mcp_status")) == (0, 404) if arm == "baseline" else calls >= 1 and len(seen["tools"]) == 8


def test_the_bundle_of_a_study_verifies_and_its_report_is_drawn_in_every_format(both_arms: Any) -> None:
    tool = both_arms.tool
    done = tool("verify", both_arms.bundle)
    assert done.code == 0 and "1 bundle: 1 ok" in done.out, done.out
    text = (both_arms.bundle / "report.md").read_text()
    assert "<summary>Agent study</summary>" in text and "**Warning.** Scripted" in text
    done = tool("report", both_arms.bundle, "-o", tool.folder / "drawn", "--format", "md,html,tex")
    assert done.code == 0, done.err
    assert "Agent study" in (tool.folder / "drawn" / "report.html").read_text()
    kept = {path.name for path in (both_arms.bundle / "agents/L1_36/with_kb/0/attempt-1").iterdir()}
    assert {"agent-outcome.json", "events.jsonl", "agent.json", "gateway.json", "journal.jsonl", "meter.json"} <= kept


def test_nothing_is_left_of_a_study(both_arms: Any) -> None:
    assert not left_over(both_arms.pid) and not both_arms.tool.processes()


# -- isolation


@pytest.fixture(scope="module")
def probes(image: None, tmp_path_factory: pytest.TempPathFactory, smoke_results: Path) -> dict[str, Any]:
    """What a program of each arm's agent found, and the gateways' journals. Keys are set where the study runs."""
    tool = fresh(tmp_path_factory.mktemp("probe"), smoke_results)
    program = (ROOT / "tests" / "agent_probe.py").read_text().replace("@MODEL@", settings.API_MODEL)
    script = [bash(f"cat > probe.py <<'PROBE_END'\n{program}\nPROBE_END\npython probe.py > out; "
                   "grep -o 'PROBE.*' out | head -c 25000; tail -3 out | cut -c1-300"), END]  # fmt: skip
    folder = write(tool.folder / "scripts", baseline=script, with_kb=script)
    keys = dict.fromkeys(settings.SECRETS, KEY)
    done = tool.finish(tool.start(*STUDY, "--upstream", f"replay:{folder}", "--jobs", 2, **keys), 600)
    assert done.code == 0, done.err
    bundle = tool.bundles()[-1]
    found: dict[str, Any] = {"bundle": bundle}
    for arm in ("baseline", "with_kb"):
        (result,) = events(bundle, f"L1_36/{arm}/0", "tool_result")
        text = result["text"]
        assert "PROBE" in text, text
        found[arm] = json.loads(text[text.index("PROBE") + 5 :].splitlines()[0])
        found[f"{arm} journal"] = record(bundle, f"L1_36/{arm}/0")["meter"]["denied"]
    return found


@pytest.fixture(params=["baseline", "with_kb"])
def probe(request: pytest.FixtureRequest, probes: dict[str, Any]) -> Any:
    return probes[request.param] | {"arm": request.param, "denied": probes[f"{request.param} journal"]}


def test_an_agent_has_no_interface_no_route_no_names_and_reaches_no_address(probe: Any) -> None:
    assert probe["interfaces_up"] == ["lo"] and not probe["routes"]
    for place, found in [*probe["connect"].items(), ("dns", probe["dns"])]:
        assert found != "done" and found["s"] < 3, (place, found)


def test_an_agent_has_no_rights_and_writes_only_its_own_folder(probe: Any) -> None:
    assert (probe["uid"], probe["gid"]) == (settings.CONTAINER_UID, settings.CONTAINER_UID)
    assert int(probe["CapEff"], 16) == int(probe["CapBnd"], 16) == 0 and probe["NoNewPrivs"] == "1"
    assert not probe["docker_sock"]
    allowed = {path for path, found in probe["write"].items() if found == "done"}
    assert allowed == {"/job/problems/x", "/tmp/x"}  # noqa: S108
    for name in ("marked", "raw", "unshare_user", "unshare_net", "mount", "unmask"):
        assert probe[name] != "done", name


def test_an_agent_gives_way_where_processors_are_scarce(probe: Any) -> None:
    """By what the kernel says of its group; one that asks for nothing has 1024 shares, or a weight of 100."""
    ((file, value),) = probe["processors"].items()
    assert int(value) < {"cpu.shares": 1024, "cpu.weight": 100}[Path(file).name] / 4


def test_no_solution_test_or_page_is_within_an_agents_reach(probe: Any) -> None:
    assert probe["masked"] == dict.fromkeys([*MASKED, "/gateway"], [])
    assert [name for name in probe["solutions_in_reach"] if "/problems/" not in name] == []


def test_an_agent_cannot_see_its_arm(probe: Any) -> None:
    assert probe["arm_told"] == []


def test_an_agent_sees_the_socket_and_nothing_else_of_its_gateway(probe: Any) -> None:
    assert probe["sock"] == ["gw.sock"]
    text = json.dumps([probe["env"], probe["read"]])
    assert KEY not in text and not [n for n in probe["env"] if n in settings.SECRETS]
    assert "gateway" not in " ".join(probe["processes"]), "another process namespace"


def test_the_gateway_refuses_what_would_lead_out(probe: Any) -> None:
    told = dict(probe["gateway"])
    mcp = told.pop("mcp")
    assert mcp == 404 if probe["arm"] == "baseline" else mcp != 404
    assert all(400 <= status < 500 for status in told.values()), told
    assert sum(probe["denied"].values()) >= len(told), "every refusal is in the journal's counts"


# -- a planted key


class Provider(ThreadingHTTPServer):
    """A provider that holds its caller to a key and answers from a list."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self.answers, self.keys = answers, [""] * 0
        super().__init__(("0.0.0.0", 0), Handler)  # noqa: S104 the gateway's container calls it

    @property
    def url(self) -> str:
        (network,) = json.loads(ask_docker("network", "inspect", "bridge"))
        config = network["IPAM"]["Config"][0]  # an engine names its own address there from its second start on
        bridge = config.get("Gateway") or ipaddress.ip_network(config["Subnet"])[1]
        return f"http://{bridge}:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Provider

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.keys.append(self.headers.get("x-api-key", ""))
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        content = [block | {"id": f"toolu_{turn}"} if block["type"] == "tool_use" else block
                   for block in self.server.answers[turn]["content"]]  # fmt: skip
        message = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": body["model"],
                   "content": content, "stop_reason": self.server.answers[turn]["stop_reason"], "stop_sequence": None,
                   "usage": {"input_tokens": 10, "output_tokens": 5}}  # fmt: skip
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in sse.events(message):
            self.wfile.write(event)


DRIVER = """
import sys
from pathlib import Path
from dataclasses import replace
from repro.cli import main
from repro.engines import choose
from repro.studies import evaluation
from repro.studies.agent import options, runner
from repro.records.options import Options
from repro.runs.loop import Run
from repro.runs.progress import Progress
args = main.parser().parse_args(sys.argv[2:])
kind, _, url = sys.argv[1].partition("=")
plan = replace(options.build(args, "smoke"), **{kind: url})
engine = choose("docker", gpus="none", device="cpu", say=print)
run = Run(engine, args.results, Progress(), Options(timing=False), "smoke")
runner.run(run, plan, args.problem, options.pace(args))
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[Callable[..., Provider]]:
    running: list[Provider] = []

    def start(*answers: dict[str, Any]) -> Provider:
        server = Provider(list(answers))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def test_a_key_goes_to_the_provider_and_nowhere_else(
    tmp_path: Path, smoke_results: Path, provider: Callable[..., Provider]
) -> None:
    """It is in no environment, file, log, journal, inspect output or image; the provider did get it."""
    tool = fresh(tmp_path, smoke_results)
    hunt = "env; cat /proc/*/environ /proc/*/cmdline; grep -rs sk-ant /job /tmp /gateway /gateway-sock; sleep 6; date"
    server = provider(bash(hunt), solves(), END)
    command = ["env", "PYTHONPATH=" + str(ROOT), settings_python(), "-c", DRIVER, f"base_url={server.url}", *STUDY,
               "--arms", "baseline", "--results", str(tool.results)]  # fmt: skip
    environment = os.environ | {"ANTHROPIC_API_KEY": KEY, "REPRO_STATE": str(tmp_path / "state")}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        process_group=0,
    )  # fmt: skip
    try:
        (agent,) = wait_for("an agent", lambda: of(process.pid, "agent"), process)
        (gateway,) = of(process.pid, "gateway")
        wait_for("a request", lambda: server.keys, process)
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        raise
    seen = ask_docker("inspect", agent, gateway)
    seen += ask_docker("volume", "inspect", *[n for n in left_over(process.pid) if n not in (agent, gateway)])
    for name in (agent, gateway):
        done = subprocess.run(["docker", "logs", name], capture_output=True, text=True, check=True)
        seen += done.stdout + done.stderr + ask_docker("top", name)
        files = "cat /proc/*/environ /proc/*/cmdline 2>/dev/null; grep -rs . /gateway /gateway-sock /job /tmp || true"
        seen += ask_docker("exec", name, "sh", "-c", files)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    seen += out + err + ask_docker("history", "--no-trunc", settings.image())
    (bundle,) = tool.bundles()
    texts = {path.name: path.read_text(errors="replace") for path in bundle.rglob("*") if path.is_file()}
    assert server.keys == [KEY] * 3, "the gateway had it"
    assert KEY not in seen, seen[max(0, seen.find(KEY) - 400) : seen.find(KEY)]
    assert [name for name, text in texts.items() if KEY in text] == []
    assert "journal.jsonl" in texts and "record.jsonl" in texts and "gateway.log" in texts
    assert not left_over(process.pid)


def settings_python() -> str:
    import sys

    return sys.executable


# -- kills

# Long enough to be killed in, short enough to wait for.
SLOW = [bash("date; sleep 7; date"), solves(), END]
QUICK = [solves(), END]


def slow_study(tool: Tool, **env: str) -> tuple[subprocess.Popen[str], str]:
    """A study whose second arm's agent sleeps in its first command, caught there; returns that agent's container."""
    folder = write(tool.folder / "scripts", baseline=QUICK, with_kb=SLOW)
    process = tool.start(*STUDY, "--upstream", f"replay:{folder}", **env)

    def sleeping() -> str:
        for name in of(process.pid, "agent"):
            done = subprocess.run(["docker", "top", name, "-eo", "pid,args"], capture_output=True, text=True)
            if "sleep 7" in done.stdout:
                return name
        return ""

    return process, wait_for("a sleeping agent", sleeping, process)


def test_interrupted_it_keeps_names_and_leaves_nothing_and_resumes_to_the_same_table(judge_tool: Tool) -> None:
    process, _ = slow_study(judge_tool)
    process.send_signal(signal.SIGINT)
    done = judge_tool.finish(process)
    assert done.code == 130 and "unfinished: L1_36/with_kb/0" in done.complaint, done.err
    assert not left_over(process.pid) and not judge_tool.processes()
    (bundle,) = judge_tool.bundles()
    assert manifest(bundle)["status"] == "interrupted" and list(rows(bundle)) == ["L1_36/baseline/0"]
    cut = record(bundle, "L1_36/with_kb/0")
    assert not cut["finished"] and cut["class"] == "interrupted" and events(bundle, "L1_36/with_kb/0", "tool_use")
    before = table(bundle)
    again = judge_tool(*STUDY, "--upstream", f"replay:{judge_tool.folder / 'scripts'}", "--resume")
    assert again.code == 0, again.err
    assert judge_tool.bundles() == [bundle] and manifest(bundle)["status"] == "complete"
    assert table(bundle)[:1] == before and [row[2] for row in table(bundle)] == ["completed"] * 2
    assert [a["class"] for a in record(bundle, "L1_36/with_kb/0")["attempts"]] == ["interrupted", "agent"]
    assert len(record(bundle, "L1_36/baseline/0")["attempts"]) == 1, "what was done was not done again"


def test_a_second_signal_kills_at_once(judge_tool: Tool) -> None:
    process, agent = slow_study(judge_tool)
    ask_docker("kill", "--signal", "STOP", agent)  # it cannot hear SIGTERM; Docker wakes a paused container for it
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    done = judge_tool.finish(process)
    assert done.code == 130 and "unfinished: L1_36/with_kb/0" in done.complaint, done.err
    assert "interrupted again: killing everything" in done.err
    assert time.monotonic() - begin < 60 and not left_over(process.pid)


@pytest.mark.parametrize("victim", ["agent", "gateway"])
def test_a_container_that_is_killed_is_an_infrastructure_failure_and_tried_again(victim: str, judge_tool: Tool) -> None:
    process, agent = slow_study(judge_tool)
    ask_docker("kill", agent if victim == "agent" else agent.removesuffix("agent") + "gateway")
    done = judge_tool.finish(process, 600)
    assert done.code == 0, done.err
    (bundle,) = judge_tool.bundles()
    attempts = record(bundle, "L1_36/with_kb/0")["attempts"]
    assert [a["class"] for a in attempts] == ["infrastructure", "agent"], attempts
    assert "infrastructure failure, again in 0.5 s" in done.err
    assert "Attempts that do not count: 1 infrastructure" in (bundle / "report.md").read_text()
    assert [row[2] for row in table(bundle)] == ["completed"] * 2 and not left_over(process.pid)


def test_an_agent_that_kills_wins_no_further_attempt(judge_tool: Tool) -> None:
    """Its session is the container's first process, which no SIGKILL from inside ends: its own programs die alone, and
    it goes on. A SIGTERM ends the session, and that is the agent's own doing."""
    kills = [bash("kill -9 -1; kill -9 1"), bash("cat /proc/1/cmdline"), solves(), END]
    folder = write(judge_tool.folder / "scripts", baseline=kills, with_kb=[bash("true"), bash("kill 1; sleep 60"), END])
    done = judge_tool(*STUDY, "--upstream", f"replay:{folder}", "--jobs", 2)
    assert done.code == 0, done.err
    (bundle,) = judge_tool.bundles()
    went_on, ended = (record(bundle, f"L1_36/{arm}/0") for arm in ("baseline", "with_kb"))
    assert (went_on["status"], len(went_on["attempts"]), went_on["meter"]["turns"]) == ("completed", 1, 4), went_on
    first = events(bundle, "L1_36/baseline/0", "tool_result")[1]["text"]
    assert "entrypoint.py" in first and "init" not in first, first
    assert (ended["class"], len(ended["attempts"])) == ("agent", 1) and "SIGTERM" in ended["detail"], ended


def test_a_study_that_is_killed_leaves_what_gc_removes_and_resume_finishes(judge_tool: Tool) -> None:
    process, _ = slow_study(judge_tool)
    process.kill()
    process.communicate()
    assert left_over(process.pid), "the dead run left nothing to clean up"
    assert judge_tool("doctor", "--clean").code == 0
    assert not left_over(process.pid), "gateway, agent and volumes went"
    again = judge_tool(*STUDY, "--upstream", f"replay:{judge_tool.folder / 'scripts'}", "--resume")
    assert again.code == 0, again.err
    (bundle,) = judge_tool.bundles()
    assert [row[2] for row in table(bundle)] == ["completed"] * 2


def test_an_engine_that_goes_away_loses_the_job_at_work_alone(judge_tool: Tool) -> None:
    """In the middle of the second arm's agent; then it is back, and the command resumed."""
    from test_failures import Proxy

    proxy = Proxy(judge_tool.folder / "docker.sock")
    process, _ = slow_study(judge_tool, DOCKER_HOST=proxy.address)
    proxy.cut()
    done = judge_tool.finish(process)
    assert done.code == 2 and "went away" in done.complaint, done.err
    (bundle,) = judge_tool.bundles()
    assert list(rows(bundle)) == ["L1_36/baseline/0"] and manifest(bundle)["status"] == "failed"
    assert left_over(process.pid), "the engine could not remove them"
    assert judge_tool("doctor", "--clean").code == 0 and not left_over(process.pid)
    again = judge_tool(*STUDY, "--upstream", f"replay:{judge_tool.folder / 'scripts'}", "--resume")
    assert again.code == 0, again.err
    assert judge_tool.bundles() == [bundle] and [row[2] for row in table(bundle)] == ["completed"] * 2


def test_budgets_end_an_agent_whatever_it_does_and_its_row_stays(judge_tool: Tool) -> None:
    endless = [bash(f"echo {n}") for n in range(9)]
    folder = write(judge_tool.folder / "scripts", baseline=endless, with_kb=[solves(), *endless])
    done = judge_tool(*STUDY, "--upstream", f"replay:{folder}", "--budget-turns", 3, "--jobs", 2)
    assert done.code == 0, done.err
    (bundle,) = judge_tool.bundles()
    for arm, handed_in in (("baseline", False), ("with_kb", True)):
        told = record(bundle, f"L1_36/{arm}/0")
        assert told["status"] == "budget" and told["meter"]["turns"] == 3 and len(told["attempts"]) == 1, told
        row = rows(bundle)[f"L1_36/{arm}/0"]
        assert row["agent"]["solution"] is handed_in and row["result"]["results"][0]["verdict"] != "correct"


def test_a_failing_provider_is_asked_again_and_what_it_cost_is_counted_once(judge_tool: Tool) -> None:
    faults: dict[str, dict[str, Any]] = {
        "baseline": {"error": {"status": 529, "retry_after": 0.1, "times": 2}},
        "with_kb": {"disconnect_after": 2, "times": 1},
    }
    scripts = {arm: [solves() | fault, {"error": {"status": 429, "retry_after": 0.1, "times": 1}}, END]
               for arm, fault in faults.items()}  # fmt: skip
    folder = write(judge_tool.folder / "scripts", **scripts)
    done = judge_tool(*STUDY, "--upstream", f"replay:{folder}", "--jobs", 2)
    assert done.code == 0, done.err
    (bundle,) = judge_tool.bundles()
    for arm in faults:
        told = record(bundle, f"L1_36/{arm}/0")
        assert told["status"] == "completed" and len(told["attempts"]) == 1, told
        assert told["meter"]["provider_errors"], told["meter"]


def test_a_provider_that_stays_away_is_no_failure_of_the_agent(judge_tool: Tool) -> None:
    refused = [{"error": {"status": 401, "times": 50}}, END]
    folder = write(judge_tool.folder / "scripts", baseline=refused)
    done = judge_tool(*STUDY, "--upstream", f"replay:{folder}", "--arms", "baseline", "--retries", 1)
    assert done.code == 2 and "provider failure in each of 2 attempts" in done.err, done.err
    (bundle,) = judge_tool.bundles()
    assert rows(bundle)["L1_36/baseline/0"]["status"] == "failed"
    assert [a["class"] for a in record(bundle, "L1_36/baseline/0")["attempts"]] == ["provider"] * 2


# -- ten at once


def test_ten_jobs_at_once_stay_apart_and_within_the_machines_memory(judge_tool: Tool) -> None:
    names = [(arm, repeat) for arm in ("baseline", "with_kb") for repeat in range(5)]
    scripts = {f"L1_36__{arm}__{n}": [bash(f"hostname; sleep 3; echo job-{arm}-{n} > mine; cat mine; ls /job/work"),
                                     solves(f"job-{arm}-{n}"), END] for arm, n in names}  # fmt: skip
    folder = write(judge_tool.folder / "scripts", **scripts)
    process = judge_tool.start(*STUDY, "--upstream", f"replay:{folder}", "--repeats", 5, "--jobs", 10)
    agents: set[str] = set()
    limits: dict[str, int] = {}
    most = peak_kb = 0
    while process.poll() is None:
        running = of(process.pid, "agent")
        most, agents = max(most, len(running)), agents | set(running)
        for name in running:
            if name not in limits:
                done = subprocess.run(["docker", "inspect", "-f", "{{.HostConfig.Memory}}", name], capture_output=True,
                                      text=True)  # fmt: skip
                limits[name] = int(done.stdout or 0)
        status = Path(f"/proc/{process.pid}/status")
        for line in status.read_text().splitlines() if status.exists() else []:
            peak_kb = max(peak_kb, int(line.split()[1])) if line.startswith("VmHWM") else peak_kb
        time.sleep(0.5)
    done = judge_tool.finish(process, 10)
    assert done.code == 0, done.err
    assert len(agents) == 10 and most >= 2, (most, agents)
    total = int(ask_docker("info", "--format", "{{.MemTotal}}"))
    assert 0 < sum(limits.values()) <= total, "all ten may use what they are let"
    assert peak_kb < 400_000, f"the tool itself took {peak_kb} kB"
    (bundle,) = judge_tool.bundles()
    assert len(rows(bundle)) == 10
    for arm, repeat in names:
        job = f"L1_36/{arm}/{repeat}"
        own = f"job-{arm}-{repeat}"
        said = " ".join(event["text"] for event in events(bundle, job, "tool_result"))
        others = [f"job-{a}-{r}" for a, r in names if (a, r) != (arm, repeat)]
        journal = (bundle / "agents" / job / "attempt-1" / "journal.jsonl").read_text()
        assert own in said and own in journal
        assert not [other for other in others if other in said or other in journal]
        (kept,) = [given["kept"] for given in rows(bundle)[job]["inputs"] if "kept" in given]
        assert own in (bundle / kept).read_text()
    assert not left_over(process.pid)
