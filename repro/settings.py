"""Everything read from the environment, every path, and every pin: each stands here once."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import dotenv

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS_DIR = ROOT / "problems"
ARTIFACTS_DIR = ROOT / "artifacts"
ORACLE_DIR = ARTIFACTS_DIR / "oracle"

# The pinned stack. Dockerfile, requirements/ and README are held to these by tests/test_pins.py.
PINS = {
    "cuda": "12.8",
    "torch": "2.9.1",
    "triton": "3.5.1",
    "base_image": "nvidia/cuda:12.8.1-devel-ubuntu24.04"
    "@sha256:520292dbb4f755fd360766059e62956e9379485d9e073bbd2f6e3c20c270ed66",
}

IMAGE = "repro"
LABEL = "repro"
CONTAINER_UID = 10001

# Environment variables that may reach a fingerprint: configuration, never credentials.
FINGERPRINT_ENV = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "TORCHINDUCTOR_FREEZING",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TRITON_INTERPRET",
    "TRITON_PTXAS_PATH",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
)

# What a worker process inherits from the judge's environment; everything else is withheld.
WORKER_ENV = (
    "PATH",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "CC",
    "CXX",
    *FINGERPRINT_ENV,
)


def load_dotenv() -> None:
    """Reads `.env` of the project's root; a variable that is set already keeps its value."""
    dotenv.load_dotenv(ROOT / ".env", override=False)


def results_dir() -> Path:
    """Where bundles go: $REPRO_RESULTS, else `results` below the current folder."""
    return Path(os.environ.get("REPRO_RESULTS", "results"))


def state_dir() -> Path:
    """Machine-wide locks (GPU leases); shared by all users of this machine."""
    return Path(os.environ.get("REPRO_STATE", Path(tempfile.gettempdir()) / "repro-state"))


def image() -> str:
    """The image that the docker engine runs: $REPRO_IMAGE, else `repro`."""
    return os.environ.get("REPRO_IMAGE", IMAGE)


def docker_host() -> str:
    """The address of the Docker engine, or the empty string for the default socket."""
    return os.environ.get("DOCKER_HOST", "")


def fingerprint_env() -> dict[str, str]:
    """The allow-listed variables that are set."""
    return {name: os.environ[name] for name in FINGERPRINT_ENV if name in os.environ}


def container_facts() -> dict[str, str]:
    """What the launcher and the image told this container about themselves."""
    names = ("REPRO_GIT_SHA", "REPRO_GIT_DIRTY", "REPRO_IMAGE_ID", "REPRO_ENGINE_VERSION", "REPRO_RUNTIME")
    return {name.removeprefix("REPRO_").lower(): os.environ[name] for name in names if os.environ.get(name)}


def in_container() -> bool:
    """Whether this process runs inside the image."""
    return "REPRO_GIT_SHA" in os.environ


def visible_gpu() -> str:
    """The UUID of the first GPU that this process was given, or the empty string where it was given none by UUID."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    return first if first.startswith("GPU-") else ""


def compiler() -> str:
    """The C compiler named by the environment, or the empty string."""
    return os.environ.get("CC", "")


def worker_env(scratch: Path, *, interpret: bool) -> dict[str, str]:
    """A worker's whole environment: an allow-list, caches in its own scratch folder, no secrets.

    interpret: run Triton kernels in Triton's interpreter (no GPU).
    """
    env = {name: os.environ[name] for name in WORKER_ENV if name in os.environ}
    env |= {
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1" if interpret else str(min(32, len(os.sched_getaffinity(0)))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "USER": "repro",
    }
    if interpret:
        env["TRITON_INTERPRET"] = "1"
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path and "zip" not in path)
    return env


def allocator() -> str:
    """How torch's allocator of GPU memory is configured, or the empty string."""
    return os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")


def compile_alone() -> None:
    """Has torch compile in this process, not in children of it."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def own_caches(folder: Path) -> None:
    """Puts what the judge itself compiles into its cell's folder, where no worker can write."""
    os.environ["TRITON_CACHE_DIR"] = str(folder / "cache" / "triton")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache" / "inductor")


def cell_env(extra: dict[str, str]) -> dict[str, str]:
    """The environment of a local cell: this process's, without credentials, plus `extra`."""
    hidden = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
    kept = {k: v for k, v in os.environ.items() if not any(word in k.upper() for word in hidden)}
    return kept | extra
