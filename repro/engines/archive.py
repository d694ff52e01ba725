"""Files as the archive in which an engine takes them."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterable
from pathlib import PurePosixPath

from repro import config


def pack(files: dict[str, bytes], folders: Iterable[str] = (), mode: int = 0o644) -> bytes:
    """Return a tar archive of files and folders that belong to the container's user. mode: of the files."""
    every = {str(parent) for name in files for parent in PurePosixPath(name).parents if str(parent) != "."}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for folder in sorted({*every, *folders}):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            _own(info)
            archive.addfile(info)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            _own(info)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def _own(info: tarfile.TarInfo) -> None:
    info.uid = info.gid = config.CONTAINER_UID
    info.mtime = int(time.time())
