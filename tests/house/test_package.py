"""The command `repro` where it is installed: by `make setup` beside a checkout, by pip far from one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import CLEAN_ENV, ROOT, WHOLE, strict_json

from repro import config

CASES = ("tests/adversarial", "tests/frames", "tests/honest")
SOURCES = ("repro", "problems", "requirements", "docs", "artifacts", *CASES)
GOOD = "L1_36_RMSNorm.py"
THIEF = """import torch

class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()

    def forward(self, x):
        raise ValueError(open({file!r}).read())
"""


def run(command: list[object], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=CLEAN_ENV | env, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that pip makes of a copy of this checkout, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__", *(["results"] if name == "artifacts" else []))
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    (folder / "source" / "artifacts" / "results").mkdir()
    (folder / "source" / "artifacts" / "results" / "bundle.json").touch()
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    done = run([*pip, "--wheel-dir", folder, folder / "source"], folder)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The command in a new environment that holds this wheel, and borrows the other packages of the one that runs."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    done = run([sys.executable, "-m", "venv", "--without-pip", folder], folder.parent)
    assert done.returncode == 0, done.stderr
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"]
    done = run([*pip, "--no-deps", "--no-index", "--no-compile", "--quiet", wheel], folder.parent)
    assert done.returncode == 0, done.stderr
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "repro"


@pytest.mark.slow
def test_the_wheel_holds_what_ships_and_no_results(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {str(file.relative_to(ROOT)) for file in (ROOT / "repro").rglob("*.py")} <= names
    assert wheel.stat().st_size < 2 << 20
    assert not [name for name in names if "results" in name.split("/")]
    for pattern in ("problems/*", "artifacts/*.toml", "artifacts/oracle/*.py", "artifacts/[0-9]*/*", "docs/judging.md",
                    "requirements/*.txt", *(f"{folder}/*.py" for folder in CASES)):  # fmt: skip
        shipped = [file.relative_to(ROOT) for file in ROOT.glob(pattern) if file.is_file()]
        assert shipped and {f"repro_shipped/{file}" for file in shipped} <= names, pattern


@pytest.mark.slow
def test_an_installed_command_works_from_any_folder(installed, tmp_path, smoke_results):
    """It judges a file with the fixture that it finds, and draws its bundle."""
    folder = tmp_path / "elsewhere"
    shutil.copytree(smoke_results / "fixtures", folder / "results" / "fixtures")
    listed = run([installed, "problems"], folder)
    assert listed.returncode == 0 and "L1_36" in listed.stdout, listed.stderr
    (folder / "mine.py").write_bytes((config.ORACLE_DIR / GOOD).read_bytes())
    (answer,) = installed.parent.parent.glob(f"lib/*/site-packages/repro_shipped/artifacts/oracle/{GOOD}")
    (folder / "thief.py").write_text(THIEF.format(file=str(answer)))
    judged = run(
        [installed, "evaluate", "mine.py", "thief.py", "--problem", "L1_36", "--engine", "local", "--device", "cpu",
         "--json", "out.json"], folder,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stderr
    mine, thief = strict_json((folder / "out.json").read_text())["results"]
    assert mine["verdict"] == "correct"
    assert thief["verdict"] == "error" and "Permission denied" in str(thief["reasons"])
    assert sorted(path.name for path in folder.iterdir()) == ["mine.py", "out.json", "results", "thief.py"]
    drawn = run([installed, "report"], folder)
    assert drawn.returncode == 0 and list(folder.glob("results/*-evaluate/report.md")), drawn.stderr


@pytest.mark.slow
@pytest.mark.skipif(not WHOLE, reason="make test-all runs it; test_agent_task.py has the same from a checkout")
def test_inspects_command_finds_the_study_of_an_installed_package(installed, tmp_path):
    """The task, its sandbox and the provider of scripted replies, from any folder."""
    arguments = [word for pair in (f"script={ROOT / 'tests' / 'agent_scripts'}", "problems=L1_36", "arms=baseline",
                                   "engine=local", "device=cpu") for word in ("-T", pair)]  # fmt: skip
    inspect = [installed.parent / "python", "-P", "-m", "inspect_ai"]
    done = run(
        [*inspect, "eval", "repro/kernels", "--model", "replay/mine", "--display", "plain", *arguments], tmp_path
    )
    assert done.returncode == 0 and re.search(r"mean +1\.0", done.stdout), done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "results"]


@pytest.mark.slow
def test_the_self_tests_cases_come_along(installed, tmp_path):
    done = run([installed, "evaluate", "--self-test", "no-such-case", "--engine", "local", "--device", "cpu"], tmp_path)
    assert done.returncode == 1 and "no case of the self-test" in done.stderr
    cases = "from repro.studies import self_test; print(len(self_test.cases(list(self_test.SUITES), [])))"
    counted = run([installed.parent / "python", "-c", cases], tmp_path)
    files = [file for suite in ("adversarial", "honest") for file in (ROOT / "tests" / suite).glob("*.py")]
    assert int(counted.stdout) == len(files) > 200


@pytest.mark.slow
def test_make_setup_writes_a_command_of_this_checkout(tmp_path):
    """From any folder, through a link, and for the checkout around the environment, wherever that is."""
    checkout = tmp_path / "check out"
    shutil.copytree(ROOT / "repro", checkout / "repro", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "entrypoint.py"):
        shutil.copy(ROOT / name, checkout)
    for name in ("problems", "artifacts", "requirements"):
        (checkout / name).symlink_to(ROOT / name)
    venv.create(checkout / ".venv")  # of its own: `make setup` writes into its packages
    (packages,) = (checkout / ".venv" / "lib").glob("python*/site-packages")
    (packages / "outer.pth").write_text(sysconfig.get_path("purelib"))
    (checkout / ".venv" / ".local").touch()
    written = run(["make", "setup", "ENGINE=local", "--old-file", ".venv/.local"], checkout)
    assert written.returncode == 0, written.stderr
    assert (packages / "repro.pth").read_text() == f"{checkout}\n"
    command = checkout / ".venv" / "bin" / "repro"
    (tmp_path / "link").symlink_to(command)
    for name in (command, tmp_path / "link"):
        done = run([name, "--version"], tmp_path)
        assert done.returncode == 0 and re.fullmatch(r"repro \d+\.\d+\.\d+\n", done.stdout), done.stderr


@pytest.mark.parametrize("place", ["here", "root"])
def test_dotenv_is_the_current_folders_or_the_checkouts(place, tmp_path, monkeypatch):
    """And sets no variable but those that .env.example lists."""
    here, root = tmp_path / "here", tmp_path / "root"
    for folder in (here, root):
        folder.mkdir()
    monkeypatch.setattr(config, "ROOT", root)
    monkeypatch.chdir(here)
    for name in (*config.DOTENV, "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REPRO_IMAGE", "mine")
    (root / ".env").write_text("AWS_REGION=root\nREPRO_IMAGE=other\nLD_PRELOAD=evil.so\n")
    if place == "here":
        (here / ".env").write_text("AWS_REGION=here\n")
    config.load_dotenv(config.dotenv_file().read_text())
    assert config.region() == place and config.image() == "mine"
    assert "LD_PRELOAD" not in config.job_env({})
    monkeypatch.delenv("AWS_REGION")


def test_dotenvs_example_lists_every_variable_that_counts():
    listed = re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(config.DOTENV)
