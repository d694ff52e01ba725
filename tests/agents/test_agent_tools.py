"""The tools of our own agent, each against the real thing: shells, processes, files and links."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import alive

from repro.agents import tools_bash
from repro.agents.deadline import Deadline, Stopped
from repro.agents.tools_bash import Bash
from repro.agents.tools_editor import Editor
from repro.agents.tools_result import MOST_CHARACTERS, shorten

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Bash]]:
    made: list[Bash] = []

    def bash(timeout_s: float = 20.0, deadline: Deadline | None = None) -> Bash:
        made.append(Bash(tmp_path, ENV, tmp_path / "outputs", deadline or Deadline(None), timeout_s))
        return made[-1]

    yield bash
    for each in made:
        each.close()


def pids(file: Path, count: int) -> list[int]:
    """What programs of a test wrote of themselves."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        found = [int(word) for word in file.read_text().split()] if file.exists() else []
        if len(found) == count:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{file} does not hold {count} process ids")


# -- bash


def test_the_shell_lasts_from_command_to_command(make: Callable[..., Bash], tmp_path: Path) -> None:
    bash = make()
    (tmp_path / "inner").mkdir()
    bash.run("cd inner; export NAME=value; f() { echo called; }")
    result = bash.run("pwd; echo $NAME; f")
    assert result.text.split() == [str(tmp_path / "inner"), "value", "called"] and not result.is_error


def test_output_keeps_its_order_and_failures_their_code(make: Callable[..., Bash]) -> None:
    result = make().run("echo one; echo two >&2; echo three; (exit 3)")
    assert result.text == "one\ntwo\nthree\n[exit code 3]" and result.is_error


def test_a_command_has_no_input_to_wait_for(make: Callable[..., Bash]) -> None:
    assert make(timeout_s=10).run("cat; read x; echo over").text == "over"


def test_the_environment_is_the_one_that_was_given(make: Callable[..., Bash], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    assert "secret" not in make().run("env").text


@pytest.mark.clock
@pytest.mark.parametrize("command", ["echo 'open", "for i in 1; do", "cat <<X\nno end", "}"])
def test_broken_syntax_costs_one_command_and_no_time(make: Callable[..., Bash], command: str) -> None:
    bash = make(timeout_s=10)
    begin = time.monotonic()
    bash.run(command)
    assert bash.run("echo still here").text == "still here" and time.monotonic() - begin < 5


def test_output_cannot_imitate_the_end_of_a_command(make: Callable[..., Bash]) -> None:
    bash = make()
    assert bash.run("echo 1 0; echo 1 7 >&2; sleep 0.3; echo real end").text == "1 0\n1 7\nreal end"


def test_an_ended_shell_is_reported_and_replaced(make: Callable[..., Bash], tmp_path: Path) -> None:
    bash = make()
    first = bash.run("cd /; X=1; exit 7")
    assert first.is_error and "exit code 7" in first.text
    assert bash.run('pwd; echo "[$X]"').text.split() == [str(tmp_path), "[]"]


def test_a_killed_shell_is_reported(make: Callable[..., Bash]) -> None:
    result = make().run("kill -9 $$")
    assert result.is_error and "SIGKILL" in result.text


@pytest.mark.clock
def test_a_timeout_kills_the_command_and_everything_that_it_started(make: Callable[..., Bash], tmp_path: Path) -> None:
    """Also in a session of its own, ignoring signals, and orphaned."""
    bash, file = make(timeout_s=1.5), tmp_path / "pids"
    command = f"""
        sleep 300 & echo $! >> {file}
        setsid sh -c 'echo $$ >> {file}; exec sleep 300' &
        setsid sh -c 'trap "" TERM; (sh -c "echo \\$\\$ >> {file}; sleep 300" &) ; echo $$ >> {file}; sleep 300' &
        sleep 300
    """
    begin = time.monotonic()
    result = bash.run(command)
    assert result.is_error and "not done after 2 s" in result.text and time.monotonic() - begin < 6
    assert [pid for pid in pids(file, 4) if alive(pid)] == []
    assert bash.run("echo back").text == "back"


@pytest.mark.clock
def test_a_program_in_the_background_does_not_hold_the_call_up(make: Callable[..., Bash], tmp_path: Path) -> None:
    """It goes on between calls, and ends with the shell."""
    bash, file = make(), tmp_path / "pids"
    begin = time.monotonic()
    assert bash.run(f"sleep 300 & echo $! > {file}; echo started").text == "started"
    assert time.monotonic() - begin < 3
    (pid,) = pids(file, 1)
    assert bash.run("jobs").text and alive(pid)
    bash.restart()
    assert not alive(pid)


def test_ten_megabytes_of_output_are_shortened_and_kept_whole(make: Callable[..., Bash]) -> None:
    result = make().run("echo begin; head -c 10000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert result.text.startswith("begin\nxxx") and result.text.endswith("xxx\nend")
    assert len(result.text) < MOST_CHARACTERS + 300
    kept = Path(result.text.split("all of it is in ")[1].split(" ...")[0])
    assert kept.stat().st_size == 10_000_011


@pytest.mark.clock
def test_output_without_end_is_ended(make: Callable[..., Bash], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools_bash, "MOST_OUTPUT_BYTES", 4 << 20)
    begin = time.monotonic()
    result = make().run("yes")
    assert result.is_error and "more than 4 MB" in result.text and time.monotonic() - begin < 10


def test_bytes_that_are_no_text_become_text(make: Callable[..., Bash]) -> None:
    result = make().run(r"printf 'a\xff\x00\xfeb'; head -c 2000 /dev/urandom")
    assert result.text.startswith("a\ufffd\ufffd\ufffdb") and "\0" not in result.text
    assert json.loads(json.dumps(result.text)) == result.text


@pytest.mark.clock
def test_a_session_that_ends_ends_the_command(make: Callable[..., Bash], tmp_path: Path) -> None:
    deadline = Deadline(None)
    bash, file = make(deadline=deadline), tmp_path / "pids"
    import threading

    threading.Timer(0.5, deadline.stop, ["SIGTERM"]).start()
    begin = time.monotonic()
    with pytest.raises(Stopped):
        bash.run(f"echo $$ > {file}; sleep 300")
    assert time.monotonic() - begin < 5 and not alive(pids(file, 1)[0])


def test_no_descriptor_is_lost_over_many_restarts(make: Callable[..., Bash]) -> None:
    bash = make()
    bash.run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        bash.restart()
        bash.run("true")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_shortened_text_keeps_both_ends() -> None:
    text = "a" * 50 + "b" * 50
    assert shorten(text, most=100) == text
    short = shorten(text, "FILE", most=20)
    assert short.startswith("a" * 10 + "\n") and short.endswith("\n" + "b" * 10)
    assert "80 characters" in short and "FILE" in short


# -- editor


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "outside.txt").write_text("outside\n")
    return tmp_path / "work"


def edit(work: Path, command: str, path: object, **given: Any) -> tuple[bool, str]:
    result = Editor(work).run({"command": command, "path": str(path), **given})
    return not result.is_error, result.text


def test_a_file_is_created_seen_changed_and_extended(work: Path) -> None:
    assert edit(work, "create", "a/b.py", file_text="one\ntwo\nthree\n")[0]
    assert edit(work, "view", work / "a/b.py") == (True, "     1\tone\n     2\ttwo\n     3\tthree")
    assert edit(work, "view", "a/b.py", view_range=[2, -1])[1] == "     2\ttwo\n     3\tthree"
    assert edit(work, "str_replace", "a/b.py", old_str="two", new_str="2\n2.5")[0]
    assert edit(work, "insert", "a/b.py", insert_line=0, insert_text="zero")[0]
    assert edit(work, "insert", "a/b.py", insert_line=5, insert_text="end")[0]
    assert (work / "a/b.py").read_text() == "zero\none\n2\n2.5\nthree\nend"


def test_an_insertion_after_a_last_line_without_an_end_stays_a_line_of_its_own(work: Path) -> None:
    (work / "f").write_text("one")
    assert edit(work, "insert", "f", insert_line=1, insert_text="two")[0]
    assert (work / "f").read_text() == "one\ntwo"


@pytest.mark.parametrize("found", [0, 2])
def test_a_replacement_that_is_not_unique_changes_nothing(work: Path, found: int) -> None:
    (work / "f").write_text("x = 1\n" * found)
    done, said = edit(work, "str_replace", "f", old_str="x = 1\n", new_str="")
    assert not done and f"{found} times" in said and (work / "f").read_text() == "x = 1\n" * found


@pytest.mark.parametrize("path", ["../outside.txt", "a/../../outside.txt", "/etc/passwd", ".", "link.txt", "links/new"])
def test_nothing_is_written_outside_the_folder(work: Path, path: str) -> None:
    """Neither by a path that climbs out, nor by a link to a file, nor through a link to a folder."""
    (work / "link.txt").symlink_to(work.parent / "outside.txt")
    (work / "links").symlink_to(work.parent)
    for command, given in (("create", {"file_text": "x"}), ("insert", {"insert_line": 0, "insert_text": "x"}),
                           ("str_replace", {"old_str": "outside", "new_str": "x"})):  # fmt: skip
        done, said = edit(work, command, path, **given)
        assert not done and "outside" in said, said
    assert (work.parent / "outside.txt").read_text() == "outside\n" and not (work.parent / "new").exists()


def test_a_link_within_the_folder_is_followed(work: Path) -> None:
    (work / "real.py").write_text("a\n")
    (work / "link.py").symlink_to("real.py")
    assert edit(work, "str_replace", "link.py", old_str="a", new_str="b")[0]
    assert (work / "link.py").is_symlink() and (work / "real.py").read_text() == "b\n"


def test_non_text_files_are_refused_without_waiting(work: Path) -> None:
    os.mkfifo(work / "pipe")
    (work / "binary").write_bytes(b"\xff\xfe\x00")
    (work / "loop").symlink_to("loop")
    for path in ("pipe", "binary", "loop", "none", "/dev/zero", "a\0b"):
        done, said = edit(work, "view", path)
        assert not done and said, path


def test_a_folder_is_listed_two_levels_deep_without_following_links(work: Path) -> None:
    (work / "a" / "b" / "c").mkdir(parents=True)
    (work / ".hidden").touch()
    (work / "up").symlink_to("..")
    assert edit(work, "view", ".")[1].splitlines()[1:] == ["a/", "a/b/", "up@"]


@pytest.mark.parametrize(
    "given",
    [
        {"command": "undo_edit", "path": "f"}, {"path": "f"}, {"command": "view"}, {"command": "create", "path": "f"},
        {"command": "view", "path": "f", "view_range": [5, 9]}, {"command": "view", "path": "f", "view_range": "1"},
        {"command": "insert", "path": "f", "insert_line": 9, "insert_text": "x"},
        {"command": "str_replace", "path": "f", "old_str": "", "new_str": "x"},
    ],
)  # fmt: skip
def test_a_wrong_call_is_an_error_for_the_model(work: Path, given: dict[str, Any]) -> None:
    (work / "f").write_text("one\n")
    result = Editor(work).run(given)
    assert result.is_error and result.text and (work / "f").read_text() == "one\n"


def test_a_long_file_is_shortened(work: Path) -> None:
    (work / "f").write_text("x" * 100_000)
    assert len(edit(work, "view", "f")[1]) < MOST_CHARACTERS + 200
