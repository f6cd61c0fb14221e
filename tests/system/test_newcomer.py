"""Forty things that a newcomer types in the first hour, right and wrong, and what each prints.

One home, one service, one search of a recorded pool. `SEARCH` and `KERNEL` stand for the search and its kernel.
A pattern is looked for in what the command prints, standard output and errors together.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.support.launching import command, environment, up, write_scenario

BAD_SPEC = """schema_version: 1
name: mine
axes: {n: {kind: var}}
inputs:
  - {name: x, shape: [n], dtype: fp32}
outputs:
  - {name: out, shape: [m], dtype: float32}
reference: |
  def run(x):
      return x
workloads:
  - {id: a, role: bnch, axes: {n: 3}}
"""

STEPS: list[tuple[str, int, str]] = [
    ("--version", 0, r"warpsmith \d+\.\d+"),
    ("serach softmax", 2, "No such command 'serach'. Did you mean 'search'"),
    ("doctor", 0, r"ok +service +http://127\.0\.0\.1:\d+"),
    ("ops examples", 0, r"softmax +\S+softmax\.yaml"),
    (
        "ops validate examples/softmax.yaml",
        0,
        r"softmax is valid \(digest \w+; in pools \w+\)\n +bench +wide +rows=128, columns=32768",
    ),
    ("ops validate examples/sofmax.yaml", 2, "OP: found 'examples/sofmax.yaml', .*did you mean softmax"),
    ("ops validate softmx", 2, r"OP: found 'softmx', .* name of an op; did you mean softmax\?"),
    ("ops validate bad.yaml", 2, r"inputs\[0\]\.dtype \(line 5\): found 'fp32', .*did you mean float32"),
    ("ops validate bad.yaml", 2, r"workloads\[0\]\.role \(line 12\): .*did you mean bench"),
    ("ops validate bad.yaml", 2, r"outputs\[0\]\.shape\[0\] \(line 7\): found 'm', expected an axis: one of n"),
    ("ops list", 0, r"op_\w+ +scale_shift"),
    ("searches", 0, r"SEARCH +finished +scale_shift +cpu:\w+ +best \d+\.\d+x"),
    ("searches --state finishd", 2, "did you mean finished"),
    ("searches --op softmax", 0, ""),
    ("tree SEARCH", 0, r"\* #\d \w+ \[control_flow, round \d\] +accepted \d"),
    ("tree SEARCH --story", 0, "WHAT WAS TRIED"),
    ("tree scale_shfit", 2, "did you mean scale_shift; warpsmith searches lists them"),
    ("tree sr_none", 1, "search: found 'sr_none', expected the id of one that is stored, sr_"),
    ("node SEARCH#1", 0, "#1 .*: accepted"),
    ("node SEARCH#99", 2, "expected the number of a node of SEARCH: warpsmith tree SEARCH"),
    ("kernels", 0, r"KERNEL +scale_shift +cpu:\w+ +cpp +\d+\.\d+x \["),
    ("kernels --op scale_shift", 0, "KERNEL"),
    ("export scale_shift --no-verify --output out", 0, "kernel KERNEL as package in out"),
    ("export scale_shift --format wheel", 2, "--format: found 'wheel', expected one of package, module"),
    ("export soft_max", 2, "softmax"),
    ("export SEARCH --format pool --output mine.jsonl", 0, "mine.jsonl"),
    ("import mine.jsonl", 0, r"pl_\w+ +scale_shift .*replies"),
    ("import bad.yaml", 2, "format: found 'bad.yaml: an op spec', expected a problem of another project"),
    ("import examples/formats/kernelbench/2_linear_gelu_scale.py", 0, "next: warpsmith ops check"),
    ("import examples/formats/gpu-mode/vectoradd/task.yml --output v.json", 0, "vectoradd from gpu-mode .* in v.json"),
    ("ops validate v.json", 0, "vectoradd is valid"),
    ("search softmax --target cuda", 2, 'target: found "cuda", expected cpu, .*such as cuda:sm_90'),
    ("search softmax --model gpt-5", 2, "--model: found 'gpt-5', expected replay:FILE"),
    ("search softmax --model openai", 2, "WARPSMITH_OPENAI_API_KEY: found"),
    ("search softmax --model agent --detach --budget candidate=5", 2, "did you mean candidates"),
    ("search softmax --model agent --detach --name first --budget candidates=2", 0, r"sr_\w+\n"),
    ("tell ak_none bad.yaml", 1, "ask: found 'ak_none', expected the id of one that is stored, ak_"),
    ("pause SEARCH", 1, 'search SEARCH: found "finished", expected queued or running'),
    ("judge softmax missing.py", 2, "FILE.py: found 'missing.py', expected a file that can be read"),
    ("compare SEARCH SEARCH", 2, "expected each search once"),
    ("label SEARCH --name first --tag demo", 0, "first"),
    ("workers list", 0, r"judge@\S+ "),
]


def test_there_are_forty_at_least() -> None:
    assert len(STEPS) >= 40


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_each_says_what_a_newcomer_needs(tmp_path: Path) -> None:
    home, place = tmp_path / "home", tmp_path / "place"
    place.mkdir()
    (place / "examples").symlink_to(REPOSITORY / "examples")
    (place / "bad.yaml").write_text(BAD_SPEC)
    spec, pool = write_scenario(tmp_path / "scenario")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*words),
            cwd=place,
            env=environment(home),
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
            stdin=subprocess.DEVNULL,
        )

    with up(home):
        found = json.loads(run("search", str(spec), "--model", f"replay:{pool}", "--json").stdout)["search"]
        names = {"SEARCH": found["id"], "KERNEL": found["kernels"][0]}
        wrong = []
        for line, code, pattern in STEPS:
            typed, expected = (re.sub("SEARCH|KERNEL", lambda name: names[name[0]], text) for text in (line, pattern))
            done = run(*typed.split())
            said = done.stdout + done.stderr
            if done.returncode != code or not re.search(expected, said) or "Traceback" in said:
                wrong.append(f"$ warpsmith {typed}\n{said[-500:]}[{done.returncode}] expected [{code}] {expected}")
    assert not wrong, "\n\n".join(wrong)
