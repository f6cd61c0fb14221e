"""GPU MODE tasks as specs, given what the sandbox said of them; axes inferred from sizes."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.formats_support import answering, errors_of
from warpsmith.kernels_db.formats.gpu_mode.axes import Axes
from warpsmith.kernels_db.formats.op_import import ImportedOp, import_op
from warpsmith.kernels_db.formats.shared.files import RawFile, raw_files
from warpsmith.kernels_db.job.file_analysis import Analysis, AnalysisFailed
from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.op import Op, SpecErrors, load_op

TASK = """files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
description: |
  A product with a scale.
tests:
  - {"m": 3, "seed": 1}
benchmarks:
  - {"m": 5, "seed": 2}
  - {"m": 7, "seed": 3}
ranking_by: "geom"
"""
REFERENCE = """from task import input_t
from utils import make_match_reference


def ref_kernel(data):
    a, rest = data
    return a @ rest["w"] * rest["by"]


def generate_input(m, seed):
    ...


check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-5)
"""


def tensor(*shape: int, **values: Any) -> dict[str, Any]:
    """A contiguous tensor as the sandbox describes it."""
    strides, size = [], 1
    for length in reversed(shape):
        strides.insert(0, size)
        size *= length
    return {"shape": list(shape), "strides": strides, "dtype": "float32", **values}


NORMAL = {"kind": "normal", "mean": 0.0, "std": 1.0}


def workload(m: int) -> dict[str, Any]:
    """One call of the product."""
    inputs = [tensor(m, 4, dist=NORMAL), tensor(4, 2 * m), {"shape": None, "dtype": "int64", "value": m}]
    rest = {"w": {"leaf": 1}, "by": {"leaf": 2}, "mode": {"constant": "plain"}}
    return {
        "structure": {"tuple": [{"leaf": 0}, {"dict": rest}]},
        "result": {"leaf": 0},
        "inputs": inputs,
        "outputs": [tensor(m, 2 * m)],
        "written": [],
        "aliases": [None],
    }


ANSWER: dict[str, Any] = {"workloads": [workload(3), workload(5), workload(7)]}


def files_of_task(task: str = TASK, reference: str = REFERENCE, **others: bytes) -> list[RawFile]:
    """The files of a task."""
    files = {"a/task.yml": task.encode(), "a/reference.py": reference.encode(), "a/task.py": b"input_t = object\n"}
    files |= {"utils.py": b"def make_match_reference(*a, **k): ...\n"}
    files |= {f"a/{name}.py": data for name, data in others.items()}
    return [RawFile(path, data) for path, data in files.items()]


def made(answer: dict[str, Any] = ANSWER, task: str = TASK, reference: str = REFERENCE, **others: bytes) -> ImportedOp:
    """What comes of the task of which the sandbox says this."""
    return import_op(files_of_task(task, reference, **others), None, answering(answer))


def test_a_task_has_axes_from_its_arguments_and_workloads_from_its_lists() -> None:
    found = made()
    op = found.op
    assert (op.name, op.description, found.format) == ("a", "A product with a scale.", "gpu-mode")
    assert {name: axis.kind for name, axis in op.axes.items()} == {"m": "var", "rest_w_1": "var"}
    assert [(item.name, item.shape, item.dtype) for item in op.inputs] == [
        ("a", ("m", 4), "float32"),
        ("rest_w", (4, "rest_w_1"), "float32"),
        ("rest_by", None, "int64"),
    ]
    assert [(item.name, item.shape) for item in op.outputs] == [("out", ("m", "rest_w_1"))]
    assert op.outputs[0].tolerance is not None
    assert (op.outputs[0].tolerance.rtol, op.outputs[0].tolerance.atol) == (1e-3, 1e-5)
    assert [(item.id, item.role, dict(item.axes)) for item in op.workloads] == [
        ("test-0", "test", {"m": 3, "rest_w_1": 6}),
        ("benchmark-0", "bench", {"m": 5, "rest_w_1": 10}),
        ("benchmark-1", "bench", {"m": 7, "rest_w_1": 14}),
    ]
    assert [item.inputs["rest_by"].value for item in op.workloads[:2]] == [3, 5]
    assert op.inputs[2].value == 7
    assert op.origin is not None
    assert len(raw_files(op.origin)) == 4
    assert load_op(json.dumps(op.document())) == op


def test_the_spec_puts_the_data_together_and_calls_the_tasks_own_function() -> None:
    reference = made().op.reference
    data = "(a, {'w': rest_w, 'by': rest_by, 'mode': 'plain'})"
    assert f"def run(a, rest_w, rest_by):\n    found = _ref_kernel({data})\n    return found\n" in reference
    space: dict[str, Any] = {}
    exec(reference.replace('rest["w"] * rest["by"]', 'rest["w"]'), space)

    class Matrix(int):
        def __matmul__(self, other: int) -> int:
            return int(self) * other

    assert space["run"](Matrix(3), 4, 5) == 12


def test_values_that_were_not_seen_drawn_are_made_by_the_task_with_each_workloads_arguments() -> None:
    op = made().op
    assert op.inputs[0].dist is not None
    assert op.inputs[0].dist.kind == "normal"
    sources = [item.inputs["rest_w"].dist for item in op.workloads[:2]] + [op.inputs[1].dist]
    for m, dist in zip((3, 5, 7), sources, strict=True):
        assert dist is not None
        assert dist.kind == "code"
        assert f"generate_input(**{{'m': {m}, 'seed': seed}})[1]['w'].contiguous()" in dist.source


def test_memory_that_the_reference_fills_is_a_mutated_input_and_no_output() -> None:
    answer = copy.deepcopy(ANSWER)
    for item in answer["workloads"]:
        item |= {"written": [1], "aliases": [1], "outputs": [item["inputs"][1]]}
    op = made(answer).op
    assert [item.mutated for item in op.inputs] == [False, True, False]
    assert op.outputs == ()
    assert op.reference.endswith("    return None\n\n\n_RESULT = 'rest_w'\n")


@pytest.mark.parametrize(
    ("checker", "tolerance", "notes"),
    [
        ("check_implementation = make(ref_kernel, rtol=1e-3, atol=1e-5)", (1e-3, 1e-5), 0),
        ("def check_implementation(data, out):\n    return close(data, out)\n"
         "def close(a, b):\n    return near(a, b, rtol=1e-3, atol=1e-5)", (1e-3, 1e-5), 0),
        ("LOOSE = near(1, 1, rtol=1, atol=1)\ncheck_implementation = make(ref_kernel)", None, 0),
        ("def check_implementation(data, out):\n    return near(data, out, rtol=1e-3)", None, 0),
        ("def check_implementation(data, out):\n    if near(data, out, rtol=1e-3, atol=1e-5):\n"
         "        return near(data, out, rtol=1e-2, atol=1e-5)", None, 1),
        ("from utils import check_implementation", None, 0),
    ],
)  # fmt: skip
def test_the_tolerance_is_that_of_the_checker_alone(
    checker: str, tolerance: tuple[float, float] | None, notes: int
) -> None:
    body = "    near(data, data, rtol=0.5, atol=0.5)\n    a, rest"
    reference = REFERENCE.partition("check_implementation =")[0].replace("    a, rest", body, 1)
    found = made(ANSWER, TASK, reference + checker + "\n")
    given = found.op.outputs[0].tolerance
    assert (given and (given.rtol, given.atol)) == tolerance
    said = [
        note for note in found.notes if "several tolerances (rtol=0.001, atol=1e-05; rtol=0.01, atol=1e-05)" in note
    ]
    assert len(said) == notes


def test_a_transposed_input_has_strides_over_its_axes() -> None:
    answer = copy.deepcopy(ANSWER)
    for item in answer["workloads"]:
        item["inputs"][1]["strides"] = [1, 4]
    assert made(answer).op.inputs[1].strides == (1, "4")
    for item in answer["workloads"]:
        item["inputs"][1]["strides"] = [1, 9]
    with pytest.raises(SpecErrors, match=r"input rest_w: strides: .*expected a dense tensor"):
        made(answer)


def test_without_benchmarks_the_tests_are_timed() -> None:
    answer = {**ANSWER, "workloads": ANSWER["workloads"][:1]}
    op = made(answer, TASK.partition("benchmarks")[0]).op
    assert [(item.id, item.role) for item in op.workloads] == [("test-0", "bench")]
    assert op.axes == {}, "one size is no axis"


def test_inputs_that_the_task_may_draw_together_are_said_to_be_drawn_apart() -> None:
    assert not [note for note in made().notes if "independently" in note]
    answer = copy.deepcopy(ANSWER)
    for item in answer["workloads"]:
        item["inputs"][0]["dist"] = None
    said = "generate_input draws a, rest_w in one call; here each is drawn by its own, independently of the others"
    assert said in made(answer).notes


def test_data_that_the_reference_does_not_read_is_zeros() -> None:
    answer = copy.deepcopy(ANSWER)
    for call in answer["workloads"]:
        call["structure"]["tuple"].append({"leaf": 3})
        call["inputs"].append(tensor(4, dist=NORMAL))
    reference = REFERENCE.replace("a, rest = data", "a, rest, _ = data")
    found = made(answer, reference=reference)
    assert found.op.document()["inputs"][3]["dist"] == {"kind": "constant", "value": 0.0}
    assert any(note.startswith("ref_kernel does not read x: here they are zeros") for note in found.notes)
    for read in ("    a, rest, b = data\n    a = a + b", "    a, rest, _ = data\n    a = a + data[2]"):
        drawn = made(answer, reference=REFERENCE.replace("    a, rest = data", read)).op.inputs[3].dist
        assert drawn is not None
        assert drawn.kind == "normal"


def test_a_submission_beside_the_task_is_kept_and_said() -> None:
    found = made(mine=b"def custom_kernel(data): ...\n")
    assert "kept in origin, and not part of the op: a/mine.py" in found.notes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"source": "reference.py"',
            '"source": "absent.py"',
            "a/task.yml: files, reference.py: found 'no file absent.py'",
        ),
        ('  - {"name": "reference.py", "source": "reference.py"}\n', "", "expected reference.py among them"),
        ('{"name": "task.py", "source": "task.py"}', '{"name": "task.py"}', "a/task.yml: files[1]"),
        ("files:", "files: 3\nrest:", "a/task.yml: files: found 3"),
        ('{"m": 3, "seed": 1}', "3", "a/task.yml: tests"),
        ('{"m": 3, "seed": 1}', '{"m": {"by": 3}}', "a/task.yml: test-0"),
        ('{"m": 3, "seed": 1}', '{"m": [[3]]}', "arguments that are numbers, texts or lists of these"),
        ('  - {"m": 7, "seed": 3}\n', "", "found '3 workloads', expected 2"),
        ("ranking_by", "multi_gpu: true\nranking_by", "task.yml: multi_gpu: found 'true, a task for several devices"),
        ("ranking_by", "tests", "task.yml: document: found \"the key 'tests' twice"),
    ],
)
def test_a_bad_task_is_refused_by_its_field(old: str, new: str, message: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        made(ANSWER, TASK.replace(old, new, 1))
    assert message in "\n".join(errors_of(caught.value))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def ref_kernel", "def other", "reference.py: found 'no ref_kernel'"),
        ("def generate_input", "def other", "reference.py: found 'no generate_input'"),
        ("from task import", "from reference import", "a/reference.py: found 'it imports reference'"),
        ("    ...", "    (", "was never closed"),
        ("rtol=1e-3", f"rtol=1{'0' * 400}", "reference.py: rtol: found 'an integer of 1329 bits', expected a finite"),
        ("atol=1e-5", "atol=1e999", "reference.py: atol: found 'inf', expected a finite number"),
    ],
)
def test_a_bad_reference_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        made(ANSWER, TASK, REFERENCE.replace(old, new))
    assert message in "\n".join(errors_of(caught.value))


def test_workloads_unlike_most_are_left_out_with_a_note() -> None:
    for change in ({"dtype": "float64"}, {"shape": [5, 4, 1], "strides": [4, 1, 1]}):
        answer = copy.deepcopy(ANSWER)
        answer["workloads"][0]["inputs"][0] |= change
        found = made(answer)
        assert [item.id for item in found.op.workloads] == ["benchmark-0", "benchmark-1"]
        assert any(note.startswith("left out, for they differ") and note.endswith(": test-0") for note in found.notes)


@pytest.mark.parametrize("by", [{"constant": None}, {"tuple": [{"leaf": 2}]}])
def test_workloads_of_another_structure_than_most_are_left_out(by: dict[str, Any]) -> None:
    answer = copy.deepcopy(ANSWER)
    answer["workloads"][0]["structure"]["tuple"][1]["dict"]["by"] = by
    if "constant" in by:
        answer["workloads"][0]["inputs"].pop()
    found = made(answer)
    assert [item.id for item in found.op.workloads] == ["benchmark-0", "benchmark-1"]
    assert "'by': rest_by" in found.op.reference
    assert any("structure" in note and note.endswith(": test-0") for note in found.notes)


def test_a_workload_with_more_tensors_than_a_spec_has_is_left_out() -> None:
    answer = copy.deepcopy(ANSWER)
    many = {"structure": {"list": [{"leaf": n} for n in range(88)]}, "inputs": [tensor(4) for _ in range(88)]}
    for call in answer["workloads"][:2]:
        call.update(many)
    assert [item.id for item in made(answer).op.workloads] == ["benchmark-1"]
    answer["workloads"][2] |= many
    with pytest.raises(SpecErrors, match="found '88 inputs or outputs', expected a workload with at most 64"):
        made(answer)


def test_arguments_may_be_lists_which_generators_are_given() -> None:
    op = made(task=TASK.replace('"m": 5', '"m": [5, "a", 2.5]')).op
    dist = op.workloads[1].inputs["rest_w"].dist
    assert dist is not None
    assert dist.kind == "code"
    assert "generate_input(**{'m': [5, 'a', 2.5], 'seed': seed})" in dist.source


def test_a_file_that_the_reference_does_not_import_is_no_part_of_the_op() -> None:
    task = TASK.replace("files:\n", 'files:\n  - {"name": "bench.py", "source": "bench.py"}\n')
    op = made(task=task, bench=b"from reference import ref_kernel\nSLOW = 1\n").op
    assert "SLOW" not in op.reference
    assert op.origin is not None
    assert "a/bench.py" in [file.path for file in raw_files(op.origin)]
    assert "SLOW" not in made(task=task.replace('bench.py"}', 'absent.py"}')).op.reference


@pytest.mark.parametrize(
    ("helpers", "call"),
    [
        ("import importlib", "importlib.import_module('extra').four(m)"),
        ("import importlib.util", "importlib.import_module('extra').four(m)"),
        ("from importlib import import_module as load", "load('extra').four(m)"),
        ("", "__import__('extra').four(m)"),
    ],
)
def test_a_file_that_the_reference_imports_by_a_text_is_part_of_the_op(helpers: str, call: str) -> None:
    listed = "".join(f'  - {{"name": "{name}.py", "source": "{name}.py"}}\n' for name in ("extra", "absent", "bench"))
    reference = f"{helpers}\n" + REFERENCE.replace("    ...", f"    return {call}")
    others = {"extra": b"def four(m):\n    return 4 * m\n", "bench": b"from reference import ref_kernel\n"}
    op = made(task=TASK.replace("files:\n", f"files:\n{listed}"), reference=reference, **others).op
    for source in (op.reference, generator_of(op)):
        space: dict[str, Any] = {}
        exec(compile(source, "source", "exec"), space)
        assert space["_embedded"]("task_reference").generate_input(2, 0) == 8
        assert "bench" not in space["_FILES"]


def test_workloads_that_take_more_than_the_sandbox_gives_are_left_out_with_a_note() -> None:
    asked: list[bool] = []

    def analyse(request: dict[str, Any]) -> Analysis:
        asked.append(request["values"])
        if request["values"]:
            raise AnalysisFailed("memory", "uses 4117 MiB")
        return Analysis({**ANSWER, "workloads": [ANSWER["workloads"][0], None, None]}, "full")

    found = import_op(files_of_task(), None, analyse)
    assert asked == [True, False]
    assert [(item.id, item.role) for item in found.op.workloads] == [("test-0", "bench")]
    assert "left out, for they take more than the sandbox gives: benchmark-0, benchmark-1" in found.notes

    def nothing(request: dict[str, Any]) -> Analysis:
        if request["values"]:
            raise AnalysisFailed("timeout", "did not return")
        return Analysis({**ANSWER, "workloads": [None] * 3}, "full")

    with pytest.raises(SpecErrors, match="did not return"):
        import_op(files_of_task(), None, nothing)


def test_an_input_of_a_dtype_that_no_spec_has_is_one_of_its_bytes() -> None:
    answer = copy.deepcopy(ANSWER)
    for item in answer["workloads"]:
        item["inputs"][1] |= {"dtype": "uint8", "bytes_of": "float8_e4m3fnuz"}
    op = made(answer).op
    assert op.inputs[1].dtype == "uint8"
    assert "'w': rest_w.view(torch.float8_e4m3fnuz)" in op.reference
    assert op.inputs[1].dist is not None
    assert op.inputs[1].dist.kind == "code"
    assert "[1]['w'].view(torch.uint8).contiguous()" in op.inputs[1].dist.source


OBJECT: dict[str, Any] = {
    "class": "State",
    "attributes": {"w": {"leaf": 1}, "by": {"leaf": 2}},
    "parameters": [],
    "buffers": ["w"],
}


def with_object(**changes: Any) -> dict[str, Any]:
    answer = copy.deepcopy(ANSWER)
    for item in answer["workloads"]:
        item["structure"]["tuple"][1] = {"object": OBJECT | changes}
    return answer


def test_an_object_is_made_again_by_its_attributes() -> None:
    op = made(with_object()).op
    assert [item.name for item in op.inputs] == ["a", "rest_w", "rest_by"]
    made_again = "_object(_reference.State, {'w': rest_w, 'by': rest_by}, [], ['w'])"
    assert made_again in op.reference
    assert "_reference = _embedded('task_reference')" in op.reference
    assert op.inputs[1].dist is not None
    assert op.inputs[1].dist.kind == "code"
    assert "[1].w.contiguous()" in op.inputs[1].dist.source


@pytest.mark.parametrize(
    "change",
    [
        {"class": "State, print(1"},
        {"class": "class"},
        {"class": 3},
        {"attributes": {"w or print(1)": {"leaf": 1}, "by": {"leaf": 2}}},
        {"attributes": {"w": {"leaf": 1}}},
        {"attributes": []},
        {"buffers": ["other"]},
        {"parameters": "w"},
        {"more": 1},
    ],
)
def test_an_object_that_is_not_well_said_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SpecErrors):
        made(with_object(**change))


def with_smaller(**changes: Any) -> ImportedOp:
    """The import of a task with large data, where the sandbox finds this smaller call."""
    large = copy.deepcopy(ANSWER)
    for item in large["workloads"]:
        item["inputs"][0] = tensor(item["inputs"][0]["shape"][0], 1 << 25)

    def analyse(request: dict[str, Any]) -> Analysis:
        smaller = {"calls": [{"arguments": request.get("arguments"), "workload": workload(3)} | changes]}
        return Analysis(smaller if request["task"] == "smaller" else large, "full")

    return import_op(files_of_task(), None, analyse)


def test_an_op_of_large_data_comes_with_a_small_one() -> None:
    found = with_smaller(arguments={"m": 3, "seed": 1})
    assert found.sizes == {"m": 3}
    assert found.small is not None
    assert found.small.inputs[0].shape == (3, 4)
    assert [(item.id, item.role) for item in found.small.workloads] == [("small", "bench")]


@pytest.mark.parametrize("arguments", [{"m": 3}, {"m": 3, "seed": 1, "other": 1}, {"m": {"n": 1}, "seed": 1}, {}])
def test_a_smaller_call_with_other_arguments_is_none(arguments: dict[str, Any]) -> None:
    assert with_smaller(arguments=arguments).small is None


@pytest.mark.parametrize("change", [{"bytes_of": "uint8) or print(1"}, {"bytes_of": "float8_e5m2fnuz"}])
def test_bytes_of_another_name_or_dtype_are_refused(change: dict[str, Any]) -> None:
    answer = copy.deepcopy(ANSWER)
    answer["workloads"][0]["inputs"][1] |= change  # whose dtype is float32
    with pytest.raises(SpecErrors):
        made(answer)


def test_an_axis_of_one_may_stand_anywhere_in_an_inputs_order() -> None:
    answer = copy.deepcopy(ANSWER)
    for rows, item in zip((1, 5, 7), answer["workloads"], strict=True):
        item["inputs"][0] = tensor(rows, 4) | {"strides": [1, rows]}
    answer["workloads"][0]["inputs"][0]["strides"] = [1, 1]
    assert made(answer).op.inputs[0].strides is not None


def test_an_outputs_size_that_follows_from_nothing_is_refused() -> None:
    answer = copy.deepcopy(ANSWER)
    for item, size in zip(answer["workloads"], (11, 2, 9), strict=True):
        item["outputs"] = [tensor(size)]
    with pytest.raises(SpecErrors, match="out_0: found 'sizes 11, 2, 9', expected sizes that follow"):
        made(answer)


def test_a_task_that_its_tensors_would_repeat_too_often_is_refused_as_the_text_is_made() -> None:
    answer = copy.deepcopy(ANSWER)
    for item in answer["workloads"]:
        item["structure"] = {"tuple": [{"leaf": number} for number in range(64)]}
        item["inputs"] = [tensor(4) for _ in range(64)]
    table = random.Random(0).randbytes(10_000).hex()  # which does not pack
    with pytest.raises(SpecErrors, match=r"files: .*its sources repeat them for each tensor"):
        made(answer, TASK, REFERENCE.replace("    ...", f"    return '{table}'"))


def generator_of(op: Op) -> str:
    """The source of the op's second input."""
    dist = op.inputs[1].dist
    assert dist is not None
    assert dist.kind == "code"
    return dist.source


def test_generators_carry_what_generate_input_needs_packed_where_there_is_no_room_for_it() -> None:
    reference = REFERENCE.replace("    ...", "    return helped(m)")
    reference += "\n\ndef helped(m):\n    return TIMES * m\n\n\nTIMES = 4\nTEXT = '" + "x" * 58_000 + "'\n"
    plain = generator_of(made(reference=reference).op)
    assert "TIMES" in plain
    assert "ref_kernel" not in plain
    assert "make_match_reference" not in plain
    packed = generator_of(made(reference=reference.replace("return TIMES", "return len(TEXT) and TIMES")).op)
    assert "TIMES" not in packed
    for source in (plain, packed):
        space: dict[str, Any] = {}
        exec(compile(source, "source", "exec"), space)
        assert space["_embedded"]("task_reference").generate_input(2, 0) == 8


@pytest.mark.parametrize(
    ("helpers", "call"),
    [
        ("MADE = {}\ndef register(f):\n    MADE['f'] = f\n@register\ndef four(m):\n    return 4 * m", "MADE['f'](m)"),
        ("MADE = []\ndef four(m):\n    return 4 * m\nsaid = MADE.append(four)", "MADE[0](m)"),
        ("def four(m):\n    return 4 * m", "globals()['four'](m)"),
        ("def four(m):\n    return 4 * m", "eval('four')(m)"),
        ("import sys\ndef four(m):\n    return 4 * m", "getattr(sys.modules[__name__], 'four')(m)"),
        ("class Base:\n    def __init_subclass__(cls):\n        Base.by = cls.four\n"
         "class Four(Base):\n    def four(m):\n        return 4 * m", "Base.by(m)"),
        ("import utils\nclass Four(utils.Base):\n    def four(m):\n        return 4 * m", "utils.Base.by(m)"),
        ("Y = (z := 4)", "z * m"),
    ],
)  # fmt: skip
def test_generators_carry_definitions_that_are_reached_otherwise_than_by_name(helpers: str, call: str) -> None:
    reference = REFERENCE.replace("    ...", f"    return {call}") + f"\n\n{helpers}\n"
    utils = b"def make_match_reference(*a, **k): ...\n"
    utils += b"class Base:\n    def __init_subclass__(cls):\n        Base.by = cls.four\n"
    files = {file.path: file for file in [*files_of_task(TASK, reference), RawFile("utils.py", utils)]}
    op = import_op(list(files.values()), None, answering(ANSWER)).op
    space: dict[str, Any] = {}
    exec(compile(generator_of(op), "source", "exec"), space)
    assert space["_embedded"]("task_reference").generate_input(2, 0) == 8


@pytest.mark.parametrize(
    "helpers",
    ["import torch\nclass Four(torch.nn.Module):\n    ...", "from torch import nn\nclass Four(nn.Module):\n    ..."],
)
def test_generators_carry_no_module_of_torch_that_they_do_not_use(helpers: str) -> None:
    assert "Four" not in generator_of(made(reference=f"{REFERENCE}\n\n{helpers}\n").op)


def test_workloads_that_differ_in_their_seed_alone_share_a_source() -> None:
    task = TASK.replace('"m": 5', '"m": 3').replace('"m": 7', '"m": 3')
    op = made({**ANSWER, "workloads": [workload(3)] * 3}, task).op
    assert [dict(item.inputs) for item in op.workloads] == [{}, {}, {}]


def test_a_key_or_a_list_of_workloads_that_is_too_long_is_refused() -> None:
    answer = copy.deepcopy(ANSWER)
    answer["workloads"][0]["structure"]["tuple"][1]["dict"]["k" * 257] = {"constant": None}
    with pytest.raises(SpecErrors, match="a key of 257 characters, at most 256"):
        made(answer)
    with pytest.raises(SpecErrors, match="workloads List should have at most 64 items"):
        made({**ANSWER, "workloads": [workload(3)] * 65})


SIZES = st.lists(st.integers(1, 300), min_size=3, max_size=5)


def test_more_axes_than_a_task_has_are_refused() -> None:
    axes = Axes([{}, {}], "task")
    with pytest.raises(SpecErrors, match="task: x_128: found 'axis 129', expected at most 128 axes"):
        axes.shape("x", [[1] * 129, list(range(2, 131))])


def test_the_smallest_step_between_two_axes_is_taken() -> None:
    axes = Axes([{}, {}, {}], "task")
    axes.shape("x", [[90, 5, 8, 30], [80, 6, 9, 31], [95, 7, 10, 32]])
    (name,) = axes.shape("y", [[84], [73], [87]], derived=True)
    assert axes.declared()[str(name)] == {"kind": "expr", "expr": "x_0 - x_1 - 1"}


@given(SIZES, SIZES, st.sampled_from(["3 * a", "a + 7", "a * b", "a + b", "a - b + 400", "a", "b"]))
def test_an_inferred_expression_has_every_workloads_size(one: list[int], other: list[int], text: str) -> None:
    count = min(len(one), len(other))
    calls = [{"a": a, "b": b, "seed": 0} for a, b in zip(one[:count], other[:count], strict=True)]
    axes = Axes(calls, "task")
    axes.shape("x", [[call["a"], call["b"]] for call in calls])
    bound = [axes.sizes(number) for number in range(count)]
    assume(all("a" in sizes and "b" in sizes for sizes in bound))
    wanted = [expr.parse(text, "integer").integer(sizes) for sizes in bound]
    (dimension,) = axes.shape("y", [[size] for size in wanted], derived=True)
    for sizes, size in zip(bound, wanted, strict=True):
        if isinstance(dimension, int):
            assert dimension == size
        else:
            axis = axes.declared()[dimension]
            found = sizes[dimension] if axis["kind"] == "var" else expr.parse(axis["expr"], "integer").integer(sizes)
            assert found == size


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["leaf", "tuple", "dict"]), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(st.sampled_from(["structure", "result", "workloads", "inputs", "outputs", "written", "aliases"]), JSON)
def test_whatever_a_hostile_file_says_of_itself_is_read_or_refused(field: str, value: Any) -> None:
    answer = copy.deepcopy(ANSWER)
    if field in answer:
        answer[field] = value
    else:
        answer["workloads"][0][field] = value
    try:
        found = made(answer)
    except SpecErrors:
        return
    assert load_op(json.dumps(found.op.document())) == found.op


@given(st.text(alphabet="files:[]{}-&*!|>\"'\n ,0x", max_size=80))
def test_any_yaml_is_read_or_refused(text: str) -> None:
    with pytest.raises(SpecErrors):
        import_op([RawFile("task.yml", text.encode())], "gpu-mode", answering(ANSWER))
