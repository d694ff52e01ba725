"""What the Docker SDK raises, as errors of ours; and the labels of a run's containers and volumes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import requests
import urllib3
from docker.errors import APIError, ContainerError, DockerException

from repro import config
from repro.errors import EngineError, EngineGone, PrerequisiteError

LABEL_RUN, LABEL_OWNER = f"{config.LABEL}.run", f"{config.LABEL}.owner"
LABEL_ROLE, LABEL_GPU = f"{config.LABEL}.role", f"{config.LABEL}.gpu"

_GONE = (
    requests.exceptions.ConnectionError,
    requests.exceptions.ReadTimeout,
    requests.exceptions.ChunkedEncodingError,
    urllib3.exceptions.HTTPError,  # raised when a followed stream breaks
    ConnectionError,
)


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Turn the SDK's exceptions into ours: the engine no longer answers, or it refuses."""
    try:
        yield
    except _GONE as error:
        raise EngineGone("the Docker engine went away in the middle of a job", type(error).__name__,
                         "Start it again and repeat the command with --resume.") from error  # fmt: skip
    except ContainerError as error:
        raise EngineError("the image's Python failed", str(error.stderr)[-300:]) from error
    except APIError as error:
        text = str(error.explanation or error)
        if "could not select device driver" in text:
            raise PrerequisiteError("the Docker engine cannot hand out a GPU", text,
                                    "Install the NVIDIA Container Toolkit.") from error  # fmt: skip
        raise EngineError("the Docker engine refused a job", text) from error


def quietly(call: Callable[[], Any]) -> None:
    """Call, and ignore errors: the object may be gone already, and a lost engine is reported elsewhere."""
    try:
        call()
    except (DockerException, OSError, urllib3.exceptions.HTTPError):
        return
