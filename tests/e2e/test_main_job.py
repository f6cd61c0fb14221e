"""The main job from end to end, as a newcomer meets it: an op goes in, a checked package comes out."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.launching import REPOSITORY, environment, living, warpsmith, write_scenario

USE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"warpsmith", "kernels_db"}:
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
import importlib, torch
package = importlib.import_module(sys.argv[2])
x = torch.randn(4096)
print(package.explain(x).split()[0], torch.allclose(package.scale_shift(x), x * 2 + 1))
"""


def demonstration(tmp_path: Path) -> list[str]:
    write_scenario(tmp_path / "examples")
    options = ["--examples", str(tmp_path / "examples"), "--op", "scale_shift", "--output", str(tmp_path / "exports")]
    return [sys.executable, "-m", "warpsmith.service.demo", *options]


@pytest.mark.nightly
def test_the_demonstration_searches_exports_checks_and_stays_up(tmp_path: Path) -> None:
    with subprocess.Popen(
        demonstration(tmp_path),
        env=environment(tmp_path / "home") | {"PYTHONUNBUFFERED": "1"},
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = ""
        try:
            for line in iter(process.stdout.readline, ""):
                said += line
                if "It stays up" in line:
                    break
            children = psutil.Process(process.pid).children(recursive=True)
            url = re.search(r"The service is at (http://127.0.0.1:\d+)", said)
            assert url is not None, said
            assert httpx.get(f"{url[1]}/readyz").status_code == 200
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert living(children) == []
    assert "starting one for this command" in said
    assert re.search(r"Target cpu:\w+: this machine has no CUDA GPU", said) or "CUDA" in said
    # The tree grows: the baselines, then verdicts, a failure among them, and at the end the whole.
    assert said.index("baselines: even eager") < said.index("#1 accepted") < said.index("is kept as kernel")
    assert re.search(r"#2 rejected at screen \(workload even: y\[\d+\] was not written", said)
    assert re.search(r"#3 closed \(pool \w+ has no reply", said)
    assert re.search(r"\* #\d \w+ \[control_flow, round \d\]", said)
    # The table, the claim, the check of the export.
    assert re.search(r"scale_shift +even +[\d.,]+ +- +- +[\d.,]+ +\d+\.\d\dx \[\d", said)
    assert "scale_shift: faster than every baseline on every bench workload, beyond the noise" in said
    assert re.search(r"it agrees with PyTorch on 2 workloads", said)

    (project,) = (tmp_path / "exports").iterdir()
    program = [sys.executable, "-c", USE, str(project), project.name]
    used = subprocess.run(program, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert used.stdout.split() == ["kernel:", "True"]


def test_a_missing_recording_is_said(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "warpsmith.service.demo", "--exit", "--examples", str(tmp_path)],
        env=environment(tmp_path / "home"),
        cwd=REPOSITORY,
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "layer_norm.cpu.jsonl" in result.stderr
    assert "warpsmith export SEARCH --format pool" in result.stderr


@pytest.mark.nightly
def test_a_search_starts_a_service_for_itself_and_ends_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    spec, pool = write_scenario(tmp_path)
    result = warpsmith(home, "search", str(spec), "--model", f"replay:{pool}", "--budget", "candidates=2")
    assert "starting one for this command" in result.stderr
    assert re.search(r"#\d accepted", result.stderr)
    assert "candidates" in result.stdout
    mine = [process for process in psutil.process_iter() if str(home) in words(process)]
    assert living(mine) == []
    refused = warpsmith(home, "search", str(spec), "--model", "agent", "--detach", code=1)
    assert "warpsmith up" in refused.stderr


@pytest.mark.nightly
def test_what_ships_is_listed_and_exported_on_a_fresh_installation(tmp_path: Path) -> None:
    home, output = tmp_path / "home", tmp_path / "out"
    listed = warpsmith(home, "kernels", "--op", "softmax").stdout
    said = r"kn_\w+ +softmax +cuda:sm_90 +cuda +\d\.\d\dx .* of the limit"
    assert re.fullmatch(said + r"(  judged under protocol 2: warpsmith reverify)?\n", listed)
    warpsmith(home, "export", "softmax", "--target", "cuda:sm_90", "--no-verify", "--output", str(output))
    (package,) = output.iterdir()
    assert (package / package.name / "__init__.py").is_file()
    mine = [process for process in psutil.process_iter() if str(home) in words(process)]
    assert living(mine) == []


def words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
