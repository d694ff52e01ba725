"""A fingerprint never holds an empty value that claims to be well."""

import json
import subprocess
import sys

import pytest

from repro import config, fingerprint
from repro.fingerprint import classes, container, difference, gpu
from repro.fingerprint.query import NAMES, Query, answers, hashed
from repro.records import reading
from repro.records.fingerprint import Fingerprint


def test_an_empty_value_is_never_ok():
    query = Query("gcc", "V", lambda: None, "gcc --version")
    assert query.ask().status == "absent" and query.value(None, "not_supported").status == "not_supported"
    assert (
        Query("gcc", "V", lambda: 1 / 0, "gcc --version").ask().status == "failed: ZeroDivisionError: division by zero"
    )
    values = fingerprint.collect("cpu")["values"]
    assert not [name for name, value in values.items() if value["value"] is None and value["status"] == "ok"]


def test_a_tree_without_history_says_that_its_commit_is_unknown(tmp_path, monkeypatch):
    for ready, why in ((lambda: None, "without history"), (lambda: (tmp_path / ".git").mkdir(), "not a git repo")):
        ready()
        monkeypatch.setattr(config, "ROOT", tmp_path)
        monkeypatch.setattr(config, "container_facts", dict)
        found = answers(container.GIT)
        for name in ("git_commit", "git_dirty"):
            assert found[name].value is None and found[name].status.startswith("unknown: "), found
            assert why in found[name].status
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert answers(container.GIT)["git_commit"].status == "unknown: the tree has no commit"
    monkeypatch.setattr(config, "container_facts", lambda: {"git_sha": "unknown"})
    assert answers(container.GIT)["git_dirty"].status == "unknown: the image was built without this build argument"


def test_every_field_has_one_query_and_one_class():
    names = [query.name for query in classes.QUERIES]
    assert len(names) == len(set(names)) and set(classes.CLASS.values()) == NAMES.keys()
    collected = fingerprint.collect("cpu")["values"]
    outside = {query.name for query in (*gpu.SYSTEM, *gpu.FIELDS, *gpu.STATE)}
    assert collected.keys() == classes.CLASS.keys() - outside | {"gpu_name"}
    assert all(value["class"] == classes.CLASS[name] for name, value in collected.items())


UUID, SERIAL, BUS = "GPU-11111111-2222-3333-4444-555555555555", "1650123456789", "00000000:1B:00.0"


@pytest.fixture(scope="module")
def of_fake(fake_gpu, tmp_path_factory):
    """What `repro doctor` writes where the binding finds a library that answers as NVML does."""
    from conftest import Tool

    tool = Tool(tmp_path_factory.mktemp("fake"))
    done = tool("doctor", "--engine", "local", "--device", "cuda", "--json", "out.json", **fake_gpu)
    assert "NVIDIA Fake, driver 570.00.1 · torch" in done.out, done.err
    found = tool.json()
    return found["fingerprint"] | {"observed": found["observed"]}


def test_every_field_of_a_gpu_has_a_value_or_the_reason_why_not(of_fake):
    values = of_fake["values"]
    assert values.keys() == classes.CLASS.keys()
    for name, value in values.items():
        assert (value["value"] is None) == (value["status"] != "ok"), (name, value)
        assert value["class"] == classes.CLASS[name]
    told = {name: value["status"] for name, value in values.items()}
    assert told["mig_attributes"] == "not_supported: NVML error 3, Not Supported"
    assert told["vbios"] == "no_permission: NVML error 4, Insufficient Permissions"
    assert told["mps_processes"] == "function_not_found: the driver is older than the binding"
    assert values["clock_event_reasons"]["value"] == 4  # by its name before driver 535
    assert values["bandwidth_signature_gb_s"]["value"] == 2 * 3201 * 6144 / 8000
    assert reading.complaints(Fingerprint, of_fake) == []


def test_no_identity_is_stored_as_it_is(of_fake):
    text = json.dumps(of_fake)
    for identity in (UUID, UUID.removeprefix("GPU-"), SERIAL, BUS, "1B:00"):
        assert identity not in text
    assert [name for name, klass in classes.CLASS.items() if klass == "I"] == ["gpu_uuid_hash"]
    assert hashed(UUID) == of_fake["values"]["gpu_uuid_hash"]["value"]


def test_ids_are_over_what_does_not_change_while_a_run_lasts(of_fake):
    values = of_fake["values"]
    assert of_fake["sku_id"] == fingerprint.digest(values, "H")
    assert of_fake["fingerprint_id"] == fingerprint.digest(values, "HCV")
    moved = values | {
        "sm_mhz": values["sm_mhz"] | {"value": 1},
        "gpu_uuid_hash": values["gpu_uuid_hash"] | {"value": ""},
    }
    assert fingerprint.digest(moved, "HCV") == of_fake["fingerprint_id"]


@pytest.mark.slow
def test_a_driver_that_is_not_loaded_is_reported(fake_gpu, tool):
    program = "from repro import fingerprint; import json; print(json.dumps(fingerprint.collect('cuda')))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=config.ROOT,
        env=fake_gpu | {"FAKE_NVML_DRIVER": "none", "HOME": str(tool.tmp), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    found = json.loads(done.stdout)["values"]["gpu_name"]
    assert found["status"] == "absent: NVML error 9, Driver Not Loaded"


def test_facts_from_the_engine_are_recorded(monkeypatch):
    facts = {"image_id": "sha256:aa", "repo_digests": "repro@sha256:bb", "toolkit": "1.17", "engine_version": "28"}
    monkeypatch.setenv("REPRO_CONTAINER", json.dumps(facts))
    monkeypatch.setenv("REPRO_GIT_SHA", "cc")
    values = fingerprint.collect("cpu")["values"]
    assert {name: values[name]["value"] for name in facts} == facts
    assert values["base_digest"]["status"] == "absent: the engine did not tell"


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
    assert [d.klass for d in found] == [*classes.NAMES.values(), "version"]
    assert [d.name for d in found if d.hard] == ["gpu_name"]
    told = {d.name: d.to_json() for d in found}
    assert told["vbios"] | {"a": "absent", "b": "96", "class": "version", "known": False} == told["vbios"]
    assert difference.differences(a, a) == []


def test_a_hard_field_that_one_side_lacks_does_not_differ():
    """An older bundle knows fewer fields: they are not called different, and the comparison says so."""
    (found,) = difference.differences(made(gpu_name="NVIDIA H200"), made(gpu_name="NVIDIA H200", mig_mode=0))
    assert (found.name, found.klass, found.hard, found.known, found.a) == (
        "mig_mode",
        "hard",
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
    assert found.klass == "configuration"


def test_one_gpu_is_known_by_its_hash_alone():
    assert difference.same_unit(made(gpu_uuid_hash="aa"), made(gpu_uuid_hash="aa"))
    assert not difference.same_unit(made(gpu_uuid_hash="aa"), made(gpu_uuid_hash="bb"))
    assert not difference.same_unit(made(gpu_uuid_hash=None), made(gpu_uuid_hash=None))
    assert not difference.same_unit(made(), made())


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("registry.corp.example:5000/team/repro@sha256:aa", "team/repro@sha256:aa"),
        ("localhost/repro:1", "repro:1"),
        ("nvidia/cuda:12.8.1@sha256:bb", "nvidia/cuda:12.8.1@sha256:bb"),
        ("repro:latest", "repro:latest"),
    ],
)
def test_a_private_registry_is_not_revealed(name, told):
    docker = pytest.importorskip("repro.engines.docker")
    assert docker._without_host(name) == told
