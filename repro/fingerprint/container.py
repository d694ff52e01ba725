"""The container of a run. It cannot see its own image, so the engine that starts it passes these facts in."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from repro import config
from repro.fingerprint.entry import entry
from repro.records.fingerprint import Found

# Facts that an engine passes to a container through its environment; `engines/docker` sets them.
TOLD = (
    "image_id", "repo_digests", "base_name", "base_digest", "engine", "engine_version", "engine_api", "runtime",
    "toolkit", "cgroup", "engine_os",
)  # fmt: skip
PACKAGES, MOUNTS = Path("/usr/share/repro/packages.txt"), Path("/proc/self/mountinfo")


def _id() -> str | None:
    """Return the container's id, from the file that its engine mounts over /etc/hostname."""
    try:
        found = re.search(r"/containers/([0-9a-f]{64})/", MOUNTS.read_text())
    except OSError:
        return None
    return found[1][:12] if found else None


def values() -> dict[str, Found]:
    """Return the engine's facts, the image's system packages and the container's id; absent outside of a container."""
    facts = config.container_facts()
    why = "absent: " + ("the engine did not tell" if config.in_container() else "not in a container")
    found = {name: entry(facts.get(name) or None, "the engine", "ok" if facts.get(name) else why) for name in TOLD}
    found["container_id"] = entry(_id(), str(MOUNTS))
    if PACKAGES.exists():
        digest = hashlib.sha256(PACKAGES.read_bytes()).hexdigest()[:16]
        found["system_packages_sha256"] = entry(digest, str(PACKAGES))
    return found
