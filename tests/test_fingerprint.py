"""A fingerprint never holds an empty value that claims to be well."""

import subprocess

from repro import fingerprint, settings
from repro.fingerprint import git
from repro.fingerprint.hardware import entry


def test_an_empty_value_is_never_ok():
    assert entry(None, "git rev-parse", "V")["status"] == "absent"
    assert entry(None, "nvml", "H", "not_supported")["status"] == "not_supported"
    values = fingerprint.collect("cpu")["values"]
    assert not [name for name, value in values.items() if value["value"] is None and value["status"] == "ok"]


def test_a_tree_without_history_says_that_its_commit_is_unknown(tmp_path, monkeypatch):
    for ready, why in ((lambda: None, "without history"), (lambda: (tmp_path / ".git").mkdir(), "not a git repo")):
        ready()
        monkeypatch.setattr(settings, "ROOT", tmp_path)
        monkeypatch.setattr(settings, "container_facts", dict)
        found = git.values()
        for name in ("git_commit", "git_dirty"):
            assert found[name]["value"] is None and found[name]["status"].startswith("unknown: "), found
            assert why in found[name]["status"]
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert git.values()["git_commit"]["status"] == "unknown: the tree has no commit"
    monkeypatch.setattr(settings, "container_facts", lambda: {"git_sha": "unknown"})
    assert git.values()["git_dirty"]["status"] == "unknown: the image was built without saying it"
