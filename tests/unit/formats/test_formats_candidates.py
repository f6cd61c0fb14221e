"""Kernels of other formats as candidates: pure rewriting, what it refuses, and what the rewritten files do."""

from __future__ import annotations

import ast
import contextlib
import copy
import json
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.formats_support import DEFINITIONS, EXAMPLES, TASKS, answering, errors_of, files_of
from tests.unit.formats.test_formats_gpu_mode import ANSWER, REFERENCE, TASK
from warpsmith.kernels_db.formats import kernel_import
from warpsmith.kernels_db.formats.op_import import import_op
from warpsmith.kernels_db.formats.shared.files import RawFile
from warpsmith.kernels_db.formats.shared.packed import packed
from warpsmith.kernels_db.job.module_imports import loaded_imports
from warpsmith.kernels_db.spec.op import Op, SpecErrors

SOLUTIONS = sorted((EXAMPLES / "flashinfer-bench" / "solutions").glob("*/*.json"))
PROBLEM = """import torch

class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = torch.nn.Linear(n, n)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.rand(2, 4)]


def get_init_inputs():
    return [4]
"""
FACTS: dict[str, Any] = {
    "init": [4],
    "inputs": [{"shape": [2, 4], "strides": [4, 1], "dtype": "float32", "dist": None}],
    "state": [
        {"attribute": "linear.weight", "shape": [4, 4], "dtype": "float32", "dist": None},
        {"attribute": "linear.bias", "shape": [4], "dtype": "float32", "dist": None},
    ],
    "outputs": [{"shape": [2, 4], "strides": [4, 1], "dtype": "float32"}],
    "written": {"inputs": [], "state": []},
}
MODEL_NEW = PROBLEM.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
SUBMISSION = """from task import input_t


def custom_kernel(data: input_t):
    a, rest = data
    return a @ rest["w"] * rest["by"]
"""


def problem(text: str = PROBLEM, **facts: Any) -> Op:
    return import_op([RawFile("problem.py", text.encode())], None, answering(FACTS | facts)).op


def task(result: Any = None, aliases: tuple[int | None, ...] = (None,)) -> Op:
    """The task whose calls return this structure of leaves; an alias is an input that is written and returned."""
    files = {"t/task.yml": TASK, "t/task.py": "input_t = tuple\n", "utils.py": "", "t/reference.py": REFERENCE}
    raw = [RawFile(path, text.encode()) for path, text in files.items()]
    answer = copy.deepcopy(ANSWER)
    for call in answer["workloads"]:
        call.update({"result": result} if result else {})
        outputs = [call["outputs"][0] if alias is None else call["inputs"][alias] for alias in aliases]
        written = [alias for alias in aliases if alias is not None]
        call |= {"outputs": outputs, "aliases": list(aliases), "written": written}
    return import_op(raw, None, answering(answer)).op


def definition(name: str) -> Op:
    path = next(path for path in DEFINITIONS if path.stem == name)
    return import_op(files_of(path), None, None).op


def solution(op: str = "rmsnorm_h1024", **parts: Any) -> RawFile:
    """A Solution for an example, other than it in these parts."""
    named = json.loads(next(path for path in SOLUTIONS if op in path.read_text()).read_text())
    spec = named["spec"] | parts.pop("spec", {})
    return RawFile("solution.json", json.dumps(named | {"spec": spec} | parts).encode())


def refused(file: RawFile, op: Op, format_name: str | None = None) -> str:
    with pytest.raises(SpecErrors) as caught:
        kernel_import.adapt(file, op, format_name)
    (message,) = errors_of(caught.value)
    return message


def parameters(source: str) -> list[str]:
    """What `run` of a candidate takes."""
    run = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == "run")
    return [item.arg for item in run.args.args]


def test_a_candidate_takes_inputs_then_state_then_outputs() -> None:
    found = kernel_import.adapt(RawFile("new.py", MODEL_NEW.encode()), problem())
    assert (found.format, parameters(found.source)) == ("kernelbench", ["x", "linear_weight", "linear_bias", "out"])
    assert "('linear.weight', (4, 4), 'float32')" in found.source
    assert "ModelNew(*[4])" in found.source
    found = kernel_import.adapt(RawFile("submission.py", SUBMISSION.encode()), task())
    assert (found.format, len(parameters(found.source))) == ("gpu-mode", 4)
    assert "'task.py'" in found.source
    for path in SOLUTIONS:
        op = definition(json.loads(path.read_text())["definition"])
        found = kernel_import.adapt(RawFile(path.name, path.read_bytes()), op)
        assert parameters(found.source) == [item.name for item in op.inputs] + [item.name for item in op.outputs]


def test_arguments_that_no_json_carries_come_from_the_problem() -> None:
    found = kernel_import.adapt(RawFile("new.py", MODEL_NEW.encode()), problem(init=None))
    assert 'ModelNew(*_module("problem").get_init_inputs())' in found.source


def test_a_module_is_given_the_constants_of_its_problem_at_their_places() -> None:
    text = PROBLEM.replace("forward(self, x)", "forward(self, times, x, name)").replace(
        "[torch.rand(2, 4)]", "[(2, 3), torch.rand(2, 4), None]"
    )
    constants = [{"position": 0, "source": "(2, 3)"}, {"position": 2, "source": "None"}]
    op = problem(text, constants=constants)
    found = kernel_import.adapt(RawFile("new.py", MODEL_NEW.encode()), op)
    assert parameters(found.source) == ["x", "linear_weight", "linear_bias", "out"]
    assert "_call(((2, 3), x, None), (linear_weight, linear_bias), (out,))" in found.source


def test_what_the_files_import_stands_at_the_top() -> None:
    files = {
        "main.py": "import numpy as np\nfrom pack.part import f\nfrom .near import g\n\ndef run():\n    import lazy\n"
        "import vendored, under\n",
        "third/vendored.py": "",
        "third/under/x.py": "",
        "pack/part.py": "try:\n    import maybe\nexcept ImportError:\n    maybe = None\nimport cupy.cuda\n",
        "near.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import stubs\n",
        "unused.py": "import matplotlib\n",
        "kernel.cu": "not Python",
    }
    tree = ast.parse(packed("title", files, "main.py"))
    assert {item.top for item in loaded_imports(tree)} == {"importlib", "os", "sys", "numpy", "cupy", "typing"}
    assert "    import cupy  # as pack/part.py, line 5, does" in packed("title", files, "main.py")


ORDERED = """import os

os.environ["ASKED_BEFORE"] = "1"
import outside

if os.environ.get("NEVER"):
    import colorama_of_windows
try:
    import absent
except ImportError:
    absent = None
"""


def test_the_files_imports_are_made_by_the_files_in_their_order(tmp_path: Path) -> None:
    """And a title that says "encoding:" is no declaration of one."""
    (tmp_path / "outside.py").write_text("import os\n\nSEEN = os.environ.get('ASKED_BEFORE')\n")
    source = packed("fp8 encoding: e4m3", {"main.py": ORDERED}, "main.py")
    assert {item.top for item in loaded_imports(ast.parse(source))} == {"importlib", "os", "sys", "outside"}
    (tmp_path / "candidate.py").write_text(f"{source}\nprint(_module('main').outside.SEEN)\n")
    ended = subprocess.run([sys.executable, tmp_path / "candidate.py"], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("1\n", "")


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=60)


@given(
    st.dictionaries(st.sampled_from(["a.py", "b.txt", "d/c.py", "d/e.cu"]), TEXTS, max_size=3),
    st.text(max_size=40) | st.sampled_from(["coding: e4m3", "fp8 encoding=latin-1"]),
)
def test_whatever_the_files_hold_the_candidate_is_python_that_carries_them(files: dict[str, str], title: str) -> None:
    """Texts that are no Python are refused; all others come back as they are."""
    try:
        source = packed(title, {**files, "main.py": "x = 1\n"}, "main.py")
    except SpecErrors:
        pytest.fail("only files that the entry reaches are read")
    raw = source.encode()
    assert tokenize.detect_encoding(BytesIO(raw).readline)[0] == "utf-8"
    assigned = next(node for node in ast.parse(raw).body if isinstance(node, ast.Assign))
    assert ast.literal_eval(assigned.value) == {**files, "main.py": "x = 1\n"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXTS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["path", "content", "entry_point", "x"]), inner, max_size=3)
        ),
        max_leaves=6,
    )
)
def test_whatever_a_solution_holds_it_is_adapted_or_refused(value: Any) -> None:
    op = definition("rmsnorm_h1024")
    for field in ("sources", "spec", "definition", "name"):
        file = RawFile("solution.json", json.dumps(json.loads(solution().data) | {field: value}).encode())
        with contextlib.suppress(SpecErrors):
            ast.parse(kernel_import.adapt(file, op).source)


def test_a_solutions_faults_are_named() -> None:
    op = definition("rmsnorm_h1024")
    says = {
        "spec.entry_point: found 'other.py::run'": {"spec": {"entry_point": "other.py::run"}},
        "spec.entry_point: found 'main.py::go', expected a function that main.py defines, which has run": {
            "spec": {"entry_point": "main.py::go"}
        },
        "spec.entry_point: found 'kernel.cu::go', expected FILE.py::FUNCTION": {
            "spec": {"entry_point": "kernel.cu::go"}
        },
        "spec.destination_passing_style: found 'yes'": {"spec": {"destination_passing_style": "yes"}},
        "found 'run(hidden_states, weight, output)', expected run(hidden_states, weight)": {
            "spec": {"destination_passing_style": False}
        },
        "definition: found 'another'": {"definition": "another"},
        "sources[0].path: found '../main.py'": {"sources": [{"path": "../main.py", "content": ""}]},
        "sources: found '[]'": {"sources": []},
        "main.py: found 'invalid syntax (line 1)'": {"sources": [{"path": "main.py", "content": "def (run"}]},
    }
    for expected, parts in says.items():
        assert expected in refused(solution(**copy.deepcopy(parts)), op)


def test_parameters_in_another_order_are_passed_by_name() -> None:
    source = "def run(*, output, weight, hidden_states):\n    pass\n"
    found = kernel_import.adapt(solution(sources=[{"path": "main.py", "content": source}]), definition("rmsnorm_h1024"))
    assert "_entry(**dict(zip(('hidden_states', 'weight', 'output'), (*inputs, *outputs))))" in found.source


def test_what_is_no_candidate_or_for_another_op_is_refused() -> None:
    plain, new = RawFile("plain.py", b"def run(x, out):\n    pass\n"), RawFile("new.py", MODEL_NEW.encode())
    submission = RawFile("submission.py", SUBMISSION.encode())
    assert refused(plain, problem()).startswith("format: found 'plain.py: no candidate of a known format'")
    assert "no class ModelNew" in refused(plain, problem(), "kernelbench")
    assert "no function custom_kernel" in refused(plain, task(), "gpu-mode")
    assert "0 Solutions" in refused(plain, definition("rmsnorm_h1024"), "flashinfer-bench")
    assert refused(plain, problem(), "other").startswith("format: found 'other'")
    assert "imported from gpu-mode', expected an op that was imported from kernelbench" in refused(new, task())
    assert "expected an op that was imported from gpu-mode" in refused(submission, problem())
    assert "expected an op that was imported from flashinfer-bench" in refused(solution(), problem())
    both = RawFile("both.py", f"{MODEL_NEW}\n\n{SUBMISSION}".encode())
    assert "of kernelbench and gpu-mode" in refused(both, problem())
    assert "Python that parses" in refused(RawFile("broken.py", b"class ModelNew(:"), problem(), "kernelbench")


def test_a_task_whose_reference_was_written_anew_is_refused() -> None:
    op = task()
    document = op.document()
    document["reference"] = "def run(a, rest_w, rest_by):\n    return a\n"
    changed = type(op).model_validate(op.model_dump() | {"reference": document["reference"]})
    submission = RawFile("submission.py", SUBMISSION.encode())
    assert "the reference as `warpsmith import` wrote it" in refused(submission, changed)


LOADED = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("candidate", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
torch.manual_seed(0)
"""
WEIGHED = f"""{LOADED}
x, weight, bias, out = torch.randn(2, 4), torch.randn(4, 4), torch.randn(4), torch.empty(2, 4)
for number in range(2):
    weight = torch.randn(4, 4)
    module.run(x, weight, bias, out)
    print(torch.allclose(out, torch.nn.functional.linear(x, weight, bias)))
"""
MULTIPLIED = f"""{LOADED}
a, w, outputs = torch.randn(3, 4), torch.randn(4, 6), [torch.empty(3, 6) for _ in range(COUNT)]
expected = a @ w * 2
module.run(a, w, 2, *outputs)
print([torch.equal(output, expected) for output in outputs])
"""
NORMALISED = f"""{LOADED}
x, out = torch.randn(2, 4), torch.empty(2, 4)
module.run(x, None, out)
print(torch.equal(x, out))
"""
HELD, CALLED, BUILT = "self.linear = torch.nn.Linear(n, n)", "return self.linear(x)", "super().__init__()"
KIND = "found a parameter of shape and dtype"
ENTRIES: dict[str, tuple[dict[str, str], str]] = {
    "right": ({}, "True\nTrue"),
    "renamed": (
        {
            HELD: "self.b, self.w = (torch.nn.Parameter(torch.zeros(n, n)[at]) for at in (0, ...))",
            CALLED: "return x @ self.w.T + self.b",
        },
        "True\nTrue",
    ),
    "another shape": ({HELD: HELD.replace("n, n", "n, n + 1")}, f"ModelNew.linear.weight: {KIND} ((5, 4), 'float32')"),
    "one more": (
        {BUILT: f"{BUILT}; self.more = torch.nn.Parameter(torch.zeros(3))"},
        f"ModelNew.more: {KIND} ((3,), 'float32')",
    ),
    "two results": ({CALLED: f"{CALLED}, x"}, "ModelNew.forward returned 2 results, the op has 1 outputs"),
    "another dtype": ({CALLED: f"{CALLED}.double()"}, "result 0 has shape and dtype ((2, 4), torch.float64)"),
    "no tensor": ({CALLED: "return 'x'"}, "result 0 is a str, not a tensor"),
}
"""What is changed of MODEL_NEW, and what comes of it."""

ONE, PAIR, NAMED = {"leaf": 0}, {"tuple": [{"leaf": 0}, {"leaf": 1}]}, {"dict": {"y": {"leaf": 0}}}
RESULTS: list[tuple[Any, tuple[int | None, ...], str, str]] = [
    (ONE, (None,), "y", "[True]"),
    (ONE, (None,), "y, y", "custom_kernel returned 2 results, the op has 1 outputs"),
    (PAIR, (None, None), "[y, y]", "[True, True]"),
    (PAIR, (None, None), "y, y, None", "[True, True]"),
    (PAIR, (None, None), "y, y, y", "returned a surplus result[2], expected result[0], result[1]"),
    (PAIR, (None, None), "y, y, [{'more': 1.0}]", "returned a surplus result[2][0]['more'], expected result[0], "),
    (PAIR, (None, None), "(y,)", "returned no result[1], expected result[0], result[1]"),
    (PAIR, (None, 0), "y, a", "[True]"),
    (PAIR, (None, 0), "y, a[1:]", "[True]"),
    (PAIR, (None, 0), "y, a, y", "returned a surplus result[2], expected result[0]"),
    (PAIR, (None, 0), "y", "returned no result[0], expected result[0]"),
    (NAMED, (None,), "{'y': y}", "[True]"),
    (NAMED, (None,), "{'y': y, 'x': y}", "returned a surplus result['x'], expected result['y']"),
]
"""What a task returns, with its aliases, what a submission returns, and what comes of it."""

DICTS = {
    "{'output': x}": "True",
    "{'output': x, 'more': x}": "run returned 2 results, the op has 1 outputs",
    "{'more': x}": "'output'",
}
"""What a Solution returns, and what comes of it."""


def candidates() -> Iterator[tuple[str, str, str]]:
    """Sources of candidates, programs that try one, and what each ends with."""
    for changes, expected in ENTRIES.values():
        text = MODEL_NEW
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        yield kernel_import.adapt(RawFile("new.py", text.encode()), problem()).source, WEIGHED, expected
    for result, aliases, returned, expected in RESULTS:
        text = SUBMISSION.replace("return a @", "y = a @") + f"    return {returned}\n"
        source = kernel_import.adapt(RawFile("submission.py", text.encode()), task(result, aliases)).source
        yield source, MULTIPLIED.replace("COUNT", str(aliases.count(None))), expected
    for returned, expected in DICTS.items():
        text = f"def run(x, weight):\n    return {returned}\n"
        parts = {"sources": [{"path": "main.py", "content": text}], "spec": {"destination_passing_style": False}}
        found = kernel_import.adapt(solution(**parts), definition("rmsnorm_h1024"))
        yield found.source, NORMALISED, expected


def test_what_the_candidates_do_and_say(tmp_path: Path) -> None:
    """Weights are those of the call, by name or by shape; what is missing, too much or does not fit is said. One
    process for all."""
    pytest.importorskip("torch")
    lines, wanted = ["import sys"], []
    for number, (source, program, expected) in enumerate(candidates()):
        directory = tmp_path / str(number)
        directory.mkdir()
        path = directory / "candidate.py"
        path.write_text(source)
        wanted.append((source, expected))
        lines += [
            f"sys.argv = ['probe', {str(path)!r}]; print('--')",
            "for name in [n for n in sys.modules if n.startswith('_imported_files')]: del sys.modules[name]",
            "sys.modules.pop('task', None)",
            f"try: exec({program!r})\nexcept Exception as error: print(error)",
            "del sys.path[:2]",
        ]
    ended = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    said = [part.strip() for part in ended.stdout.split("--\n")[1:]]
    for (source, expected), found in zip(wanted, said, strict=True):
        assert expected in found, source


def test_every_example_is_there() -> None:
    assert len(SOLUTIONS) >= 1
    assert any("gated_projection" in str(path) for path in TASKS)
