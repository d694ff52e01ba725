"""How a bundle is stored: as a folder while it grows, or packed as one archive beside its manifest and report.

    20261123T130313Z-run/bundle.tar.xz     every file, below one folder named as the bundle
    20261123T130313Z-run/manifest.json     a copy of the file in the archive, so that people and `git` can read it
    20261123T130313Z-run/report.md         the same

An archive is read into memory and never extracted. Archives may come from strangers, so size, count, types and names
of their files are bounded.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import itertools
import lzma
import os
import re
import shutil
import tarfile
import weakref
from collections.abc import Iterator
from pathlib import Path

from repro.errors import BundleError, PrerequisiteError, Unreadable, UsageError, refusing
from repro.system import foreign, stopwatch

ARCHIVE = "bundle.tar.xz"
_MAGIC = b"\xfd7zXZ\x00"
# The largest published bundle holds 361 files and 3.4 MB; a run of all of KernelBench by an agent some hundred MB.
_MAX_BYTES = 192 << 20  # unpacking takes four times as much memory
_MAX_FILES = 50_000
# Decompression of what `pack` writes takes a dictionary of 16 MiB and little else.
_MAX_MEMORY = 128 << 20
FILTERS = [  # lc and pb suit text
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 16 << 20, "lc": 4, "pb": 0}
]
_REMEDY = "Pack the bundle again, or fetch the archive again."


class Folder:
    """The files of a bundle that is a folder, `path`."""

    packed = False

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.absolute().name

    def read(self, name: str) -> bytes | None:
        """Returns one file's bytes, or None where it is missing, no plain file, too large, or outside the bundle."""
        file = self.path / name
        inside = not Path(name).is_absolute() and ".." not in Path(name).parts
        try:
            return foreign.read(file, _MAX_BYTES, within=self.path) if inside and not file.is_symlink() else None
        except Unreadable:
            return None

    def entries(self) -> list[str]:
        """Returns the names of everything below the folder but folders, links included, sorted."""
        found = []
        for folder, below, names in os.walk(self.path):
            links = (name for name in below if os.path.islink(os.path.join(folder, name)))
            found += [os.path.relpath(os.path.join(folder, name), self.path) for name in [*names, *links]]
        return sorted(found)

    def hold(self, owner: object, how: int = fcntl.LOCK_EX) -> weakref.finalize[..., object] | None:
        """Lock the folder until what is returned is called, or the owner ends. None where another process holds it."""
        lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        release = weakref.finalize(owner, os.close, lock)
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            release()
            return None
        except OSError:  # a file system without locks
            return release
        return release

    def held(self) -> bool:
        """Whether a process holds the folder, which it writes. False on a file system without locks."""
        release = self.hold(self, fcntl.LOCK_SH)
        if release is not None:
            release()
        return release is None


class Archive:
    """The files of a packed bundle. Raises BundleError where the archive is damaged or breaks a bound.

    `path` is the folder that holds it. `beside` are the copies there, by name.
    """

    packed = True

    def __init__(self, file: Path) -> None:
        self.path = file.parent
        try:
            self.name, self._files = unpack(foreign.read(file, _MAX_BYTES))
        except (lzma.LZMAError, tarfile.TarError, EOFError, ValueError, OverflowError) as error:
            raise BundleError(f"{file} cannot be read", str(error), _REMEDY) from error
        own = file.name == ARCHIVE and (self.path / "manifest.json").exists()
        around = Folder(self.path)
        self.beside = {name: around.read(name) for name in around.entries() if name != ARCHIVE} if own else {}

    def read(self, name: str) -> bytes | None:
        """Returns one file's bytes, or None where it is missing."""
        return self._files.get(name)

    def entries(self) -> list[str]:
        """Returns the names of all files, sorted."""
        return sorted(self._files)

    def held(self) -> bool:
        """Returns False: nothing writes to an archive."""
        return False


Storage = Folder | Archive


def holds(folder: Path) -> bool:
    """Whether a folder looks like a bundle: it has a manifest, or is packed."""
    return any((folder / name).exists() for name in ("manifest.json", ARCHIVE))


def below(folder: Path) -> list[Path]:
    """The bundles in a folder, at any depth. The kernels of a search have a manifest too, beside their problem.py."""
    found = {file.parent for name in ("manifest.json", ARCHIVE) for file in folder.rglob(name)}
    return sorted(path for path in found if not (path / "problem.py").exists())


def find(path: Path) -> Storage:
    """Returns the files of a bundle, named by its folder or by its archive.

    Raises BundleError as `Archive`, Unreadable where the archive is no plain file or too large.
    """
    file = path if path.is_file() else path / ARCHIVE
    if not file.is_file():
        return Folder(path)
    with foreign.opened(file, _MAX_BYTES) as stream:
        if file == path and stream.read(len(_MAGIC)) != _MAGIC:
            return Folder(path)  # a file of another kind, which holds no manifest
    return Archive(file)


def pack(bundle: Storage) -> bytes:
    """Returns the archive of a bundle. The same files give the same bytes on every machine at any time."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in bundle.entries():
            content = bundle.read(name)
            if content is None:
                raise BundleError(f"{bundle.path / name} cannot be packed", "it is a link or no file", "Remove it.")
            member = tarfile.TarInfo(f"{bundle.name}/{name}")  # time 0, user 0 and mode 644 are its defaults
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return lzma.compress(plain.getvalue(), format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, filters=FILTERS)


def unpack(archive: bytes) -> tuple[str, dict[str, bytes]]:
    """Returns the bundle's name, and name -> bytes of its files. Writes nothing to disk.

    Raises ValueError where the archive breaks a bound, lzma.LZMAError or tarfile.TarError where it is damaged.
    """
    decompressor = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MAX_MEMORY)
    plain = decompressor.decompress(archive, max_length=_MAX_BYTES)
    if not decompressor.eof:
        raise ValueError("it is cut short" if decompressor.needs_input else f"it holds more than {_MAX_BYTES:,} bytes")
    if decompressor.unused_data:
        raise ValueError(f"{len(decompressor.unused_data)} bytes follow its end")
    files: dict[str, bytes] = {}
    tops = set()
    with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as opened:
        for member in opened:
            top, inner = _place(member)
            if inner in files:
                raise ValueError(f"{inner} is in it twice")
            if len(files) == _MAX_FILES:
                raise ValueError(f"it holds more than {_MAX_FILES} files")
            stream = opened.extractfile(member)
            files[inner] = stream.read() if stream is not None else b""
            tops.add(top)
    if len(tops) != 1:
        raise ValueError(f"it holds {len(tops)} bundles, not one")
    return tops.pop(), files


def _place(member: tarfile.TarInfo) -> tuple[str, str]:
    """Returns the top folder of a member and its name below that. Raises ValueError for all but plain files inside."""
    if member.type != tarfile.REGTYPE or member.issparse():
        raise ValueError(f"{member.name!r} is not a plain file")
    top, _, inner = member.name.partition("/")
    parts = inner.split("/")
    if (
        not re.fullmatch(r"[\w.-]{1,200}", top, re.ASCII)
        or not inner.isprintable()
        or "\\" in inner
        or {"", ".", ".."} & {top, *parts}
    ):
        raise ValueError(f"{member.name!r} is not a name below one folder")
    return top, inner


def new_folder(results: Path, name: str) -> Path:
    """Makes the folder `<results>/<utc>-<name>` of one run, which no other run has. Raises PrerequisiteError."""
    stamp, remedy = stopwatch.utc().replace("-", "").replace(":", ""), "Choose another --results."
    for attempt in itertools.count():
        path = results / (f"{stamp}-{name}" + (f"-{attempt}" if attempt else ""))
        with refusing(PrerequisiteError, f"cannot write to the results folder {results}", remedy):
            try:
                path.mkdir(parents=True)
                return path
            except FileExistsError:
                if results.exists() and not results.is_dir():
                    raise PrerequisiteError(f"results folder {results} is a file", "", remedy) from None
    raise AssertionError("unreachable")


@contextlib.contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Yields a folder that becomes `target` after the block, whole or not at all.

    Raises UsageError where it exists, PrerequisiteError where it cannot be written.
    """
    if target.exists():
        raise UsageError(f"{target} exists", "", "Choose another -o.")
    half = target.with_name(f".{target.name}.half")
    with refusing(PrerequisiteError, f"cannot write to {target.parent}", "Choose another -o."):
        try:
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir(parents=True)
            yield half
            half.rename(target)
        finally:
            shutil.rmtree(half, ignore_errors=True)
