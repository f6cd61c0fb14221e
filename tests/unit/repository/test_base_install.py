"""The base install: what it may import, and what commands say that need the extra `service`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from warpsmith.service.cli import COMMANDS
from warpsmith.service.local import extra

PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
IN_THE_BASE = {"judge", "ops", "doctor", "import"}

BLOCKED = """
import sys
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {blocked!r} else self.finder.find_spec(name, path, target)
sys.meta_path = [Hiding(finder) for finder in sys.meta_path]
"""


def without_service(program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program where nothing of the extra, or of torch, can be imported."""
    blocked = {*extra.MODULES, "kombu", "redis", "starlette", "torch"}
    return subprocess.run(
        [sys.executable, "-P", "-c", BLOCKED.format(blocked=blocked) + program, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `warpsmith` so."""
    return without_service("from warpsmith.service.cli import main; main()", *arguments, cwd=cwd)


def plain(requirement: str) -> str:
    """The normalised name in a requirement."""
    return re.split(r"[\[<>=!~ ]", requirement)[0].lower().replace("_", "-")


def test_the_extra_its_modules_and_the_layers_contract_name_the_same() -> None:
    wanted = {plain(requirement) for requirement in EXTRAS["service"]}
    homes = packages_distributions()
    found = {name: {plain(home) for home in homes[name]} for name in extra.MODULES}
    assert all(homes & wanted for homes in found.values()), found
    assert wanted == {home for homes in found.values() for home in homes & wanted}
    (contract,) = (
        one for one in PROJECT["tool"]["importlinter"]["contracts"] if one["name"].startswith("Judging needs the base")
    )
    assert set(extra.MODULES) <= set(contract["forbidden_modules"])


def test_what_a_worker_installs_is_everything_that_is_no_tool() -> None:
    assert EXTRAS["worker"] == ["warpsmith[judge,service]"]
    base = {plain(requirement) for requirement in PROJECT["project"]["dependencies"]}
    parts = [base, *({plain(one) for one in EXTRAS[name]} for name in ("judge", "service"))]
    assert sum(map(len, parts)) == len(set().union(*parts)), "each dependency is in one of them"


def test_the_api_is_imported_without_the_extra_and_without_torch(tmp_path: Path) -> None:
    program = (
        "import warpsmith\n"
        "print([getattr(warpsmith, name) for name in warpsmith.__all__])\n"
        "import warpsmith.workers.judging.pytest_plugin, warpsmith.workers.judging.candidates\n"
        "judge = warpsmith.Judge()\n"
        "try:\n"
        "    judge(sys.argv[1], 'def run(): pass', language='cpp')\n"
        "except warpsmith.CannotJudge as error:\n"
        "    print(error)\n"
    )
    spec = REPOSITORY / "examples/add_relu.yaml"
    found = without_service(program, str(spec), cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "warpsmith.workers.judging.judge.Judge" in found.stdout
    assert "torch is not installed: pip install" in found.stdout


def test_help_lists_every_command_without_the_extra(tmp_path: Path) -> None:
    found = command("--help", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    listed = {line.split()[0]: line for line in found.stdout.splitlines() if line.startswith("  ") and line.split()}
    assert set(COMMANDS) <= set(listed)
    lacking = {name for name in COMMANDS if "Needs the service" in listed[name]}
    assert not lacking & IN_THE_BASE
    assert {"up", "search", "kernels", "db", "keys"} <= lacking


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--port", "0"],
        ["search", "op.yaml"],
        ["db", "upgrade"],
        ["ops", "list"],
        ["mcp", "--url", "http://127.0.0.1:9"],
    ],
)
def test_a_command_that_needs_the_service_says_so(arguments: list[str], tmp_path: Path) -> None:
    name = " ".join(arguments[:2] if arguments[0] == "ops" else arguments[:1])
    found = command(*arguments, "--json", cwd=tmp_path)
    assert found.returncode == 2, found.stderr
    assert "Traceback" not in found.stderr
    said = f"warpsmith {name}: needs the service: pip install "
    assert f"error: {said}" in found.stderr.replace("db upgrade:", "db:")
    assert said in json.loads(found.stdout)["error"]["message"].replace("db upgrade:", "db:")


def test_the_doctor_says_what_is_missing(tmp_path: Path) -> None:
    found = command("doctor", "--json", cwd=tmp_path)
    checks = {check["name"]: check for check in json.loads(found.stdout)["checks"]}
    assert found.returncode == 0, found.stderr
    assert checks["service"]["state"] == "note"
    assert "service" in checks["service"]["fix"]
    assert "judge" in checks["torch"]["fix"]
    assert "database" not in checks


def test_specs_are_checked_and_problems_read_without_the_extra(tmp_path: Path) -> None:
    assert command("ops", "validate", str(REPOSITORY / "examples/add_relu.yaml"), cwd=tmp_path).returncode == 0
    assert "layer_norm" in command("ops", "examples", cwd=tmp_path).stdout
    problem = "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
    problem += "        return torch.relu(x)\n\n\ndef get_inputs():\n    return [torch.randn(16, 16)]\n\n\n"
    problem += "def get_init_inputs():\n    return []\n"
    (tmp_path / "problem.py").write_text(problem)
    found = command("import", "problem.py", "--output", "op.json", cwd=tmp_path)
    assert (found.returncode, "expected a machine with torch" in found.stderr) == (2, True), found.stderr
