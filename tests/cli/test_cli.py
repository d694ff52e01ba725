"""The command line itself: its groups, its help, the flags that every verb takes."""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys

import pytest

from repro import config
from repro.cli import arguments, entry, main, output
from repro.errors import UsageError
from repro.records.job import JOBS, OUTCOMES, Job
from repro.records.options import Options
from repro.runs.progress import Progress
from repro.system import jsonio


def verbs() -> dict[str, argparse.ArgumentParser]:
    """Every verb that the parser knows."""
    (action,) = [a for a in main.parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(action.choices)


VERBS = verbs()
LISTED = [name for of in main.GROUPS.values() for name in of]


def test_help_lists_every_verb_once():
    assert sorted(LISTED) == sorted(VERBS)
    text = main.parser().format_help()
    told = [line.split()[0] for line in text.split("\noptions:")[0].splitlines() if line.startswith("  ")]
    assert told == LISTED


@pytest.mark.parametrize("name", LISTED)
def test_help_of_a_verb_says_every_default_and_every_verb_takes_quiet_and_verbose(name):
    for action in VERBS[name]._actions:
        assert action.help, f"{name} {action.dest} has no help"
        shown = VERBS[name]._get_formatter()._expand_help(action)
        if action.default is not argparse.SUPPRESS and repr(action.default) not in ("None", "False", "''", "[]"):
            assert "default" in shown, f"{name} {action.dest}: {shown}"
    flags = {flag for action in VERBS[name]._actions for flag in action.option_strings}
    assert {"-q", "--quiet", "-v", "--verbose"} <= flags


@pytest.mark.parametrize("typo, meant", [("evalute", "evaluate"), ("benchmrk", "benchmark"), ("verfy", "verify")])
def test_a_typo_names_the_nearest_verb_and_no_hidden_one(typo, meant):
    with pytest.raises(UsageError) as caught:
        main._known([typo, "x.py"])
    text = str(caught.value)
    assert f"`repro {meant}`" in text and len(text) < 240
    assert not any(f"{name}," in text or f" {name}." in text for name in entry.STARTED_BY_ENGINES)


@pytest.mark.parametrize(("words", "formats"), [("", "md html"), ("-o out", "md html tex"), ("--format tex", "tex")])
def test_report_draws_the_usual_formats_or_those_that_are_asked_for(words, formats):
    assert output.formats(main.parser().parse_args(["report", *words.split()])) == formats.split()


def test_full_shapes_on_the_cpu_are_said_to_take_long(capsys):
    arguments.engine_and_size(main.parser().parse_args("fixtures --device cpu --size full".split()), Progress())
    assert "--size smoke" in capsys.readouterr().err


@pytest.mark.parametrize("old", main._RENAMED)
def test_an_old_verb_says_its_new_name_which_the_parser_takes(old):
    new = main._RENAMED[old]
    with pytest.raises(UsageError, match=f"`repro {old}` is now `repro {new}`"):
        main._known([old, "x"])
    main.parser().parse_args([*new.split(), *(["BUNDLE"] if new == "share" else [])])


def test_options_of_the_judge_are_those_of_their_record():
    words = "evaluate a.py --no-timing --no-compile --trust dev --budget timing_s=3 --parity kernelbench"
    args = main.parser().parse_args(words.split())
    args.kernelbench = True
    found = arguments.options(args)
    assert (found.timing, found.modes, found.trust, found.timing_budget_s) == (False, ("eager",), "dev", 3.0)
    assert arguments.options(main.parser().parse_args(["run"])) == Options()


def test_there_are_few_options():
    """A new one needs a documented task, and the place of another."""
    flags = {flag for verb in VERBS.values() for action in verb._actions for flag in action.option_strings}
    assert len([flag for flag in flags if flag.startswith("--")]) <= 55


# What a job has no use for: every room above the engines, and the packages that those need.
UNUSED = ("agents", "analysis", "artifacts", "bundle", "cli.main", "doctor", "knowledge",
          "optimize", "report", "runs", "studies")  # fmt: skip


def test_a_job_starts_without_studies_reports_and_agents(tmp_path):
    """Started as an engine starts it. Its modules are those that Python's own list of import times names."""
    jsonio.append(tmp_path / JOBS, Job("f", "fingerprint", device="cpu", timeout_s=60).to_json())
    command = [config.COMMAND[0], "-X", "importtime", *config.COMMAND[1:], "job", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads((tmp_path / OUTCOMES).read_text())["status"] == "done"
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))
    assert "repro.engines.job" in imported
    rooms = [f"repro.{room}" for room in UNUSED]
    wrong = {name for name in imported if any(f"{name}.".startswith(f"{room}.") for room in rooms)}
    assert wrong | imported & {"anthropic", "docker", "jinja2", "mcp", "rich"} == set()


def test_a_verb_of_engines_without_its_folder_is_wrong_use(capsys):
    assert entry.main(["job"]) == 1
    assert capsys.readouterr().err == "repro: repro job takes one folder\n"


def test_ctrl_c_while_python_ends_changes_nothing():
    """Unloading torch takes long enough for an impatient user's second Ctrl-C, which made 130 a death by SIGINT."""
    program = """
import os, sys, time
from repro.cli.ending import exit_code

class Slow:
    def __del__(self):
        os.write(1, b"unloading\\n")
        time.sleep(1)

slow = Slow()

def run(args):
    raise KeyboardInterrupt

sys.exit(exit_code(run))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"unloading\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err.startswith(b"repro: interrupted."), err


def test_the_first_help_fits_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    texts = [main.parser().format_help(), *(sub.format_help() for sub in verbs().values())]
    assert [line for text in texts for line in text.splitlines() if len(line) > 80] == []
