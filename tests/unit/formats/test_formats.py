"""Recognising a format, keeping its files, and refusing what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.formats_support import DEFINITIONS, KERNELBENCH, MATMUL, TASKS, answering, errors_of, files_of
from warpsmith.kernels_db.formats.op_import import FORMATS, import_op, recognise, wanted
from warpsmith.kernels_db.formats.shared.embedded import embedding
from warpsmith.kernels_db.formats.shared.files import MOST_BYTES, MOST_FILES, RawFile, is_inside, origin_of, raw_files
from warpsmith.kernels_db.spec.names import identifier, unique
from warpsmith.kernels_db.spec.op import SpecErrors, load_op
from warpsmith.kernels_db.spec.schema import Origin

EXPECTED = dict.fromkeys(KERNELBENCH, "kernelbench") | dict.fromkeys(DEFINITIONS, "flashinfer-bench")
EXPECTED |= dict.fromkeys(TASKS, "gpu-mode")


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: "/".join(path.parts[-2:]))
def test_a_format_is_recognised_by_what_stands_in_the_files(path: Path) -> None:
    assert recognise(files_of(path)) == EXPECTED[path]


def test_there_are_five_files_of_each_format() -> None:
    assert [len(found) for found in (KERNELBENCH, DEFINITIONS, TASKS)] == [5, 5, 5]


@pytest.mark.parametrize("path", [KERNELBENCH[0], DEFINITIONS[0], TASKS[0]], ids=["kernelbench", "flashinfer", "gpu"])
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data + b"\n\n",
        lambda data: data.rstrip(b"\n"),
        lambda data: b"\xef\xbb\xbf" + data,
    ],
    ids=["crlf", "lines at the end", "no end", "byte order mark"],
)
def test_files_come_back_byte_for_byte_through_a_stored_spec(path: Path, change: Any) -> None:
    files = [RawFile(file.path, change(file.data)) for file in files_of(path)]
    origin = Origin.model_validate_json(json.dumps(origin_of("any", files)))
    assert raw_files(origin) == files


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_any_bytes_come_back(contents: list[bytes]) -> None:
    files = [RawFile(f"directory/{number}.bin", data) for number, data in enumerate(contents)]
    origin = Origin.model_validate_json(json.dumps(origin_of("any", files)))
    assert raw_files(origin) == files


@given(st.text(max_size=300))
def test_any_text_comes_back(text: str) -> None:
    files = [RawFile("a.txt", text.encode("utf-8", "surrogatepass"))]
    assert raw_files(Origin.model_validate(origin_of("any", files))) == files


def test_base64_that_is_none_is_refused() -> None:
    origin = Origin.model_validate({"format": "any", "files": [{"path": "a", "base64": "!"}]})
    with pytest.raises(SpecErrors, match=r"origin.files\[0\].base64: found '!'"):
        raw_files(origin)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../a", "a/../b", "a//b", "", "./a", "a\\b", "C:/a", "a\nb", "x" * 1025]
)
def test_a_path_outside_the_set_is_refused(path: str) -> None:
    with pytest.raises(SpecErrors, match=r"files\[0\].path"):
        recognise([RawFile(path, b"x")])
    with pytest.raises(SpecErrors, match="path"):
        raw_files(Origin.model_construct(format="any", files=(_kept(path),)))


def _kept(path: str) -> Any:
    from warpsmith.kernels_db.spec.schema import OriginFile  # noqa: PLC0415 - only here, to have what a hostile spec has

    return OriginFile.model_construct(path=path, text="x", base64=None)


@given(st.text(max_size=40))
def test_a_path_that_is_inside_stays_below_any_directory(path: str) -> None:
    if is_inside(path):
        assert (Path("/a/b") / path).resolve().is_relative_to("/a/b")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "files: found '0 files', expected 1 to 64 files"),
        ([RawFile(f"{n}.py", b"") for n in range(MOST_FILES + 1)], "expected 1 to 64 files"),
        ([RawFile("a.json", b" " * (MOST_BYTES + 1))], "expected at most 524288 bytes"),
        ([RawFile(f"{n}.py", b" " * 50_000) for n in range(3)], "at most 131072 bytes (128 KiB) of Python and YAML"),
        ([RawFile("a.py", b""), RawFile("a.py", b"")], "a path that no other file has"),
        ([RawFile("a.py", b"x = 1\n")], "a.py: of no known format"),
        ([RawFile("a.txt", b"Model get_inputs")], "of no known format"),
        ([RawFile("a.py", b"def f(:\n")], "a.py: found 'invalid syntax (line 1)'"),
        ([RawFile("a.py", b"\xff")], "byte 0xff at offset 0"),
        ([RawFile("a.py", b"(" * 60_000)], "a.py: found 'too many nested parentheses (line 1)'"),
        ([RawFile("a.py", b"-" * 60_000 + b"1")], "a.py: found 'nested too deeply (line 1)'"),
        ([RawFile("a.py", b" " * 100_000)], "at most 65536 characters of Python"),
        ([RawFile("a.jsonl", b"{}\n" * 10_001)], "at most 10000 lines"),
        ([RawFile("a.json", b"{" * 10)], "a.json: document"),
        ([RawFile("a.json", b'{"a":' * 40 + b"1" + b"}" * 40)], "32 levels of nesting"),
        ([RawFile("a.json", b"[1]")], "expected a JSON object"),
        ([RawFile("task.yml", b"a: &x [1]\nb: *x\n")], "YAML without aliases"),
        ([RawFile("task.yml", b"files: !!python/object:os.system []\n")], "YAML without tags"),
        ([RawFile("task.yml", b"[" * 60 + b"]" * 60)], "levels of nesting"),
        ([RawFile("task.yml", b"- 1\n")], "task.yml: found 'a list'"),
    ],
)
def test_what_is_no_import_is_refused(files: list[RawFile], message: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        recognise(files)
    assert message in "\n".join(errors_of(caught.value))


def test_files_of_two_formats_are_refused_with_what_was_found_in_each() -> None:
    both = b"class Model: ...\ndef get_inputs(): ...\ndef generate_input(): ...\ndef ref_kernel(data): ...\n"
    with pytest.raises(SpecErrors) as caught:
        recognise([RawFile("both.py", both)])
    (message,) = errors_of(caught.value)
    assert "kernelbench: both.py has Model and get_inputs" in message
    assert "gpu-mode: both.py has generate_input and ref_kernel" in message
    with pytest.raises(SpecErrors, match=r"kernelbench.*flashinfer-bench"):
        recognise([*files_of(KERNELBENCH[0]), *files_of(DEFINITIONS[0])])


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(
        SpecErrors, match="format: found 'onnx', expected one of kernelbench, flashinfer-bench, gpu-mode"
    ):
        import_op([RawFile("a.py", b"x = 1")], "onnx", None)


def test_files_that_are_named_and_not_there_are_wanted() -> None:
    task = next(file for file in files_of(TASKS[0]) if file.path.endswith("task.yml"))
    directory = task.path.rpartition("/")[0]
    assert wanted([task], None) == [f"{directory}/task.py", "utils.py", f"{directory}/reference.py"]
    definition = next(path for path in DEFINITIONS if "gather" in path.parts)
    first, *rest = files_of(definition)
    assert "workloads/gather/paged_mean_d64.jsonl" in wanted([first], None)
    assert "blob/workloads/gather/pages.safetensors" in wanted([first, rest[0]], None)


@given(st.binary(max_size=200), st.sampled_from(["a.py", "a.json", "a.jsonl", "task.yml", "a.safetensors"]))
def test_any_bytes_are_read_or_refused(data: bytes, path: str) -> None:
    """No reader raises anything but SpecErrors, whatever it is given."""
    for name, known in FORMATS.items():
        known.claim(RawFile(path, data))
        with pytest.raises(SpecErrors):
            import_op([RawFile(path, data)], name, answering(MATMUL))


@given(st.text(max_size=200))
def test_names_are_names_of_the_spec(text: str) -> None:
    name = identifier(text, "op")
    document = {
        "schema_version": 1,
        "name": name,
        "inputs": [{"name": name, "shape": [1], "dtype": "float32"}],
        "outputs": [{"name": "result" if name != "result" else "other", "shape": [1], "dtype": "float32"}],
        "reference": f"def run({name}):\n    return {name}\n",
        "workloads": [{"id": "w", "role": "bench"}],
    }
    assert load_op(json.dumps(document)).name == name


def test_a_name_that_is_taken_gets_a_number() -> None:
    assert unique(["x", "x", "x_2", "x"]) == ["x", "x_2", "x_2_2", "x_3"]


def test_a_name_that_many_have_is_numbered_without_counting_anew() -> None:
    """Each from 1 would be five thousand million steps, and the suite's time is limited."""
    found = unique(["x", "x_3"] + ["x"] * 100_000)
    assert found[:4] == ["x", "x_3", "x_2", "x_4"]
    assert len(set(found)) == 100_002


@given(st.lists(st.sampled_from(["x", "x_2", "x_2_2", "y", "z" * 128, "z" * 127, "z" * 123 + "_2"])))
def test_names_are_given_out_once_each(names: list[str]) -> None:
    found = unique(names)
    assert len(set(found)) == len(names)
    assert all(len(name) <= 128 for name in found)
    for number, (chosen, name) in enumerate(zip(found, names, strict=True)):
        assert (chosen == name) == (name not in found[:number])


@given(st.dictionaries(st.sampled_from(["one_file", "other_file"]), st.text(max_size=60), min_size=1))
def test_embedded_files_have_their_text(texts: dict[str, str]) -> None:
    space: dict[str, Any] = {}
    source = embedding(texts).partition("\n\n\nclass")[0]
    exec(source, space)
    assert space["_FILES"] == texts
