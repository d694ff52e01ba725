"""The image holds what the work needs and nothing more: checked inside it, under the limits that every job runs with.

On the launching machine pytest sees one test here, which starts the image with this file as its program; the checks
then run inside, where there is no pytest. One check again, by hand:

    docker run --rm --entrypoint python repro tests/test_image.py check_versions
"""

import ctypes
import errno
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback

import repro
from repro import settings

HARDENED = [
    *("--network", "none"),
    "--read-only",
    *("--tmpfs", "/tmp:exec,mode=1777,size=1g"),
    *("--volume", "/cell"),
    *("--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges"),
    *("--pids-limit", "256"),
    *("--memory", "4g"),
]


def check_versions():
    import torch
    import triton

    assert torch.__version__.partition("+")[0] == settings.PINS["torch"], torch.__version__
    assert torch.version.cuda == settings.PINS["cuda"], torch.version.cuda
    assert triton.__version__ == settings.PINS["triton"], triton.__version__


def check_lock_file():
    """What is installed is what requirements/image.txt says, package by package; pip came with the venv."""
    lock = (settings.ROOT / "requirements/image.txt").read_text()
    locked = {(name, version) for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE)}
    found = {(dist.name.lower().replace("_", "-"), dist.version) for dist in importlib.metadata.distributions()}
    found = {(name, version) for name, version in found if name not in ("pip", "repro")}
    assert found <= locked, f"not in the lock file: {sorted(found - locked)}"
    missing = {name for name, _ in locked} - {name for name, _ in found}
    assert not missing, f"not installed: {sorted(missing)}"


def check_imports():
    for name in ("dotenv", "numpy", "pynvml", "rich", "setuptools", "tabulate"):
        importlib.import_module(name)


def check_no_launcher():
    """The image launches nothing, talks to no API and runs no tests of its own: these belong to the host."""
    for name in ("anthropic", "docker", "pytest"):
        assert importlib.util.find_spec(name) is None, f"{name} is installed"


def check_python_headers():
    header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
    assert header.is_file(), f"{header} is missing"


def check_c_compiler():
    """Triton compiles a launcher for each kernel at run time, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = pathlib.Path(folder, "twice.c"), pathlib.Path(folder, "twice.so")
        source.write_text("#include <Python.h>\nint twice(int x) { return 2 * x; }\n")
        include = f"-I{sysconfig.get_path('include')}"
        subprocess.run(["gcc", "-shared", "-fPIC", include, str(source), "-o", str(library)], check=True)
        assert ctypes.CDLL(str(library)).twice(21) == 42


def check_user():
    status = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    assert os.getuid() != 0, "this is root"
    assert int(status["CapEff"], 16) == 0, f"capabilities {status['CapEff'].strip()}"
    assert int(status["NoNewPrivs"]) == 1, "new privileges are possible"


def check_nothing_writable():
    for folder in ("/", "/opt", "/opt/repro", "/opt/repro/repro", "/opt/venv", "/usr/share/repro"):
        assert os.stat(folder).st_uid == 0, f"{folder} belongs to uid {os.stat(folder).st_uid}"
        try:
            pathlib.Path(folder, "probe").touch()
        except OSError as error:
            assert error.errno in (errno.EACCES, errno.EROFS), error
        else:
            raise AssertionError(f"{folder} is writable")


def check_scratch_writable():
    for folder in (os.environ["HOME"], os.environ["TRITON_CACHE_DIR"], os.environ["TORCHINDUCTOR_CACHE_DIR"], "/cell"):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass


def check_no_network():
    routes = pathlib.Path("/proc/net/route").read_text().splitlines()[1:]
    assert not routes, f"routes: {routes}"
    with socket.socket() as client:
        client.settimeout(2)
        # 192.0.2.0/24 is set aside for documentation: no host answers there, with or without a network.
        assert client.connect_ex(("192.0.2.1", 443)) == errno.ENETUNREACH


def check_provenance():
    packages = pathlib.Path("/usr/share/repro/packages.txt").read_text().splitlines()
    names = {line.split()[0] for line in packages}
    assert {"ca-certificates", "g++", "gcc", "libc6-dev", "python3", "python3-dev", "python3-venv"} <= names
    assert all(len(line.split()) == 3 for line in packages), "a line is not: package, version, architecture"
    assert os.environ["REPRO_GIT_SHA"] and os.environ["REPRO_GIT_DIRTY"]


def check_nothing_left_over():
    """The .dockerignore held: no secrets, no repository, no results, no other environment."""
    left = [str(path) for name in (".env", ".git", ".venv", "results") if (path := settings.ROOT / name).exists()]
    assert not left, left


def check_interpreter():
    """Triton's interpreter runs a kernel without a GPU. It is chosen when `@triton.jit` runs, hence the new process."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        again = [sys.executable, __file__, "check_interpreter"]
        subprocess.run(again, env=os.environ | {"TRITON_INTERPRET": "1"}, check=True, stdout=subprocess.DEVNULL)
        return
    import torch

    x, y = torch.rand(1000), torch.rand(1000)
    out = torch.empty_like(x)
    add[(4,)](x, y, out, x.numel(), BLOCK=256)
    assert torch.equal(out, x + y)


def check_triton_compiles_for_sm90():
    """An H100's machine code, made without a GPU and without nvcc by the ptxas in Triton's own wheel."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    ptxas = triton.knobs.nvidia.ptxas
    assert pathlib.Path(ptxas.path).is_relative_to(pathlib.Path(triton.__file__).parent), ptxas.path
    assert ptxas.version == settings.PINS["cuda"], ptxas.version
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    compiled = triton.compile(ASTSource(add, signature, {"BLOCK": 256}), target=GPUTarget("cuda", 90, 32))
    assert ".target sm_90" in compiled.asm["ptx"]
    assert compiled.asm["cubin"].startswith(b"\x7fELF")


def check_torch_compile():
    """torch.compile builds C++ for the CPU, so g++, the headers and the caches work together."""
    import torch

    x = torch.rand(1000)
    torch.testing.assert_close(torch.compile(lambda x: torch.sin(x).sum() + 1)(x), torch.sin(x).sum() + 1)


def main(names: list[str]) -> int:
    checks = {name: check for name, check in globals().items() if name.startswith("check_")}
    failed = 0
    for name in names or checks:
        start_s = time.monotonic()
        try:
            checks[name]()
            verdict = "ok  "
        except Exception:  # each check is reported, whatever it raised
            traceback.print_exc()
            verdict, failed = "FAIL", failed + 1
        print(f"{verdict} {name} ({time.monotonic() - start_s:.1f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":  # in the image; the machine that launches it may have no triton
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)

    sys.exit(main(sys.argv[1:]))

import pytest  # noqa: E402 - the image has none


@pytest.fixture
def labels():
    """The image's labels; without an image there is nothing to test, which REPRO_REQUIRE_DOCKER=1 makes a failure."""
    inspect = ["docker", "image", "inspect", "--format", "{{json .Config.Labels}}", settings.image()]
    try:
        return json.loads(subprocess.run(inspect, capture_output=True, text=True, check=True).stdout)
    except FileNotFoundError:
        reason = "there is no docker client"
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip()
    if os.environ.get("REPRO_REQUIRE_DOCKER") == "1":
        pytest.fail(f"{reason}; run: make image")
    pytest.skip(f"{reason}; run: make image")


@pytest.mark.docker
@pytest.mark.parametrize("user", ["10001", "54321:54321"], ids=["own-uid", "any-uid"])
def test_image(labels, user):
    assert labels["org.opencontainers.image.version"] == repro.__version__

    command = ["docker", "run", "--rm", *HARDENED, "--user", user, "--entrypoint", "/opt/venv/bin/python"]
    run = subprocess.run(
        [*command, settings.image(), "/opt/repro/tests/test_image.py"], capture_output=True, text=True, timeout=300
    )
    print(run.stdout, run.stderr)
    assert run.returncode == 0
    checks = sum(name.startswith("check_") for name in globals())
    assert run.stdout.count("ok   check_") == checks, "the image is older than this file: make image"
