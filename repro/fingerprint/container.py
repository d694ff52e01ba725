"""The container of a run, and the commit of the tree that runs.

A container cannot see its own image, so the engine that starts it passes these facts in.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

from repro import config
from repro.fingerprint.query import Absent, Query

_MOUNTS = Path("/proc/self/mountinfo")
# Facts that an engine passes to a container through its environment; `engines/docker` sets them.
_FACTS = ("image_id", "repo_digests", "base_digest", "engine", "engine_version", "runtime", "toolkit")


def _fact(name: str) -> str:
    if value := config.container_facts().get(name):
        return value
    raise Absent("absent: " + ("the engine did not tell" if config.in_container() else "not in a container"))


def _id() -> str | None:
    """Return the container's id, from the file that its engine mounts over /etc/hostname."""
    match = re.search(r"/containers/([0-9a-f]{64})/", _MOUNTS.read_text())
    return match[1][:12] if match else None


def _git(*words: str) -> str:
    """Return what git prints of this tree. Raises Absent if it has no history."""
    if not (config.ROOT / ".git").exists():
        raise Absent("unknown: the tree is a copy without history")
    program = shutil.which("git")
    if program is None:
        raise Absent("unknown: git is not installed")
    done = subprocess.run([program, "-C", str(config.ROOT), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Absent("unknown: " + (" ".join(done.stderr.split())[:200] or "the tree has no commit"))
    return done.stdout.strip()


def _built(name: str) -> str | None:
    """Return a build argument of the image; None outside of one. Raises Absent if the image was built without it."""
    facts = config.container_facts()
    if "git_sha" not in facts:
        return None
    if facts.get(name, "unknown") == "unknown":
        raise Absent("unknown: the image was built without this build argument")
    return facts[name]


def _commit() -> str:
    return _built("git_sha") or _git("rev-parse", "--verify", "--quiet", "HEAD")


def _dirty() -> str:
    built = _built("git_dirty")
    if built is None:
        _commit()
        return str(bool(_git("status", "--porcelain", "--untracked-files=no"))).lower()
    return built


GIT = (
    Query("git_commit", "V", _commit, "image build argument, else git rev-parse"),
    Query("git_dirty", "V", _dirty, "image build argument, else git status"),
)
FIELDS = (
    *(Query(name, "V", partial(_fact, name), "the engine") for name in _FACTS),
    Query("container_id", "D", _id, str(_MOUNTS)),
)
