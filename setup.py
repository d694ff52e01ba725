"""The packages of a wheel: every room of `repro`, and beside them what the command reads (`settings.INSTALLED`).

Everything else about the package, also which files of these folders come along, stands in pyproject.toml.
"""

from setuptools import find_packages, setup

FOLDERS = ("artifacts", "docs", "problems", "requirements", "tests/adversarial", "tests/frames", "tests/honest")
SHIPPED = {f"repro_shipped.{folder.replace('/', '.')}": folder for folder in FOLDERS}

setup(packages=[*find_packages(include=["repro", "repro.*"]), *SHIPPED], package_dir=SHIPPED)
