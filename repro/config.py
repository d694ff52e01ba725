"""Everything read from the environment, every path, and every pin: each stands here once."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dotenv

PACKAGE = Path(__file__).resolve().parent
# Problems, artifacts and the self-test's cases: a checkout has them beside the package, an installed package in this
# folder beside it (pyproject.toml says which).
INSTALLED = PACKAGE.parent / "repro_shipped"
ROOT = INSTALLED if INSTALLED.is_dir() else PACKAGE.parent
# How an engine starts one of its own verbs on this machine: the code of this process, whatever the folder.
COMMAND = (sys.executable, "-P", str(PACKAGE / "__main__.py"))
PROBLEMS_DIR = ROOT / "problems"
ARTIFACTS_DIR = ROOT / "artifacts"
ORACLE_DIR = ARTIFACTS_DIR / "oracle"

# The pinned stack. Dockerfile, requirements/ and README are held to these by tests/house/test_pins.py.
PINS = {
    "cuda": "12.8",
    "torch": "2.9.1",
    "triton": "3.5.1",
    "base_image": "nvidia/cuda:12.8.1-devel-ubuntu24.04"
    "@sha256:520292dbb4f755fd360766059e62956e9379485d9e073bbd2f6e3c20c270ed66",
}

# The sampler's period: 20 samples a second; under 20 ms it would only see NVML's own values twice.
_SAMPLE_MS, _MIN_SAMPLE_MS = 50, 20

# Ray puts sockets below its temporary folder, and a socket's path may have 107 bytes.
_MOST_RAY_FOLDER = 30

_IMAGE = "repro"
LABEL = "repro"
CONTAINER_UID = 10001

# What the published study asked for: one model for each way to reach it.
API_MODEL, BEDROCK_MODEL = "claude-opus-4-5-20251101", "us.anthropic.claude-opus-4-6-v1"
_REGION = "us-east-1"
SECRETS = ("ANTHROPIC_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "LEEROOPEDIA_API_KEY")
# What `.env` may set. Nothing else of it counts: the file may lie beside solutions of a stranger.
DOTENV = (*SECRETS, "ANTHROPIC_MODEL", "AWS_REGION", "CLAUDE_CODE_USE_BEDROCK", "DOCKER_HOST", "REPRO_IMAGE",
          "REPRO_RESULTS", "REPRO_SAMPLE_MS", "REPRO_SOURCES", "REPRO_STATE")  # fmt: skip
# What an agent's process inherits without a container: nothing that identifies the user or the machine.
_AGENT_ENV = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "CUDA_HOME", "CC", "CXX", "OMP_NUM_THREADS")

# Environment variables that may reach a fingerprint: configuration, never credentials.
_FINGERPRINT_ENV = (
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
_WORKER_ENV = (
    "PATH",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "CC",
    "CXX",
    *_FINGERPRINT_ENV,
)


# Environment variables and their values.
Variables = dict[str, str]


def _kept(names: Iterable[str]) -> Variables:
    """Those of these variables that are set."""
    return {name: os.environ[name] for name in names if name in os.environ}


def dotenv_file() -> Path:
    """The `.env` that counts: of the current folder, else of the checkout; where neither is there, the former."""
    here, root = Path.cwd() / ".env", ROOT / ".env"
    return root if root.is_file() and not here.is_file() else here


def load_dotenv(text: str) -> None:
    """Takes the variables of `DOTENV` from the text of `dotenv_file()`; one that is set already keeps its value."""
    for name, value in dotenv.dotenv_values(stream=io.StringIO(text)).items():
        if name in DOTENV and value is not None:
            os.environ.setdefault(name, value)


def results_dir() -> Path:
    """Where bundles go: $REPRO_RESULTS, else `results` below the current folder."""
    return Path(os.environ.get("REPRO_RESULTS", "results"))


def sources_dir() -> Path:
    """Where fetched sources lie: $REPRO_SOURCES, else `sources` below the current folder."""
    return Path(os.environ.get("REPRO_SOURCES", "sources"))


def git_env(stalled_s: int) -> Variables:
    """The environment of a git that fetches: no question is asked, no configuration but this machine's is read.

    stalled_s: seconds of silence after which a transfer ends.
    """
    return os.environ | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
        "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
        "GIT_HTTP_LOW_SPEED_TIME": str(stalled_s),
        "GIT_SSH_COMMAND": f"ssh -o BatchMode=yes -o ConnectTimeout={stalled_s}",
        "LC_ALL": "C",
    }


def state_dir() -> Path:
    """Machine-wide locks (GPU leases) and compiled baselines; shared by all users of this machine."""
    return Path(os.environ.get("REPRO_STATE", Path(tempfile.gettempdir()) / "repro-state"))


def shared_state() -> Path:
    """The same folder, made where it is missing: every user may write to it, and removes own files alone."""
    folder = state_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):  # another user's
        folder.chmod(0o1777)
    return folder


def compiled_dir() -> Path:
    """Where the judge keeps what torch.compile made of its baselines, for each user that judges a folder of its own."""
    return state_dir() / f"baselines-{os.geteuid()}"


def ray_inner() -> str:
    """The engine that runs jobs on a node of a Ray cluster: $RAY_INNER, docker or local; empty to choose."""
    return os.environ.get("RAY_INNER", "")


def leave_ray() -> None:
    """Remove from the environment what Ray sets for the process of a task: jobs hold GPUs and processors by leases."""
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        os.environ.pop(name, None)


def quiet_ray() -> None:
    """Has Ray report nothing to anyone, and keep its sockets in a short path. Call it before Ray is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    if len(tempfile.gettempdir()) > _MOST_RAY_FOLDER:
        os.environ.setdefault("RAY_TMPDIR", "/tmp")  # noqa: S108


def python_path() -> str:
    """Where this process finds its modules, for one that it starts."""
    return os.pathsep.join(path for path in sys.path if path and "zip" not in path)


def image() -> str:
    """The image that the docker engine runs: $REPRO_IMAGE, else `repro`."""
    return os.environ.get("REPRO_IMAGE", _IMAGE)


def docker_host() -> str:
    """The address of the Docker engine, or the empty string for the default socket."""
    return os.environ.get("DOCKER_HOST", "")


def secret(name: str) -> str:
    """A key of `SECRETS`, or the empty string. It stays in this process."""
    if name not in SECRETS:
        raise ValueError(f"{name} is no secret of this tool")
    return os.environ.get(name, "").strip()


def wants_bedrock() -> bool:
    """Whether $CLAUDE_CODE_USE_BEDROCK asks for Bedrock."""
    return os.environ.get("CLAUDE_CODE_USE_BEDROCK", "").strip().lower() in ("1", "true", "yes", "on")


def keep_region() -> None:
    """Sets the region of Bedrock where none is set: its client reads the environment."""
    os.environ.setdefault("AWS_REGION", region())


def region() -> str:
    """The region of Bedrock: $AWS_REGION."""
    return os.environ.get("AWS_REGION", "").strip() or _REGION


def model(*, bedrock: bool) -> str:
    """The model where none is named; as published, $ANTHROPIC_MODEL counts on Bedrock alone."""
    return os.environ.get("ANTHROPIC_MODEL", "").strip() or BEDROCK_MODEL if bedrock else API_MODEL


def agent_env() -> Variables:
    """What an agent without a container gets of this process's environment: an allow-list, and where modules are."""
    return _kept(_AGENT_ENV) | {"PYTHONPATH": python_path()}


def fingerprint_env() -> Variables:
    """The allow-listed variables that are set."""
    return _kept(_FINGERPRINT_ENV)


def container_facts() -> dict[str, str]:
    """What the launcher and the image told this container about themselves."""
    names = ("REPRO_GIT_SHA", "REPRO_GIT_DIRTY", "REPRO_IMAGE_ID", "REPRO_ENGINE_VERSION", "REPRO_RUNTIME")
    facts = {name.removeprefix("REPRO_").lower(): os.environ[name] for name in names if os.environ.get(name)}
    try:
        told = json.loads(os.environ.get("REPRO_CONTAINER", "{}"))
    except ValueError:
        told = {}
    return facts | ({str(k): str(v) for k, v in told.items()} if isinstance(told, dict) else {})


def sample_text() -> str:
    """$REPRO_SAMPLE_MS as it is set: a container gets it so."""
    return os.environ.get("REPRO_SAMPLE_MS", str(_SAMPLE_MS))


def sample_ms() -> int:
    """How often the sampler looks at the GPU, ms: $REPRO_SAMPLE_MS, 0 for never. Raises ValueError."""
    told = sample_text()
    if not told.isdigit() or 0 < int(told) < _MIN_SAMPLE_MS:
        raise ValueError(f"REPRO_SAMPLE_MS is {told!r}: it is 0, or milliseconds from {_MIN_SAMPLE_MS} on")
    return int(told)


def sampler_env() -> Variables:
    """The whole environment of the sampler's process."""
    return _kept(("PATH", "LD_LIBRARY_PATH", "LANG")) | {"PYTHONPATH": python_path(), "PYTHONDONTWRITEBYTECODE": "1"}


def in_container() -> bool:
    """Whether this process runs inside the image."""
    return "REPRO_GIT_SHA" in os.environ


def visible_gpu() -> str:
    """The UUID of the first GPU that this process was given, or the empty string where it was given none by UUID."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    return first if first.startswith(("GPU-", "MIG-")) else ""


def visible_devices() -> str:
    """How this process was given GPUs, without saying which: `all`, `none`, or a count by UUID or by index."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is None:
        return "all"
    names = [name for name in told.split(",") if name.strip()]
    how = "UUID" if names and not names[0].strip().isdigit() else "index"
    return f"{len(names)} by {how}" if names else "none"


def compiler() -> str:
    """The C compiler named by the environment, or the empty string."""
    return os.environ.get("CC", "")


def worker_env(scratch: Path, *, interpret: bool) -> Variables:
    """A worker's whole environment: an allow-list, caches in its own scratch folder, no secrets.

    interpret: run Triton kernels in Triton's interpreter (no GPU).
    """
    env = _kept(_WORKER_ENV)
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
    env["PYTHONPATH"] = python_path()
    return env


def environment() -> Variables:
    """A copy of this process's whole environment."""
    return dict(os.environ)


def take_environment(environment: Variables) -> None:
    """Makes this process's environment these variables and no other."""
    os.environ.clear()
    os.environ.update(environment)


def compile_alone() -> None:
    """Has torch compile in this process, not in children of it."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    config: Any = sys.modules.get("torch._inductor.config")
    if config is not None:  # it has read the environment
        config.compile_threads = 1


def interpret() -> None:
    """Has this process run Triton kernels in Triton's interpreter, where it has not imported Triton yet."""
    os.environ["TRITON_INTERPRET"] = "1"


def own_caches(folder: Path) -> None:
    """Puts what this process compiles into a folder of its own."""
    os.environ["TRITON_CACHE_DIR"] = str(folder / "cache" / "triton")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache" / "inductor")


def job_env(extra: Variables) -> Variables:
    """The environment of a local job: this process's, without credentials, plus `extra`; and this process's state
    folder, which a job with temporary files of its own would not find."""
    hidden = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
    kept = {k: v for k, v in os.environ.items() if not any(word in k.upper() for word in hidden)}
    return kept | {"REPRO_STATE": str(state_dir().resolve())} | extra
