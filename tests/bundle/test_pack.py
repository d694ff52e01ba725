"""Packed bundles: `repro share --pack`, every verb on an archive, and archives that a stranger made."""

from __future__ import annotations

import io
import lzma
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Tool, manifest
from test_evidence import written
from test_hostile import member
from test_hostile import packed as tarred

from repro import config
from repro.bundle import storage, verify
from repro.bundle.storage import ARCHIVE
from repro.bundle.write import Bundle
from repro.errors import BundleError, UsageError
from repro.system import jsonio

PUBLISHED = config.ARTIFACTS_DIR / "results"
FAILED_ROW = {"row": "a", "content": "0" * 16, "status": "failed", "error": "it fell", "wall_s": 1.0, "inputs": [],
              "ended": "2999-01-01T00:00:00Z", "fingerprint_id": None, "result": None}  # fmt: skip
BENCHMARK = PUBLISHED / "h200-pinned/20261122T040411Z-benchmark"


@pytest.fixture
def packed(tool: Tool) -> Path:
    """A packed bundle of two rows, with a report."""
    bundle = written(tool.results)
    assert tool.within("share", "--pack", bundle, "-o", "out").code == 0
    return tool.folder / "out" / bundle.name


def state(path: Path) -> tuple[str, set[str]]:
    """The state of a bundle and the checks that failed."""
    found = verify.verify(path)
    return found.state, set(found.failed)


# -- pack


def test_pack_keeps_every_byte_and_gives_the_same_archive_again(tool):
    """Neither times, modes, owners, the order on disk nor the way it was stored change the archive."""
    bundle = written(tool.results)
    for folder, source in (
        ("a", bundle),
        ("b", tool.folder / "again" / bundle.name),
        ("c", tool.folder / "a" / bundle.name),
    ):
        if folder == "b":
            for name in reversed(storage.find(bundle).entries()):
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle / name, source / name)
                (source / name).chmod(0o600)
                os.utime(source / name, (1, 1))
        done = tool.within("share", "--pack", source, "-o", folder)
        assert done.code == 0 and f"written: {folder}/{bundle.name} (bundle id " in done.out, done.err
    archives = [(tool.folder / folder / bundle.name / ARCHIVE).read_bytes() for folder in "abc"]
    assert archives[0] == archives[1] == archives[2]
    inside = storage.unpack(archives[0])
    assert inside == (bundle.name, {name: (bundle / name).read_bytes() for name in storage.find(bundle).entries()})
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(archives[0]))) as opened:
        found = {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in opened}
    assert found == {(0, 0, 0, "", "", 0o644)}


@pytest.mark.slow
def test_published_archives_are_packed_as_this_release_packs():
    """Their tar files are the same; the compressed bytes may differ where liblzma does."""
    for file in PUBLISHED.glob(f"*/*/{ARCHIVE}"):
        content = file.read_bytes()
        assert lzma.decompress(storage.pack(storage.find(file))) == lzma.decompress(content), file


def test_tar_unpacks_a_folder_that_verifies(packed, tmp_path):
    subprocess.run(["tar", "-xf", packed / ARCHIVE, "-C", tmp_path], check=True)
    assert state(tmp_path / packed.name) == ("ok", set())


def test_what_is_changed_or_not_closed_is_not_packed(tool):
    changed, begun = written(tool.results / "a"), Bundle.create(tool.results / "b", "run", ["a"], {})
    (changed / "claims.toml").write_text("")
    begun.add(FAILED_ROW)
    for path, code, words in (
        (changed, 2, "does not verify and is not packed"),
        (begun.path, 1, "is not packed: its run has not ended"),
        (tool.folder, 1, "is not a bundle"),
        (ROOT / "README.md", 1, "is not a bundle"),
    ):
        done = tool.within("share", "--pack", path, "-o", "out")
        assert done.code == code and words in done.complaint, done.err
    assert not (tool.folder / "out").exists()
    path = written(tool.results / "c")
    assert tool.within("share", "--pack", path).code == 0 and (path.parent / "packed" / path.name / ARCHIVE).exists()
    assert "exists" in tool.within("share", "--pack", path).complaint
    assert "--hide" in tool.within("share", "--pack", path, "-o", "d", "--hide", "me").complaint


# -- every verb reads archives


def test_a_folder_an_archive_and_its_folder_are_read_alike(packed, tool):
    """By the one reader of all verbs."""
    folder = tool.results / packed.name
    read = [{name: found.read(name) for name in found.entries()}
            for found in map(storage.find, (folder, packed, packed / ARCHIVE))]  # fmt: skip
    assert read[0] == read[1] == read[2]
    done = tool.within("verify", folder, packed, packed / ARCHIVE, "--json", "out.json")
    bundles = tool.json()["bundles"]
    assert done.code == 0 and len({bundle["bundle_id"] for bundle in bundles}) == 1 < len(bundles), done.err
    done = tool.within("compare", "--claims", packed / ARCHIVE, "--json", "out.json")
    assert done.code == 0 and tool.within("share", packed / ARCHIVE, "-o", "shared").code == 0, done.err
    assert state(tool.folder / "shared" / packed.name) == ("ok", set())


def test_a_packed_bundle_is_not_written_to(tool):
    packed = tool.folder / BENCHMARK.name
    shutil.copytree(BENCHMARK, packed)
    before = {file: file.read_bytes() for file in packed.iterdir()}
    done = tool.within("report", packed)
    assert done.code == 1 and "is not written to: it is packed as an archive" in done.complaint
    assert "Add -o DIR" in done.complaint
    assert {file: file.read_bytes() for file in packed.iterdir()} == before


def test_a_packed_run_is_not_resumed_in_place(tmp_path):
    bundle = Bundle.create(tmp_path / "a", "run", ["a", "b"], {})
    bundle.finish("interrupted")
    target = tmp_path / "b" / bundle.name
    target.mkdir(parents=True)
    (target / ARCHIVE).write_bytes(storage.pack(storage.find(bundle.path)))
    shutil.copy(bundle.path / "manifest.json", target)
    assert state(target) == ("interrupted", set())
    with pytest.raises(UsageError, match=r"is not resumed.*tar -xf .*bundle\.tar\.xz -C DIR"):
        Bundle.resume(tmp_path / "b", "run", ["a", "b"], {})


# -- archives that were changed or made to harm


def test_copies_beside_an_archive_must_be_those_inside(packed):
    assert state(packed) == ("ok", set())
    text = (packed / "manifest.json").read_text()
    (packed / "manifest.json").write_text(text.replace('"complete"', '"failed"'))
    assert state(packed) == ("failed", {"copies beside the archive"})
    (packed / "manifest.json").write_text(text)
    (packed / "rows.jsonl").write_text("{}\n")
    (packed / "new.txt").write_text("mine")
    found = verify.verify(packed).failed["copies beside the archive"]
    assert [reason.split()[0] for reason in found.reasons] == ["new.txt", "rows.jsonl"]
    assert state(packed / ARCHIVE)[0] == "failed"


def test_a_changed_archive_fails_and_no_verb_reads_it(packed, tool):
    content = (packed / ARCHIVE).read_bytes()
    for damaged in (content[:-20], content + b"more", content[:200] + b"\0" + content[201:], b"", b"text"):
        (packed / ARCHIVE).write_bytes(damaged)
        assert "files are readable" in state(packed)[1]
        done = tool.within("verify", packed)
        assert done.code == 2 and "Traceback" not in done.err
        with pytest.raises(BundleError, match="cannot be read"):
            Bundle.open(packed)
    _, inside = storage.unpack(content)
    inside["rows.jsonl"] = inside["rows.jsonl"].replace(b"2.0", b"1.9", 1)
    (packed / ARCHIVE).write_bytes(archive(*(member(f"{packed.name}/{name}", value) for name, value in inside.items())))
    assert "hashes" in state(packed)[1]


def archive(*members: Callable[[tarfile.TarFile], object]) -> bytes:
    """An archive as a stranger may make it."""
    return tarred(lambda tar: [put(tar) for put in members])


FIRST, PLACE, KIND = member("run/manifest.json"), "not a name below one folder", "not a plain file"
HARMFUL = {
    "parent folder": (archive(FIRST, member("run/../../etc/x")), PLACE),
    "absolute path": (archive(FIRST, member("/etc/x")), PLACE),
    "top folder of dots": (archive(member("../x")), PLACE),
    "no folder": (archive(FIRST, member("x")), PLACE),
    "backslash": (archive(FIRST, member("run/..\\x")), PLACE),
    "escape sequence": (archive(FIRST, member("run/\x1b[31mx")), PLACE),
    "symbolic link": (archive(FIRST, member("run/x", b"", tarfile.SYMTYPE)), KIND),
    "hard link": (archive(FIRST, member("run/x", b"", tarfile.LNKTYPE)), KIND),
    "device": (archive(FIRST, member("run/x", b"", tarfile.CHRTYPE)), KIND),
    "folder": (archive(FIRST, member("run/x", b"", tarfile.DIRTYPE)), KIND),
    "twice the same": (archive(FIRST, member("run/x", b"1"), member("run/x", b"2")), "is in it twice"),
    "two bundles": (archive(FIRST, member("other/x")), "holds 2 bundles"),
    "nothing": (archive(), "holds 0 bundles"),
    "no tar file": (lzma.compress(b"text" * 1000), "cannot be read"),
}


def test_harmful_archives_are_refused_and_nothing_is_written(tmp_path, tool):
    for what, (content, words) in HARMFUL.items():
        folder = tmp_path / what
        folder.mkdir()
        (folder / ARCHIVE).write_bytes(content)
        with pytest.raises(BundleError, match=words):
            storage.find(folder)
        assert state(folder / ARCHIVE)[0] == "failed", what
        assert list(folder.iterdir()) == [folder / ARCHIVE], what
    done = tool.within("verify", tmp_path / "symbolic link")
    assert done.code == 2 and "'run/x' is not a plain file" in done.out


def test_an_archive_is_bounded_in_bytes_files_and_memory(monkeypatch):
    """The first is an archive of 1 MiB of zeros in less than 1 kB; the dictionary of the last takes 16 MiB."""
    monkeypatch.setattr(storage, "_MAX_BYTES", 1 << 19)
    with pytest.raises(ValueError, match="more than 524,288 bytes"):
        storage.unpack(archive(member("run/zeros", bytes(1 << 20))))
    monkeypatch.undo()
    monkeypatch.setattr(storage, "_MAX_FILES", 3)
    with pytest.raises(ValueError, match="more than 3 files"):
        storage.unpack(archive(*(member(f"run/{n}") for n in range(4))))
    monkeypatch.undo()
    content = (BENCHMARK / ARCHIVE).read_bytes()
    monkeypatch.setattr(storage, "_MAX_MEMORY", 8 << 20)
    with pytest.raises(lzma.LZMAError, match=r"[Mm]emory"):
        storage.unpack(content)


# -- states


def test_an_interrupted_bundle_passes_until_it_is_changed(tool):
    bundle = Bundle.create(tool.results, "run", ["a", "b"], {})
    bundle.add(FAILED_ROW)
    bundle.finish("interrupted")
    done = tool.within("verify", bundle.path, "--json", "out.json")
    (found,) = tool.json()["bundles"]
    assert done.code == 0 and found["state"] == "interrupted" and found["passed"]
    (path,) = tool.bundles()
    (path / "rows.jsonl").write_text("")
    assert state(path) == ("failed", {"hashes"}) and tool.within("verify", path).code == 2


def test_a_run_that_ended_without_all_rows_failed(tmp_path):
    """Only a run that was stopped is interrupted."""
    for status in ("incomplete", "failed", "complete"):
        bundle = Bundle.create(tmp_path, "run", ["a", "b"], {})
        bundle.finish(status)
        assert state(bundle.path) == ("failed", {"planned against done"})
    told = manifest(bundle.path)
    jsonio.write(bundle.path / "manifest.json", told | {"status": "interrupted"})
    assert state(bundle.path) == ("failed", {"bundle id"})
