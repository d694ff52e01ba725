"""Signed copies: `repro verify --key` accepts one as it was signed, and nothing else."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from test_evidence import close_anew, edit_row, first, written

from repro.bundle import share, signature, verify
from repro.bundle.seal import SIGNED

pytest.importorskip("securesystemslib")
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes the keys")
FILES = ("claims.toml", "fingerprints/*", "inputs/*", "manifest.json", "rows.jsonl", "statement.json", SIGNED,
         "telemetry/*", "test-result.json")  # fmt: skip


def keys(folder: Path) -> tuple[Path, Path]:
    """A new pair of keys, made as docs/evidence.md says."""
    private, public = folder / "repro.key", folder / "repro.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    return private, public


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pair of keys and a copy that was signed with it."""
    folder = tmp_path_factory.mktemp("signed")
    (copy,) = share.share([written(folder)], sign=keys(folder)[0])
    Path(copy.bundle).rename(folder / "copy")
    return folder


@pytest.fixture
def signed(kept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kept / "copy", tmp_path / "copy")


def why(path: Path, kept: Path) -> list[str]:
    """What is wrong with the signature."""
    found = verify.verify(path, signature.key(kept / "repro.pub", private=False))
    return next(check.reasons for check in found.checks if check.check == "signature")


def test_a_signed_copy_verifies_also_packed(signed, kept, tmp_path):
    public = signature.key(kept / "repro.pub", private=False)
    (packed,) = share.pack([signed], tmp_path / "packed")
    assert {verify.verify(path, public).state for path in (signed, Path(packed.bundle))} == {"ok"}
    there = {str(file.relative_to(signed)) for file in signed.rglob("*") if file.is_file()}
    assert there == {str(file.relative_to(signed)) for pattern in FILES for file in signed.glob(pattern)}


@pytest.mark.parametrize("pattern", FILES)
def test_a_change_of_each_file_of_a_signed_copy_is_found(pattern, signed, kept):
    for file in signed.glob(pattern):
        content = file.read_bytes()
        for changed in (
            content[:-2] + bytes([content[-2] ^ 1]) + content[-1:],
            b" " + content,
            *[None][pattern == "manifest.json" :],
        ):
            file.unlink() if changed is None else file.write_bytes(changed)
            found = verify.verify(signed, signature.key(kept / "repro.pub", private=False))
            assert "signature" in found.failed
            if pattern != SIGNED:
                assert f"{file.relative_to(signed)} was changed" in "".join(found.failed["signature"].reasons)
                assert len(found.failed) > 1, "without a key too"
        file.write_bytes(content)
    assert why(signed, kept) == []


def edit_payload(line: str) -> str:
    told = json.loads(line)
    payload = base64.b64decode(told["payload"]).replace(b"FAILED", b"PASSED").replace(b'"verb"', b'"word"')
    return json.dumps(told | {"payload": base64.b64encode(payload).decode()})


@pytest.mark.parametrize(("change", "reason"), [
    (lambda lines: [], "wrong key: it was signed with none"),
    (lambda lines: [*map(edit_payload, lines)], "a statement in .* was changed after it was signed"),
    (lambda lines: lines[:1], "does not hold the statements of the bundle, each once"),
    (lambda lines: [*lines, lines[0]], "does not hold the statements of the bundle, each once"),
    (lambda lines: ["{}"], "it holds what this check cannot read"),
])  # fmt: skip
def test_changed_envelopes_are_named(change: Callable[[list[str]], list[str]], reason, signed, kept):
    file = signed / SIGNED
    file.write_text("".join(line + "\n" for line in change(file.read_text().splitlines())))
    (found,) = why(signed, kept)
    assert re.search(reason, found)


def test_hashes_made_anew_do_not_help_without_the_key(signed, kept):
    edit_row(signed, "a", lambda row: first(row).update(rel_l2=1e-9))
    (signed / "inputs" / "more.py").write_text("pass\n")
    close_anew(signed)
    assert {reason.split()[0] for reason in why(signed, kept)} >= {"rows.jsonl", "inputs/more.py", "manifest.json"}


def test_the_command_signs_and_says_which_key_is_missing_or_wrong(kept, tool):
    bundle, (_, other) = written(tool.results), keys(tool.folder)
    assert tool.within("share", bundle, "-o", "out", "--sign", kept / "repro.key").code == 0
    copy = tool.folder / "out" / bundle.name
    assert tool.within("verify", copy, "--key", kept / "repro.pub").code == 0
    for words, path in (("wrong key", copy), ("no signature", bundle)):
        done = tool.within("verify", path, "--key", other)
        assert done.code == 2 and words in done.out
    for args in (("share", bundle, "-o", "b", "--sign", other), ("verify", copy, "--key", kept / "repro.key")):
        done = tool.within(*args)
        assert done.code == 1 and " key" in done.complaint and "evidence.md" in done.complaint


def test_the_official_library_reads_what_was_signed(signed):
    """It refuses a field that a specification does not have: of a statement, of provenance, of a test result."""
    pytest.importorskip("in_toto_attestation")
    from google.protobuf.json_format import ParseDict
    from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
    from in_toto_attestation.predicates.test_result.v0.test_result_pb2 import TestResult
    from in_toto_attestation.v1.statement import Statement
    from in_toto_attestation.v1.statement_pb2 import Statement as Message

    lines = (signed / SIGNED).read_text().splitlines()
    for line, predicate in zip(lines, (Provenance, TestResult), strict=True):
        told = json.loads(base64.b64decode(json.loads(line)["payload"]))
        Statement.copy_from_pb(ParseDict(told, Message())).validate()
        ParseDict(told["predicate"], predicate())
