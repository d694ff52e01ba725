"""A fingerprint never holds an empty value that claims to be well."""

from repro import fingerprint
from repro.fingerprint.hardware import entry


def test_an_empty_value_is_never_ok():
    assert entry(None, "git rev-parse", "V")["status"] == "absent"
    assert entry(None, "nvml", "H", "not_supported")["status"] == "not_supported"
    values = fingerprint.collect("cpu")["values"]
    assert not [name for name, value in values.items() if value["value"] is None and value["status"] == "ok"]
