"""A fingerprint never holds an empty value that claims to be well."""

import subprocess

import pytest

from repro import fingerprint, settings
from repro.fingerprint import classes, difference, git, hardware
from repro.fingerprint.hardware import entry


def test_an_empty_value_is_never_ok():
    assert entry(None, "git rev-parse")["status"] == "absent"
    assert entry(None, "nvml", "not_supported")["status"] == "not_supported"
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


def test_every_field_has_its_class_in_the_one_table():
    """Those of a GPU too, which no test here can ask."""
    names = [name for names in classes.FIELDS.values() for name in names]
    assert len(names) == len(set(names)) and classes.FIELDS.keys() == classes.NAMES.keys()
    collected = fingerprint.collect("cpu")["values"]
    system = {"driver", "nvml", "cuda_driver", "bandwidth_signature_gb_s"}
    assert set(collected) | set(hardware.queries(None)) | system <= classes.CLASS.keys()
    assert all(value["class"] == classes.CLASS[name] for name, value in collected.items())


def made(**values):
    """A fingerprint of these values; None: asked for and not there."""
    entries = {
        n: {"value": v, "source": "test", "status": "ok" if v is not None else "absent"} for n, v in values.items()
    }
    return {"values": entries}


def test_differences_are_sorted_by_class_and_name_their_sides():
    a = made(torch="2.9.1", gpu_name="NVIDIA H200", sm_mhz=345, ecc=True, gpu_uuid_hash="aa", vbios=None)
    b = made(torch="2.11.0", gpu_name="NVIDIA L4", sm_mhz=1980, ecc=False, gpu_uuid_hash="bb", vbios="96")
    found = difference.differences(a, b)
    assert [d.klass for d in found] == ["I", "H", "C", "D", "V", "V"]
    assert [d.name for d in found if d.hard] == ["gpu_name"]
    told = {d.name: d.to_json() for d in found}
    assert told["vbios"] | {"a": "absent", "b": "96", "class": "version", "known": False} == told["vbios"]
    assert difference.differences(a, a) == []


def test_a_hard_field_that_one_side_lacks_does_not_differ():
    """An older bundle knows fewer fields: nobody can say that they differ, and it is told."""
    (found,) = difference.differences(made(gpu_name="NVIDIA H200"), made(gpu_name="NVIDIA H200", mig_mode=0))
    assert (found.name, found.klass, found.hard, found.known, found.a) == (
        "mig_mode",
        "H",
        False,
        False,
        "not recorded",
    )


@pytest.mark.parametrize(("watts", "hard"), [(700.0, None), (640.0, False), (600.0, True), (None, False)])
def test_a_power_limit_far_below_makes_another_machine(watts, hard):
    found = difference.differences(made(power_limit_w=700.0), made(power_limit_w=watts))
    assert [d.hard for d in found] == ([] if hard is None else [hard])


def test_a_field_that_the_table_does_not_know_keeps_its_own_class():
    new = {"values": {"nvlink": {"value": 1, "source": "nvml", "status": "ok", "class": "C"}}}
    (found,) = difference.differences(new, {"values": {}})
    assert found.klass == "C"


def test_one_gpu_is_known_by_its_hash_alone():
    assert difference.same_unit(made(gpu_uuid_hash="aa"), made(gpu_uuid_hash="aa"))
    assert not difference.same_unit(made(gpu_uuid_hash="aa"), made(gpu_uuid_hash="bb"))
    assert not difference.same_unit(made(gpu_uuid_hash=None), made(gpu_uuid_hash=None))
    assert not difference.same_unit(made(), made())
