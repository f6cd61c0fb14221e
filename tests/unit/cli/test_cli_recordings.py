"""`warpsmith workloads` and `warpsmith calls`: a new spec of recorded calls, what is left out and why, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from warpsmith.kernels_db.spec.op import load_op
from warpsmith.service.cli import run
from warpsmith.workers.recording.calls import Call, Calls, TensorOf, write_calls

RMS = "torch.nn.functional.rms_norm"


def norm(tokens: int, dtype: str = "bfloat16", device: str = "cuda") -> Call:
    x, weight = TensorOf((tokens, 64), dtype, device), TensorOf((64,), dtype, device)
    return Call("function", RMS, (x, "tuple", weight, "float"))


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    counts = {norm(1): 90, norm(8): 9, norm(4096): 1, norm(2, "float32"): 3}
    write_calls(Calls(counts, {"m.Linear": 5}, {"not recorded: a call": 2}), tmp_path / "calls.json")
    return tmp_path / "calls.json"


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    def run_it(*arguments: object) -> tuple[int, str, str]:
        code = run([str(each) for each in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_it


def test_a_recording_becomes_weighted_workloads(said: Any, recorded: Path, examples: Path, tmp_path: Path) -> None:
    output = tmp_path / "new.yaml"
    code, out, err = said("workloads", examples / "rms_norm.yaml", recorded, "--most", 2, "--output", output)
    assert code == 0, err
    assert out == f"{output}: rms_norm with 2 recorded workloads\n"
    bench = [one for one in load_op(output).workloads if one.role == "bench"]
    assert [(one.id, one.weight) for one in bench] == [("tokens1-hidden64", 90), ("tokens8-hidden64", 9)]
    for line in (
        f"read {recorded}",
        "100 calls of 3 shapes",
        "left out: 1 shapes, 1.0% of the calls (--most)",
        f"not of this op: 3 calls of {RMS}: inputs.x.dtype: found float32, expected bfloat16",
        "the recording has no shapes of 5 calls: there were too many kinds",
        "note of the recording: not recorded: a call, 2 times",
    ):
        assert line in err
    code, out, _ = said("ops", "validate", output, "--target", "cuda:sm_90", "--json")
    assert json.loads(out)["workloads"][0]["weight"] == 90


def test_the_spec_goes_to_standard_output_without_a_file(said: Any, recorded: Path, examples: Path) -> None:
    code, out, _ = said("workloads", examples / "rms_norm.yaml", recorded, "--target", "cpu")
    assert code == 0
    assert [one.weight for one in load_op(out).workloads_by_device()["cpu"] if one.role == "bench"] == [90, 9, 1]
    code, out, _ = said("workloads", examples / "rms_norm.yaml", recorded, "--json")
    document = json.loads(out)
    assert (document["calls"], document["left_out"], len(document["refused"])) == (100, 0, 1)


def test_a_spec_without_calls_names_what_was_recorded(said: Any, recorded: Path, examples: Path) -> None:
    spec = examples / "rms_norm.yaml"
    bare = recorded.with_name("bare.yaml")
    bare.write_text("".join(line for line in spec.read_text().splitlines(True) if not line.startswith("calls:")))
    code, _, err = said("workloads", bare, recorded)
    assert code == 2
    assert f"calls: found None, expected names in the spec's `calls`, or --call; recorded are {RMS}" in err
    code, out, _ = said("workloads", bare, recorded, "--call", "rms_norm", "--json")
    assert json.loads(out)["calls"] == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("softmax.yaml", "calls.json"), f"expected one of those recorded: {RMS}"),
        (("rms_norm.yaml", "calls.json", "--target", "tpu"), "--target: found 'tpu', expected one of cpu, cuda"),
        (("rms_norm.yaml", "nothing.json"), "a file of recorded calls"),
    ],
)
def test_misuse_is_told(arguments: tuple[str, ...], message: str, said: Any, recorded: Path, examples: Path) -> None:
    spec, file, *options = arguments
    code, _, err = said("workloads", examples / spec, recorded.with_name(file), *options)
    assert code == 2
    assert message in err


def test_calls_that_are_none_of_the_op_say_why(said: Any, recorded: Path, examples: Path) -> None:
    write_calls(Calls({norm(2, "float32"): 3}), recorded)
    code, _, err = said("workloads", examples / "rms_norm.yaml", recorded)
    assert code == 2
    assert "found '3 calls that are none of rms_norm" in err
    assert "inputs.x.dtype: found float32, expected bfloat16" in err


def test_calls_are_listed(said: Any, recorded: Path) -> None:
    code, out, err = said("calls", recorded)
    assert code == 0, err
    assert out.splitlines()[1].split() == ["103", "4", RMS]
    assert json.loads(said("calls", recorded, "--json")[1])["warpsmith_calls"] == 1
