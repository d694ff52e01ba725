"""What every file must keep to: the pins, no trace of one machine, one reader of the environment."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement

import repro
from repro import config

ROOT = config.ROOT
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
SOURCES = [ROOT / "entrypoint.py", *sorted((ROOT / "repro").rglob("*.py"))]

# -- pins


def locked(file: Path) -> dict[str, tuple[str, list[str]]]:
    """name -> (version, hashes) of a compiled requirement file; every line must be one."""
    found = {}
    text = re.sub(r"^\s*#.*$", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        match = re.fullmatch(r"([\w.-]+)==([\w.+!-]+)( ;[^#]*?)?((?:\s+--hash=sha256:[0-9a-f]{64})*)", line)
        assert match, f"{file.name}: {line[:100]}"
        found[match[1]] = (match[2], match[4].split())
    return found


def test_the_pins_agree_with_each_other():
    """The base image is one digest of the CUDA version that torch is built for."""
    image, _, digest = config.PINS["base_image"].partition("@")
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    assert image.partition(":")[2].startswith(config.PINS["cuda"] + ".")


def test_the_dockerfile_starts_from_the_pinned_base_and_installs_by_hash():
    text = (ROOT / "Dockerfile").read_text()
    assert re.findall(r"^ARG BASE_IMAGE=(.+)$", text, re.MULTILINE) == [config.PINS["base_image"]]
    assert re.findall(r"^FROM (.+)$", text, re.MULTILINE) == ["${BASE_IMAGE}"]
    assert re.search(r"--require-hashes --requirement \S*requirements/image\.txt", text)
    assert f"image.version={repro.__version__}" in text and f"USER {config.CONTAINER_UID}" in text
    assert "RUN --mount" not in text and "<<" not in text, "the classic builder knows neither"


@pytest.mark.parametrize("file", REQUIREMENTS, ids=lambda file: file.name)
def test_every_requirement_is_locked_by_version_and_hash(file):
    """And no file names an index: each machine brings its own."""
    packages = locked(file)
    assert packages and all(hashes for _, hashes in packages.values())
    text = file.read_text()
    assert "://" not in text and not re.search(r"^\s*-", re.sub(r"\s+--hash=\S+", "", text), re.MULTILINE)
    for line in file.with_suffix(".in").read_text().splitlines():
        wanted = re.match(r"([\w.-]+)==(\S+)", line)
        assert not wanted or packages[wanted[1]][0] == wanted[2], line


def test_requirement_files_agree_with_each_other_and_with_the_pins():
    versions = {}
    for file in REQUIREMENTS:
        for name, (version, _) in locked(file).items():
            versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}
    for name in ("torch", "triton"):
        assert versions[name] == {config.PINS[name]}
    image = locked(ROOT / "requirements" / "image.txt")
    assert {"torch", "triton", "numpy"} <= image.keys() and "docker" not in image
    agents = locked(ROOT / "requirements" / "agents.txt")
    assert {"anthropic", "inspect-ai", "inspect-swe", "mcp"} <= agents.keys()
    assert not {"torch", "docker"} & agents.keys()
    assert "inspect-ai" not in image
    host = locked(ROOT / "requirements" / "host.txt")
    assert "docker" in host and "torch" not in host


def test_pyproject_names_the_same_packages_and_pins():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pinned = {f"{name}=={config.PINS[name]}" for name in ("torch", "triton")}
    needed = set(project["dependencies"])
    assert pinned <= needed
    host = locked(ROOT / "requirements" / "host.txt")
    names = {re.split(r"[=<>]", name)[0] for name in needed - pinned}
    assert {"docker", "jinja2", "numpy"} < names <= host.keys()
    (numpy,) = [Requirement(name) for name in needed if name.startswith("numpy")]
    assert host["numpy"][0] in numpy.specifier and "2.4.0" not in numpy.specifier, "Triton's interpreter breaks on 2.4"
    files = ("image", "agents", "search", "ray", "dev")
    everything = host.copy()
    for name in files:
        everything |= locked(ROOT / "requirements" / f"{name}.txt")
    named = {re.split(r"[=<>]", name)[0] for extra in (*extras.values(), needed) for name in extra}
    assert named <= everything.keys()


def test_an_installed_package_has_every_file_that_the_checkout_has():
    """Pages, prompts, prices, schemas and templates are read at run time: a wheel without them fails there."""
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    inside = {
        file
        for package, patterns in packaged.items()
        for pattern in patterns
        for file in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    data = {f for f in (ROOT / "repro").rglob("*") if f.is_file() and f.suffix not in (".py", ".pyc")}
    assert data and data == inside


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/judging.md"])
def test_versions_that_the_documentation_names_are_the_pins(name):
    """Outside generated blocks, which show what a bundle was measured with."""
    text = re.sub(r"<!-- (\w+) -->.*?<!-- /\1 -->", "", (ROOT / name).read_text(), flags=re.DOTALL)
    named = re.findall(r"\b(CUDA|PyTorch|torch|Triton)[ =`*]{1,3}(\d+\.\d[\d.]*\d|\d+\.\d)", text)
    for package, version in named:
        pin = config.PINS["torch" if package == "PyTorch" else package.lower()]
        assert version == pin or version.startswith(pin + "."), f"{name} names {package} {version}, the pin is {pin}"
    for digest in re.findall(r"sha256:[0-9a-f]{64}", text):
        assert config.PINS["base_image"].endswith(digest)


# -- nothing of one machine


def shipped() -> Iterator[tuple[Path, str]]:
    """Every file that a checkout holds, with its text: what .gitignore names and other tools' folders left out."""
    own = {".ci", ".dockerignore", ".gitignore", ".env.example"}
    for top in sorted(ROOT.iterdir()):
        if (top.name.startswith(".") and top.name not in own) or top.name in ("build", "results", "shared", "sources"):
            continue
        for file in [top] if top.is_file() else sorted(top.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts and not top.name.endswith(".egg-info"):
                yield file.relative_to(ROOT), file.read_bytes().decode(errors="replace")


def own_sources() -> set[str]:
    """Hosts and folders from which this machine installs packages, as its pip is set up."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    found = set()
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        if re.search(r"index|links|host|proxy", key):
            for word in value.strip("'\"").split():
                parts = urlsplit(word)
                found.add(parts.hostname or parts.path.removesuffix("/").removesuffix("/simple"))
    return {word for word in found if len(word) > 5 and word != "localhost"}


def test_no_file_names_a_folder_of_one_machine_or_a_package_registry():
    """The patterns are put together here, so that this file does not hold what it looks for."""
    folders = "|".join(("wo" + "rk", "ho" + "me", "ro" + "ot", "Us" + "ers", "mn" + "t"))
    patterns = [
        rf"(?<![\w.$}}/-])/({folders})/\w",
        "file:" + "///",
        r"\bpy" + r"pi\.",
        "python" + "hosted",
        r"download\." + r"py" + r"torch",
        "(?<!emit-)index" + "-url",
        *map(re.escape, own_sources()),
    ]
    wrong = [
        f"{name}: {match[0]!r}"
        for name, text in shipped()
        for p in patterns
        if (match := re.search(p, text)) is not None
    ]
    assert wrong == []


# -- what import-linter cannot say (its contracts stand in pyproject.toml)


def test_only_config_reads_the_environment():
    readers = set()
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.environb", "os.getenv"):
                readers.add(file)
            if isinstance(node, ast.ImportFrom) and node.module == "os":
                readers |= {file for alias in node.names if alias.name in ("environ", "environb", "getenv")}
    assert readers == {ROOT / "repro" / "config.py"}


HOST_SIDE = ("repro.cli.main", "repro.bundle.verify", "repro.bundle.share",
             "repro.studies.evaluation",
             "repro.studies.artifact_study", "repro.artifacts.lint", "repro.report.figures",
             "repro.report.output", "repro.studies.agent.study", "repro.engines.docker", "repro.analysis.compare",
             "repro.analysis.claims", "repro.report.claims", "repro.report.comparison",
             "repro.knowledge.server")  # fmt: skip
BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
import importlib
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_the_host_needs_no_torch():
    """Modules of the machine that launches containers are imported with torch and Triton out of reach."""
    command = [sys.executable, "-W", "error", "-c", BLOCKED, *HOST_SIDE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
