"""Public repositories that the studies came from: fetched on demand, checked by git tree hash, never shipped.

A fetched source is a plain folder without git data, `sources/NAME`. Its tree hash is computed from its files, so a
changed, missing or extra file is found without a network and without git.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from repro import config
from repro.errors import PrerequisiteError, Unreadable, UsageError, refusing
from repro.system import foreign

FILE = config.ARTIFACTS_DIR / "sources.toml"
# git's own limit of one silent transfer; a dead connection ends after it.
_STALLED_S = 30
_PARTIAL = ".partial-"
# Most bytes of a file of a source.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Source:
    """One pinned repository of artifacts/sources.toml. commit, tree: git object names, SHA-1 in hexadecimal."""

    name: str
    address: str
    commit: str
    tree: str
    licence: str
    purpose: str
    redistributable: bool = True

    @property
    def folder(self) -> Path:
        """Where its files lie once fetched."""
        return config.sources_dir() / self.name


def load() -> dict[str, Source]:
    """Every source by name, in the order of the file."""
    found = tomllib.loads(FILE.read_text())["source"]
    return {name: Source(name=name, **entry) for name, entry in found.items()}


def named(name: str) -> Source:
    """One source. Raises UsageError for an unknown name."""
    found = load()
    if name not in found:
        raise UsageError(f"no source {name!r}", f"there are {', '.join(found)}")
    return found[name]


def withheld(path: Path) -> str:
    """Why a bundle must not keep the text of this file or folder, or "": its source has no licence to copy."""
    for source in load().values():
        if not source.redistributable and path.resolve().is_relative_to(source.folder.resolve()):
            return f"of {source.address} at {source.commit[:12]}, which has no licence: fetch it with `repro fetch`"
    return ""


def tree_hash(folder: Path) -> str:
    """The git tree hash of a folder's files, as `git write-tree` computes it. A `.git` entry at the top is left out.

    Raises OSError or Unreadable where a file cannot be read.
    """
    try:
        return _tree(folder, top=True).hex()
    except RecursionError as error:
        raise Unreadable(f"cannot read {folder}", "its folders are nested too deep") from error


def _object(kind: str, content: bytes) -> bytes:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).digest()


def _tree(folder: Path, *, top: bool = False) -> bytes:
    entries = []  # the key by which git sorts, the entry
    for item in os.scandir(folder):
        name = os.fsencode(item.name)
        if top and item.name == ".git":
            continue
        if item.is_symlink():
            mode, digest = b"120000", _object("blob", os.fsencode(os.readlink(item.path)))
        elif item.is_dir():
            mode, digest = b"40000", _tree(Path(item.path))
            if digest == _object("tree", b""):
                continue  # git stores no empty folder
        else:
            executable = item.stat().st_mode & 0o100
            content = foreign.read(Path(item.path), _MOST_BYTES)
            mode, digest = b"100755" if executable else b"100644", _object("blob", content)
        entries.append((name + b"/" * (mode == b"40000"), mode + b" " + name + b"\0" + digest))
    return _object("tree", b"".join(entry for _, entry in sorted(entries)))


def check(source: Source) -> Path:
    """The folder of a fetched source whose files are the pinned ones.

    Raises PrerequisiteError where it has not been fetched, or where a file differs.
    """
    if not source.folder.is_dir():
        remedy = f"Run `repro fetch {source.name}`, without a network with `--from DIR`."
        raise PrerequisiteError(f"{source.name} has not been fetched", f"there is no {source.folder}", remedy)
    found = tree_hash(source.folder)
    if found != source.tree:
        why = f"its tree is {found[:12]}, pinned is {source.tree[:12]}"
        remedy = f"Remove that folder and run `repro fetch {source.name}`."
        raise PrerequisiteError(f"{source.folder} is not the pinned {source.name}", why, remedy)
    return source.folder


def fetch(name: str, origin: str = "") -> tuple[Source, bool]:
    """Brings a source below `sources/` and checks its tree hash; returns it, and whether it was there already.

    origin: a folder (a git repository, or a plain copy of the files) or an address in place of the pinned one.
    Raises PrerequisiteError where it cannot be had, UsageError where what was given is another tree.
    """
    source = named(name)
    if source.folder.is_dir():
        check(source)
        return source, True
    parent = source.folder.parent
    with refusing(PrerequisiteError, f"cannot bring {name} below {parent}"):
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=parent) as work:
            files = Path(work) / "files"
            plain = origin and Path(origin).is_dir() and not _is_repository(Path(origin))
            if not plain:
                _check_out(source, origin or source.address, Path(work), files)
            if (found := tree_hash(Path(origin) if plain else files)) != source.tree:
                why = f"its tree is {found[:12]}, pinned is {source.tree[:12]} (commit {source.commit[:12]})"
                what = f"{origin or source.address} is not the pinned {source.name}"
                raise UsageError(what, why, "Nothing was kept.")
            if plain:
                shutil.copytree(origin, files, symlinks=True)
            with contextlib.suppress(OSError):  # another fetch of the same tree may have come first
                files.rename(source.folder)
    check(source)
    return source, False


def _is_repository(folder: Path) -> bool:
    return (folder / ".git").exists() or ((folder / "objects").is_dir() and (folder / "HEAD").is_file())


def _check_out(source: Source, address: str, work: Path, files: Path) -> None:
    """Writes the files of the pinned commit from a repository into a new folder."""
    program = shutil.which("git")
    if program is None:
        remedy = f"Install git, or unpack commit {source.commit[:12]} yourself and give it by `--from DIR`."
        raise PrerequisiteError(f"cannot fetch {source.name}", "git is not installed", remedy)
    environment = config.git_env(_STALLED_S)
    repository = work / "git"
    # No template, no hook, no filter and no change of line ends: the files are exactly what the commit holds.
    plain = ["-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false", "-c", "core.attributesFile=/dev/null"]

    def git(*words: str) -> str:
        """An empty text, or what git said of its failure."""
        command = [program, *plain, "--git-dir", str(repository), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stderr.strip() or f"git ended with {done.returncode}"

    address = str(Path(address).resolve()) if Path(address).is_dir() else address
    failed = git("init", "--quiet", "--template=", "--bare")
    if not failed:
        # A server that hands out single commits sends one; any other sends all branches.
        single = git("fetch", "--quiet", "--no-tags", "--depth=1", "--", address, source.commit)
        failed = single and git("fetch", "--quiet", "--no-tags", "--", address, "+refs/heads/*:refs/heads/*")
    if not failed and git("cat-file", "-e", f"{source.commit}^{{commit}}"):
        remedy = "Give a repository that has it by `--from DIR|URL`."
        raise UsageError(f"{address} does not have the pinned commit of {source.name}", source.commit[:12], remedy)
    if not failed:
        files.mkdir()
        failed = git("--work-tree", str(files), "checkout", "--quiet", "--force", source.commit, "--", ".")
    if failed:
        lines = failed.splitlines()
        why = next((each for each in lines if each.startswith(("fatal:", "error:"))), lines[-1])
        remedy = "Repeat with a network, or give a copy by `--from DIR|URL`: the tree hash decides."
        raise PrerequisiteError(f"cannot fetch {source.name} from {address}", why, remedy)
