"""`repro fetch`: a source is what its hash says, or it is not kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from repro.artifacts import sources
from repro.cli import main


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A repository with two commits; the first is pinned. Holds a program, a link and a name that git sorts oddly."""
    repository = tmp_path_factory.mktemp("published")
    git(repository, "init", "--quiet", "--initial-branch=main")
    (repository / "a").mkdir()
    (repository / "a" / "kernel.py").write_text("print('kernel')\r\n")
    (repository / "a.py").write_text("x = 1\n")
    (repository / "run.sh").write_text("#!/bin/sh\n")
    (repository / "run.sh").chmod(0o755)
    (repository / "link").symlink_to("a.py")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "published")
    commit, tree = git(repository, "rev-parse", "HEAD", "HEAD^{tree}").split()
    (repository / "a.py").write_text("x = 2\n")
    git(repository, "commit", "--quiet", "--all", "--message", "later")
    return repository, commit, tree


@pytest.fixture
def pinned(published, tmp_path, monkeypatch):
    """The catalogue names that repository; returns it and the folder that its files must come to."""
    repository, commit, tree = published
    file = tmp_path / "sources.toml"
    file.write_text(
        f'[source.study]\naddress = "https://repository.invalid/study"\ncommit = "{commit}"\ntree = "{tree}"\n'
        'licence = "MIT"\npurpose = "a test"\n'
    )
    monkeypatch.setattr(sources, "FILE", file)
    monkeypatch.setenv("REPRO_SOURCES", str(tmp_path / "kept"))
    return repository, tmp_path / "kept" / "study"


def fetch(capsys, *words: str) -> tuple[int, str]:
    """Exit code, and what was printed."""
    code = main.main(["fetch", *words])
    return code, "".join(capsys.readouterr())


def test_keeps_the_pinned_commit_and_works_offline_afterwards(pinned, capsys):
    repository, kept = pinned
    code, text = fetch(capsys, "study", "--from", str(repository))
    assert code == 0 and "verified" in text, text
    assert (kept / "a.py").read_text() == "x = 1\n" and not (kept / ".git").exists()
    assert (kept / "a" / "kernel.py").read_bytes().endswith(b"\r\n")
    assert os.access(kept / "run.sh", os.X_OK) and (kept / "link").is_symlink()
    code, text = fetch(capsys, "study")
    assert code == 0 and "was here" in text, text


def test_takes_the_commit_and_not_local_changes(pinned, capsys, tmp_path):
    repository, kept = pinned
    dirty = tmp_path / "dirty"
    subprocess.run(["git", "clone", "--quiet", str(repository), str(dirty)], check=True)
    (dirty / "a.py").write_text("x = 3\n")
    assert fetch(capsys, "study", "--from", str(dirty))[0] == 0
    assert (kept / "a.py").read_text() == "x = 1\n"


def test_takes_a_plain_copy_of_the_files(pinned, capsys, tmp_path):
    repository, kept = pinned
    copy = tmp_path / "copy"
    shutil.copytree(repository, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    code, text = fetch(capsys, "study", "--from", str(copy))
    assert code == 1 and "is not the pinned study: its tree is" in text and not kept.exists(), text
    (copy / "a.py").write_text("x = 1\n")
    assert fetch(capsys, "study", "--from", str(copy))[0] == 0


def test_refuses_a_repository_without_the_commit(pinned, capsys, tmp_path):
    repository, kept = pinned
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{repository}", str(shallow)], check=True)
    code, text = fetch(capsys, "study", "--from", str(shallow))
    assert code == 1 and "does not have the pinned commit of study" in text and not kept.exists(), text
    assert not list(kept.parent.iterdir())


def test_refuses_files_that_changed_after_they_were_fetched(pinned, capsys):
    repository, kept = pinned
    assert fetch(capsys, "study", "--from", str(repository))[0] == 0
    (kept / "a.py").write_text("x = 4\n")
    code, text = fetch(capsys, "study")
    assert code == 1 and "is not the pinned study" in text and "Remove that folder" in text, text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["study"], "cannot fetch study from https://repository.invalid/study: fatal: "),
        (["study", "--from", "NOWHERE"], "cannot fetch study from NOWHERE: fatal: "),
        (["other"], "no source 'other': there are study"),
    ],
)
def test_says_in_one_line_why_nothing_came(pinned, capsys, words, said):
    code, text = fetch(capsys, *words)
    assert code == 1 and said in text and len(text.strip().splitlines()) == 1, text


def test_lists_every_source_with_its_licence(capsys):
    code, text = fetch(capsys)
    assert code == 0 and "kernelbench" in text and "MIT" in text
    assert all(len(source.commit) == len(source.tree) == 40 for source in sources.load().values())
