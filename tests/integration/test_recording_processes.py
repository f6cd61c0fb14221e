"""`WARPSMITH_RECORD` in processes of their own: by the runner, by the plugins of engines, over forks and errors."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import warpsmith
from tests.support.waiting import wait_until
from warpsmith.workers.recording.calls import files_of, read_calls

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys
import torch

class Norm(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)

norm = Norm()
for _ in range(3):
    norm(torch.ones(2, 8))
print(sys.argv[1:], __name__)
"""

WORKERS = """
import multiprocessing
import torch

class Norm(torch.nn.Module):
    def forward(self, x):
        return x

norm = Norm()

def work(rows):
    for _ in range(rows):
        norm(torch.ones(rows, 8))

if __name__ == "__main__":
    torch.set_num_threads(1)
    work(1)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(rows,)) for rows in (2, 3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
"""


def environment(record: Path | str | None, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    recorded = {} if record is None else {"WARPSMITH_RECORD": str(record)}
    return {**kept, "PYTHONPATH": str(warpsmith.IMPORT_ROOT), "OMP_NUM_THREADS": "1", **recorded, **more}


def python(*arguments: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=env, cwd=cwd, check=False, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("functions", [False, True])
def test_the_runner_records_a_script_as_it_is(functions: bool, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(SCRIPT)
    env = environment(tmp_path / "calls.json", **({"WARPSMITH_RECORD_FUNCTIONS": "1"} if functions else {}))
    done = python("-m", "warpsmith.workers.recording", "model.py", "--flag", env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "['--flag'] __main__\n"), done.stderr
    expected = {"__main__.Norm": 3} | ({"torch.nn.functional.silu": 3} if functions else {})
    assert read_calls([tmp_path / "calls.json"]).by_name() == expected


def test_the_runner_runs_a_module_and_passes_on_how_it_ends(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(SCRIPT + "sys.exit(3)\n")
    done = python("-m", "warpsmith.workers.recording", "-m", "model", env=environment(None), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "[] __main__\n"), done.stderr
    assert read_calls([tmp_path / "calls.json"]).by_name() == {"__main__.Norm": 3}
    assert python("-m", "warpsmith.workers.recording", env=environment(None), cwd=tmp_path).returncode == 2


def test_every_process_writes_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "workers.py").write_text(WORKERS)
    env = environment(tmp_path / "calls.json")
    done = python("-m", "warpsmith.workers.recording", "workers.py", env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(files_of(tmp_path / "calls.json")) == 3
    found = read_calls([tmp_path / "calls.json"])
    rows = {call.arguments[0].shape[0]: count for call, count in found.counts.items()}  # type: ignore[union-attr]
    assert rows == {1: 1, 2: 2, 3: 3}, "a child has none of its parent's counts"


def test_the_plugin_of_each_engine_starts_the_recording(tmp_path: Path) -> None:
    """As the engine does: load the entry point, call it, perhaps twice; then run the model."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    (point,) = {groups[name]["warpsmith_record"] for name in ("vllm.general_plugins", "sglang.srt.plugins")}
    module, _, attribute = point.partition(":")
    assert callable(getattr(importlib.import_module(module), attribute))
    plugin = f"import importlib\nstart = importlib.import_module({module!r}).{attribute}\nstart()\nstart()\n"
    (tmp_path / "engine.py").write_text(plugin + SCRIPT)
    done = python("engine.py", env=environment(tmp_path / "calls.json"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_calls([tmp_path / "calls.json"]).by_name() == {"__main__.Norm": 3}


def test_a_plugin_costs_nothing_where_nothing_is_recorded(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom warpsmith.workers.recording.start import start\nstart()\n"
        "print(sorted({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    done = python("-c", code, env=environment(None), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_leaves_the_process_alone(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(SCRIPT)
    (tmp_path / "file").touch()
    env = environment(tmp_path / "file" / "calls.json")
    done = python("-W", "error", "-m", "warpsmith.workers.recording", "model.py", env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[] __main__\n", "")


def test_a_worker_that_is_killed_keeps_what_was_written(tmp_path: Path) -> None:
    quick = "from warpsmith.workers.recording import tally\ntally.WRITE_EVERY_S = 0.1\n"
    start = "from warpsmith.workers.recording.start import start\nstart()\n"
    (tmp_path / "model.py").write_text(f"{quick}{start}{SCRIPT}import time\ntime.sleep(600)\n")
    record = tmp_path / "calls.json"
    with subprocess.Popen([sys.executable, "model.py"], env=environment(record), cwd=tmp_path) as process:

        def written() -> bool:
            return bool(files_of(record)) and read_calls([record]).by_name() == {"__main__.Norm": 3}

        try:
            wait_until(lambda: written() or process.poll() is not None, 120)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    assert read_calls([record]).by_name() == {"__main__.Norm": 3}
