"""Warpsmith as a wheel in an environment of its own, started where folders have the names of its packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import REPOSITORY
from tests.support import scenario

NAMES = ("service", "workers", "prompts", "kernels_db", "warpsmith", "tests", "benchmarks", "celery")
RAISES = "raise ImportError('a folder of the working directory was imported')\n"
TIMEOUT_S = 280

_PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PROJECT_REQUIRES = [
    *_PROJECT["dependencies"],
    *(f"{one}; extra == 'judge'" for one in _PROJECT["optional-dependencies"]["judge"]),
]
"""What Warpsmith requires, as a wheel's metadata says it; those of this environment may be of another checkout."""


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


PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout; with the dashboard as far as it is built."""
    place = tmp_path_factory.mktemp("wheel")
    skipping = os.environ | {"WARPSMITH_SKIP_DASHBOARD": "1"}
    # By the build backend of this environment: an index that does not answer is no fault of the wheel's.
    command = [*PIP, "wheel", "--no-index", "--no-build-isolation", "--no-deps", "-w", str(place), str(REPOSITORY)]
    subprocess.run(command, env=skipping, check=True)
    (made,) = place.glob("warpsmith-*.whl")
    return made


def install(wheel: Path, environment: Path, dependencies: Path) -> Installed:
    """Make an environment with the wheel, and with what lies in the directory `dependencies`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    subprocess.run(
        [*PIP, "--python", str(environment / "bin" / "python"), "install", "--no-deps", "--no-compile", wheel],
        check=True,
    )
    # A plain line adds a directory without reading the .pth files in it, so the checkout stays out of the path.
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    return Installed(environment)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, beside every dependency."""
    return install(wheel, tmp_path_factory.mktemp("installed") / "environment", Path(sysconfig.get_path("purelib")))


@pytest.fixture(scope="module")
def judging(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel as `pip install 'warpsmith[judge]' pytest` brings it: of the extra `service` there is nothing.

    The versions are those of this environment, by links, so that no index is asked.
    """
    place = tmp_path_factory.mktemp("judging")
    (dependencies := place / "dependencies").mkdir()
    for name in needed_by("warpsmith", {"judge"}) | needed_by("pytest", set()):
        for file in distribution(name).files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (dependencies / top).exists():
                (dependencies / top).symlink_to(distribution(name).locate_file(top))
    return install(wheel, place / "environment", dependencies)


def needed_by(name: str, extras: set[str]) -> set[str]:
    """The distributions that one of them needs, with some of its extras, and itself unless it is Warpsmith."""
    found: set[str] = set()
    left = [(canonicalize_name(name), frozenset(extras))]
    seen = set(left)
    while left:
        name, wanted = left.pop()
        found.add(name)
        requires = PROJECT_REQUIRES if name == "warpsmith" else distribution(name).requires or []
        for requirement in map(Requirement, requires):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*wanted, "")):
                one = (canonicalize_name(requirement.name), frozenset(requirement.extras))
                if one not in seen:
                    seen.add(one)
                    left.append(one)
    return found - {"warpsmith"}


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


@pytest.mark.nightly
@pytest.mark.parametrize("place", ["crowded", "clone"])
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


@pytest.mark.nightly  # the next one judges by a wheel as well
def test_a_candidate_is_judged_by_what_is_installed(installed: Installed, crowded: Path, tmp_path: Path) -> None:
    spec, candidate = tmp_path / "spec.yaml", tmp_path / "candidate.py"
    spec.write_text(scenario.OP)
    candidate.write_text(scenario.candidate(scenario.LOOP))
    command = ("warpsmith", "judge", str(spec), str(candidate), "--level", "screen", "--json")
    verdict = json.loads(installed.run(*command, cwd=crowded, check=False).stdout)
    assert verdict["verdict"] in ("accepted", "ambiguous"), verdict["reason"]


def test_without_the_service_a_candidate_is_judged_and_the_rest_says_what_it_needs(
    judging: Installed, crowded: Path, tmp_path: Path
) -> None:
    lacking = judging.run("python", "-P", "-c", "import sqlalchemy", cwd=tmp_path, check=False)
    assert "No module named 'sqlalchemy'" in lacking.stderr, "the environment has more than it should"
    spec, candidate = tmp_path / "op.yaml", tmp_path / "candidate.py"
    spec.write_text(scenario.OP)
    candidate.write_text(scenario.candidate(scenario.LOOP))
    program = (
        "import sys\nfrom pathlib import Path\nfrom warpsmith import Judge\n"
        "with Judge(limits={'time_s': 0.05}) as judge:\n"
        "    print(judge(sys.argv[1], Path(sys.argv[2]), level='screen').to_json())\n"
        "assert 'torch' not in sys.modules\n"
    )
    judged = json.loads(judging.run("python", "-P", "-c", program, str(spec), str(candidate), cwd=crowded).stdout)
    assert judged["accepted"], judged["reason"]
    for command in (("judge", str(spec), str(candidate), "--level", "screen"), ("doctor",)):
        assert judging.run("warpsmith", *command, cwd=crowded).returncode == 0
    up = judging.run("warpsmith", "up", cwd=tmp_path, check=False)
    assert (up.returncode, up.stderr) == (
        2,
        "error: warpsmith up: needs the service: pip install 'warpsmith[service]'\n",
    )
    fixtures = judging.run("python", "-P", "-m", "pytest", "--fixtures", cwd=tmp_path, check=False).stdout
    assert "judge_kernel" in fixtures, "pytest finds the plugin by its entry point"


def test_advice_fits_a_wheel(installed: Installed, tmp_path: Path) -> None:
    asked = "from warpsmith.workers.judging.machine import install_extra; print(install_extra('service'))"
    assert installed.run("python", "-P", "-c", asked, cwd=tmp_path).stdout == "pip install 'warpsmith[service]'\n"


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
