"""Warpsmith as a wheel in an environment of its own, started where folders have the names of its packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import REPOSITORY

NAMES = ("service", "workers", "prompts", "kernels_db", "warpsmith", "tests", "benchmarks", "celery")
RAISES = "raise ImportError('a folder of the working directory was imported')\n"
TIMEOUT_S = 280


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel; Warpsmith's dependencies are those of this environment."""

    directory: Path

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    def run(self, *command: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in `cwd`, with nothing of this process's import path."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WARPSMITH"))}
        return subprocess.run(
            [str(self.directory / "bin" / command[0]), *command[1:]],
            cwd=cwd,
            env={**variables, "WARPSMITH_HOME": str(self.directory / "home")},
            capture_output=True,
            text=True,
            check=check,
            timeout=TIMEOUT_S,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of this checkout, installed."""
    place = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(place), str(REPOSITORY)], check=True)
    (wheel,) = place.glob("warpsmith-*.whl")
    environment = place / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    subprocess.run([*pip, "--python", str(environment / "bin" / "python"), "install", "--no-deps", wheel], check=True)
    # A plain line adds a directory without reading the .pth files in it, so the checkout stays out of the path.
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installed(environment)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a folder of every name that could be taken for one of Warpsmith's packages."""
    directory = tmp_path_factory.mktemp("crowded")
    for name in NAMES:
        (directory / name).mkdir()
        (directory / name / "__init__.py").write_text(RAISES)
    return directory


def test_the_wheel_takes_one_name_in_site_packages(installed: Installed, tmp_path: Path) -> None:
    asked = "import importlib.metadata as m; print(*{str(f).split('/')[0] for f in m.files('warpsmith')})"
    told = installed.run("python", "-P", "-c", asked, cwd=tmp_path).stdout.split()
    assert {name for name in told if name != ".." and not name.endswith(".dist-info")} == {"warpsmith"}


@pytest.mark.parametrize("place", ["crowded", pytest.param("clone", marks=pytest.mark.nightly)])
def test_what_is_installed_runs_wherever_it_is_started(
    installed: Installed, crowded: Path, tmp_path: Path, place: str
) -> None:
    """A directory full of such names, and a clone that was not built."""
    if place == "clone":
        subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{REPOSITORY}", tmp_path / "clone"], check=True)
    cwd = crowded if place == "crowded" else tmp_path / "clone"
    shipped = installed.run("warpsmith", "kernels", "--json", cwd=cwd).stdout  # starts a service, asks it and ends it
    assert "layer_norm" in shipped
    assert "layer_norm" in installed.run("warpsmith", "ops", "examples", "--json", cwd=cwd).stdout


def test_a_candidate_is_judged_by_what_is_installed(installed: Installed, crowded: Path) -> None:
    spec, candidate = REPOSITORY / "examples/add_relu.yaml", REPOSITORY / "tests/candidates/add_relu_cpp.py"
    command = ("warpsmith", "judge", str(spec), str(candidate), "--level", "screen", "--json")
    verdict = json.loads(installed.run(*command, cwd=crowded, check=False).stdout)
    assert verdict["verdict"] in ("accepted", "ambiguous"), verdict["reason"]


def test_advice_fits_a_wheel(installed: Installed, tmp_path: Path) -> None:
    asked = "from warpsmith.service.local.machine import install_worker; print(install_worker())"
    assert installed.run("python", "-P", "-c", asked, cwd=tmp_path).stdout == 'pip install "warpsmith[worker]"\n'


def test_candidates_alone_import_the_runtime_by_its_short_name(installed: Installed, tmp_path: Path) -> None:
    asked = "import importlib.util as u; print(u.find_spec('kernels_db'))"
    assert installed.run("python", "-P", "-c", asked, cwd=tmp_path).stdout == "None\n"
    given = "from warpsmith.kernels_db.candidate_import import provide_short_names as p; p(); "
    given += "from kernels_db.runtime import cpp; import kernels_db.runtime.cuda; print(cpp.__name__)"
    assert installed.run("python", "-P", "-c", given, cwd=tmp_path).stdout == "warpsmith.kernels_db.runtime.cpp\n"


def test_the_public_face_loads_nothing_until_a_name_is_used(installed: Installed, tmp_path: Path) -> None:
    asked = "import sys, warpsmith; print('pydantic' in sys.modules); print(warpsmith.Op, warpsmith.__version__)"
    told = installed.run("python", "-P", "-c", asked, cwd=tmp_path).stdout.splitlines()
    assert told[0] == "False"
    assert told[1].startswith("<class 'warpsmith.")
    missing = installed.run("python", "-P", "-c", "import warpsmith; warpsmith.Other", cwd=tmp_path, check=False)
    assert "has no attribute 'Other'" in missing.stderr
