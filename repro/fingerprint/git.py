"""The commit of the tree that runs."""

from __future__ import annotations

import shutil
import subprocess

from repro import config
from repro.records.fingerprint import Value

IN_IMAGE, COMMIT, DIRTY = "image build argument", "git rev-parse", "git status"


def _entry(value: str | None, source: str, why: str = "") -> Value:
    return Value(value=value, source=source, status=f"unknown: {why}" if value is None else "ok", klass="V")


def _unknown(why: str) -> dict[str, Value]:
    return {"git_commit": _entry(None, COMMIT, why), "git_dirty": _entry(None, DIRTY, why)}


def values() -> dict[str, Value]:
    """Return `git_commit` and `git_dirty` as fingerprint values; `unknown` with the reason if they cannot be found."""
    facts = config.container_facts()
    if "git_sha" in facts:
        told = {"git_commit": facts["git_sha"], "git_dirty": facts.get("git_dirty", "unknown")}
        why = "the image was built without this build argument"
        return {name: _entry(None if value == "unknown" else value, IN_IMAGE, why) for name, value in told.items()}
    if not (config.ROOT / ".git").exists():
        return _unknown("the tree is a copy without history")
    program = shutil.which("git")
    if program is None:
        return _unknown("git is not installed")

    def ask(*words: str) -> tuple[str | None, str]:
        done = subprocess.run(
            [program, "-C", str(config.ROOT), *words], capture_output=True, text=True, check=False
        )  # fmt: skip
        if done.returncode:
            return None, " ".join(done.stderr.split())[:200] or "the tree has no commit"
        return done.stdout.strip(), ""

    commit, why = ask("rev-parse", "--verify", "--quiet", "HEAD")
    if commit is None:
        return _unknown(why)
    changed, why = ask("status", "--porcelain", "--untracked-files=no")
    dirty = None if changed is None else str(bool(changed)).lower()
    return {"git_commit": _entry(commit, COMMIT), "git_dirty": _entry(dirty, DIRTY, why)}
