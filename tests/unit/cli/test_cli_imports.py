"""Which files `warpsmith import` reads because another names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from warpsmith.service.cli.commands.imports import collect

DEFINITION = {"name": "d", "op_type": "o", "axes": {"n": {"type": "var"}}, "inputs": {}, "outputs": {}, "reference": ""}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory with a task in `home/work/tasks/task`."""
    home = tmp_path / "disk" / "home"
    (home / "work" / "tasks" / "task").mkdir(parents=True)
    return home


def wrote(path: Path, text: str = "x = 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def task(home: Path, *sources: str, directory: str = "work/tasks/task") -> Path:
    """A task that names these files."""
    listed: list[dict[str, str]] = [{"name": f"f{number}.py", "source": name} for number, name in enumerate(sources)]
    return wrote(home / directory / "task.yml", f"files: {json.dumps(listed)}\ntests: []\n")


def names(path: Path) -> set[str]:
    return {Path(file.path).name for file in collect([path], None)}


def test_files_beside_and_above_are_read_along_and_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    beside, above = wrote(home / "work/tasks/task/reference.py"), wrote(home / "work/utils.py")
    assert names(task(home, "reference.py", "../../utils.py")) == {"task.yml", "reference.py", "utils.py"}
    said = capsys.readouterr().err
    assert f"read along: {beside}" in said
    assert f"read along: {above}" in said


@pytest.mark.parametrize(
    "source",
    [
        "../../../.docker/config.json",
        "../../../.docker/config.py",
        "../../../.secret.py",
        "../../../keys.json",
        "../../../../above.py",
        "{home}/absolute.py",
        "{home}/work/tasks/task/absolute.py",
        "link.py",
        "hidden_link.py",
        "json_link.py",
        "linked/above.py",
        "loop.py",
        "directory.py",
        "x" * 5000 + ".py",
    ],
)
def test_a_private_file_is_not_read_whatever_a_task_says(home: Path, source: str) -> None:
    here = home / "work/tasks/task"
    for name in (".docker/config.json", ".docker/config.py", ".secret.py", "keys.json", "absolute.py", "../above.py"):
        wrote(home / name, "{}")
    wrote(here / "absolute.py")
    (here / "directory.py").mkdir()
    links = {"link.py": "../above.py", "hidden_link.py": ".secret.py", "json_link.py": "keys.json", "linked": ".."}
    for name, target in links.items():
        (here / name).symlink_to(home / target)
    (here / "loop.py").symlink_to(here / "loop.py")
    assert names(task(home, source.replace("{home}", str(home)))) == {"task.yml"}


def test_a_task_in_a_hidden_directory_has_its_own_files(home: Path) -> None:
    wrote(home / ".cache/task/reference.py")
    found = names(task(home, "reference.py", directory=".cache/task"))
    assert found == {"task.yml", "reference.py"}


@pytest.mark.parametrize("path", ["../../.docker/x.safetensors", "{home}/x.safetensors", "../../../../x.safetensors"])
def test_a_private_tensor_is_not_read_whatever_a_workload_says(home: Path, path: str) -> None:
    for name in (".docker/x.safetensors", "x.safetensors", "../x.safetensors"):
        wrote(home / name)
    named: dict[str, Any] = {"type": "safetensors", "path": path.replace("{home}", str(home)), "tensor_key": "x"}
    wrote(home / "work/set/w.jsonl", json.dumps({"uuid": "a", "axes": {}, "inputs": {"x": named}}) + "\n")
    definition = wrote(home / "work/set/d.json", json.dumps(DEFINITION))
    found = {Path(file.path).name for file in collect([definition, home / "work/set/w.jsonl"], None)}
    assert found == {"d.json", "w.jsonl"}
