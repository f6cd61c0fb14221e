"""Documents of recorded calls: written and read alike, merged over processes, refused by place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from warpsmith.workers.recording.calls import (
    BadCalls,
    Call,
    Calls,
    TensorOf,
    file_of_process,
    files_of,
    read_calls,
    write_calls,
)

X = TensorOf((4, 64), "bfloat16", "cuda")
TURNED = TensorOf((64, 4), "bfloat16", "cuda", (1, 64))
NORM = Call("module", "vllm.RMSNorm", (X,), (("residual", X),), (("weight", TensorOf((64,), "bfloat16", "cuda")),))
SILU = Call("function", "torch.nn.functional.silu", (TURNED, "bool"))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    calls = Calls({NORM: 3, SILU: 7}, {"big": 2}, {"a note": 1})
    write_calls(calls, tmp_path / "deep" / "calls.json")
    found = read_calls([tmp_path / "deep" / "calls.json"])
    assert (found.counts, found.dropped, found.notes) == (calls.counts, calls.dropped, calls.notes)
    assert list(found.by_name().items()) == [(SILU.name, 7), (NORM.name, 3)]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["calls.json"], "no file is left beside it"


def test_files_of_processes_are_merged(tmp_path: Path) -> None:
    base = tmp_path / "calls.json"
    first, second = file_of_process(base), file_of_process(base)
    assert first != second, "two processes of one number on two machines must not meet"
    write_calls(Calls({NORM: 3}), first)
    write_calls(Calls({NORM: 4, SILU: 1}), second)
    write_calls(Calls({SILU: 100}), tmp_path / "calls-other.json")  # is none of a process
    assert files_of(base) == sorted((first, second))
    assert read_calls([base]).counts == {NORM: 7, SILU: 1}
    assert read_calls([first, base]).counts == {NORM: 7, SILU: 1}, "a file that is named twice counts once"


def broken(place: str, value: Any) -> dict[str, Any]:
    document: Any = Calls({NORM: 3}).document()
    holder = document
    *way, last = place.split(".")
    for step in way:
        holder = holder[int(step) if step.isdigit() else step]
    holder[last] = value
    return document  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("warpsmith_calls", 2, "warpsmith_calls: found 2, expected 1"),
        ("calls", {}, "calls: found {}, expected a list"),
        ("calls.0.count", -1, "calls[0].count: found -1, expected an integer of at least 0"),
        ("calls.0.name", 3, "calls[0].name: found 3, expected a text"),
        ("calls.0.arguments.0.shape", [1, "n"], "calls[0].arguments[0].shape[1]: found 'n', expected an integer"),
        ("calls.0.keywords.residual.dtype", None, "calls[0].keywords.residual.dtype: found None, expected a text"),
    ],
)
def test_another_document_is_refused_by_its_place(place: str, value: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "calls.json").write_text(json.dumps(broken(place, value)))
    with pytest.raises(BadCalls) as caught:
        read_calls([tmp_path / "calls.json"])
    assert message in str(caught.value)


def test_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadCalls, match="calls-HOST-PID-"):
        read_calls([tmp_path / "calls.json"])
    (tmp_path / "calls.json").write_text("{")
    with pytest.raises(BadCalls, match="not JSON"):
        read_calls([tmp_path / "calls.json"])
