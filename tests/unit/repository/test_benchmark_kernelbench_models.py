"""`benchmarks.kernelbench_models`: a problem's row, what is said of one that fails, and the count."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="problems are torch's, which is not installed")

from benchmarks import kernelbench_models, published
from benchmarks.kernelbench_models import Plan, Row, measure, measure_apart, read, table
from benchmarks.rows import write

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.layer(x))

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return [8]
"""


def test_a_problem_that_does_not_load_says_in_which_step(tmp_path: Path) -> None:
    file = tmp_path / "1_Broken.py"
    file.write_text("import torch\n\ndef get_init_inputs():\n    return []\n")
    (row,) = measure_apart([file], Plan(seconds=0.1), 300)
    error = row.error
    assert error.startswith("load: AttributeError: module 'problem_1_Broken' has no")


@pytest.mark.nightly
def test_problems_are_compiled_and_compared_together_and_timed(tmp_path: Path) -> None:
    """One that prints is ready no sooner."""
    files = [tmp_path / name for name in ("2_Linear.py", "3_Loud.py")]
    for file, more in zip(files, ("", "print('ready or not')"), strict=True):
        file.write_text(PROBLEM + more)
    for row in measure_apart(files, Plan(seconds=0.2), 300):
        assert (row.error, row.graphs, row.masks, row.kernels, row.agrees) == ("", 1, (0, 0), (0, 0), True)
        assert row.compile_ms is not None
        assert row.compile_ms > 0


def test_a_problem_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "3_Endless.py"
    file.write_text("while True: pass")
    (row,) = measure_apart([file], Plan(seconds=0.1), 1)
    assert row == Row("3_Endless", "no answer in 1 s")


def test_what_ran_is_counted() -> None:
    good = Row("a", "", 1, (1, 2), (0, 3), True, 2.0, 1.0, 2.0, (1.9, 2.1))
    wrong = Row("b", "", 3, (0, 0), (0, 0), False, 1.0, 2.0, 0.5, (0.4, 0.6), {"compile": {"agrees": True}})
    other = replace(wrong, problem="d", disagreement={"compile": {"agrees": False}})
    rows = [good, wrong, Row("c", "load: KeyError: x"), other]
    lines = table(rows).splitlines()
    assert " ".join(lines[1].split()) == "a 1 1 of 2 0 of 3 yes 2.000 1.000 2.000x 1.900 to 2.100"
    assert " NO " in lines[2]
    assert " as compile " in lines[3]
    assert "load: KeyError: x" in lines[4]
    assert lines[-1] == (
        "4 problems: 3 load, run and compile, 1 as a whole; "
        "1 agree, 1 no less than torch.compile's; 1 surely gain, 2 surely lose"
    )


@pytest.mark.nightly
def test_results_that_compiling_alone_changes_are_not_warpsmiths(tmp_path: Path) -> None:
    file = tmp_path / "4_Told.py"
    file.write_text(PROBLEM.replace("torch.relu(", "torch.compiler.is_compiling() + torch.relu("))
    (row,) = measure_apart([file], Plan(seconds=0.2), 300)
    assert (row.error, row.agrees, row.outcome) == ("", False, "as compile")
    assert row.disagreement is not None
    assert row.disagreement["warpsmith"] == row.disagreement["compile"]


def test_rows_are_kept_as_they_are_had_and_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that is cut leaves its rows; of a problem that the end of the time cut there is none."""
    for name in ("1_a", "2_b", "3_c"):
        (tmp_path / f"{name}.py").write_text("")
    file, asked = tmp_path / "rows.json", []
    write(file, [Row("1_a", "", 1, (1, 2), (0, 3), True, 2.0, 1.0, 2.0, (1.9, 2.1))])

    def measured(problems: Sequence[Path], _plan: Plan, limit_s: float) -> Iterator[Row]:
        asked.append([each.stem for each in problems])
        for each in problems:
            yield Row(each.stem, "load: KeyError: x" if each.stem == "2_b" else f"no answer in {limit_s:.0f} s")

    monkeypatch.setattr(kernelbench_models, "measure_apart", measured)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(
        sys, "argv", ["", str(tmp_path), "--json", str(file), "--resume", "--within", "60", "--together", "2"]
    )
    assert kernelbench_models.main() == 0
    assert asked == [["2_b", "3_c"]]
    assert [row.problem for row in read(file)] == ["1_a", "2_b"]
    said = capsys.readouterr()
    assert "2 problems: 1 load, run and compile" in said.out
    assert said.err.splitlines() == ["2_b  load: KeyError: x", "3_c: no row, the time is over"]
    assert read(tmp_path / "none.json") == []
    file.write_text('[{"problem": ')
    with pytest.raises(SystemExit):
        kernelbench_models.main()
    assert "rows.json: found JSONDecodeError: " in capsys.readouterr().err


FULL = "run: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def test_a_problem_without_memory_beside_others_runs_alone_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it finds alone is its row, too little memory as well."""
    for name in ("1_a", "2_b", "3_c"):
        (tmp_path / f"{name}.py").write_text("")
    file, asked = tmp_path / "rows.json", []

    def measured(problems: Sequence[Path], _plan: Plan, _limit_s: float) -> Iterator[Row]:
        asked.append([each.stem for each in problems])
        for each in problems:
            yield Row(each.stem, FULL if each.stem != "3_c" else "load: KeyError: x")

    monkeypatch.setattr(kernelbench_models, "measure_apart", measured)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path), "--json", str(file), "--together", "2"])
    assert kernelbench_models.main() == 0
    assert asked == [["1_a", "2_b"], ["3_c"], ["1_a"], ["2_b"]]
    assert [(row.problem, row.error) for row in read(file)] == [
        ("3_c", "load: KeyError: x"),
        ("1_a", FULL),
        ("2_b", FULL),
    ]
    assert "1_a: too little memory beside others, it runs alone" in capsys.readouterr().err


def test_a_plan_is_what_its_process_reads(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plan, given = Plan("reduce-overhead", 0.5, True, "bfloat16"), []

    def measured(file: Path, plan: Plan, _turn: object) -> Row:
        given.append(plan)
        return Row(file.stem, "load: KeyError: x")

    monkeypatch.setattr(kernelbench_models, "measure", measured)
    monkeypatch.setattr(sys, "argv", ["", "--one", "1_a.py", *plan.words()])
    assert kernelbench_models.main() == 0
    assert given == [plan]
    assert '"problem": "1_a"' in capsys.readouterr().out


HUB = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM

config = AutoConfig.from_pretrained("NAME")

class Model(torch.nn.Module):
    def __init__(self, name, config):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name, config=config)

    def forward(self, x):
        raise NotImplementedError(f"{self.model.config.model_type}, {self.model.dtype}, {x.dtype}")

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    config.update({"num_hidden_layers": 1, "hidden_size": 8, "ffn_dim": 8, "num_attention_heads": 1})
    config.update({"word_embed_proj_dim": 8, "vocab_size": 16})
    return ["NAME", config]
"""


def test_a_model_of_a_hub_has_published_sizes_and_a_dtype(tmp_path: Path) -> None:
    """Without a network; its name alone decides, and one that is not known is told."""
    pytest.importorskip("transformers", reason="models of a hub are those of transformers, which is not installed")
    file = tmp_path / "2_opt.py"
    file.write_text(HUB.replace("NAME", "facebook/opt-1.3b"))
    row = measure(file, Plan(at_random=True, dtype="bfloat16"))
    assert row.error == "run: NotImplementedError: opt, torch.bfloat16, torch.bfloat16"
    file.write_text(HUB.replace("NAME", "nobody/nothing"))
    row = measure(file, Plan(at_random=True))
    assert row.error.startswith("load: KeyError: \"from_pretrained: found 'nobody/nothing', expected one of gpt2, ")


def test_every_published_config_is_one_of_transformers() -> None:
    """A field that its class does not know would be kept and change nothing."""
    transformers = pytest.importorskip("transformers", reason="configurations are those of transformers")
    for name, fields in published.CONFIGS.items():
        known = transformers.AutoConfig.for_model(fields["model_type"])
        assert [field for field in fields if not hasattr(known, field)] == [], name
