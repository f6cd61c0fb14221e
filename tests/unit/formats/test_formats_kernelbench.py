"""KernelBench problems as specs, given what the sandbox said of them."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.formats_support import MATMUL, answering, errors_of
from warpsmith.kernels_db.formats.kernelbench.problem import is_constructed
from warpsmith.kernels_db.formats.op_import import ImportedOp, import_op
from warpsmith.kernels_db.formats.shared.files import RawFile, raw_files
from warpsmith.kernels_db.job.file_analysis import AnalysisFailed
from warpsmith.kernels_db.spec.dist import Code
from warpsmith.kernels_db.spec.op import SpecErrors, load_op
from warpsmith.kernels_db.spec.resolve import reference_source

PROBLEM = """import torch


class Model(torch.nn.Module):
    \"\"\"A product.\"\"\"

    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(4, 4), torch.rand(4, 4)]


def get_init_inputs():
    return []
"""

COMPARED = "compared with the problem on values, with its own sizes"


def made(answer: dict[str, Any], text: str = PROBLEM, *others: RawFile) -> ImportedOp:
    """What comes of a problem of which the sandbox says this."""
    return import_op([RawFile("12_Matmul_with.dots.py", text.encode()), *others], None, answering(answer))


def changed(**values: Any) -> dict[str, Any]:
    """What is said of the product, with other values."""
    return {**copy.deepcopy(MATMUL), **values}


def test_a_problem_is_a_module_with_one_workload() -> None:
    found = made(MATMUL)
    op = found.op
    assert (op.name, op.description, op.init, found.sandbox) == ("matmul_with_dots", "A product.", (), "isolated")
    assert [(item.name, item.shape, item.dtype) for item in op.inputs] == [
        ("a", (4, 4), "float32"),
        ("b", (4, 4), "float32"),
    ]
    assert [(item.id, item.role) for item in op.workloads] == [("problem", "bench")]
    assert op.origin is not None
    assert raw_files(op.origin)[0].data == PROBLEM.encode()
    assert op.reference == PROBLEM
    assert "functional_call" in reference_source(op)


def test_what_was_seen_drawn_is_the_inputs_distribution_and_the_rest_is_made_by_the_file() -> None:
    tensor = MATMUL["inputs"][0]
    answer = changed(inputs=[{**tensor, "dist": {"kind": "uniform", "low": -1.0, "high": 1.0}}, tensor])
    first, second = made(answer).op.inputs
    assert first.dist is not None
    assert second.dist is not None
    assert first.dist.model_dump() == {"kind": "uniform", "low": -1.0, "high": 1.0}
    assert second.dist.kind == "code"
    assert "return get_inputs()[1]" in second.dist.source


@pytest.mark.parametrize(
    ("dtype", "seen", "dist"),
    [
        ("int64", {"kind": "randint", "low": 0, "high": 9}, {"kind": "randint", "low": 0, "high": 9}),
        ("bool", {"kind": "randint", "low": 0, "high": 2}, {"kind": "bernoulli", "p": 0.5}),
        ("bool", {"kind": "constant", "value": 1}, {"kind": "constant", "value": True}),
        ("int32", {"kind": "empty"}, {"kind": "constant", "value": 0}),
        ("float16", {"kind": "constant", "value": 2}, {"kind": "constant", "value": 2.0}),
    ],
)
def test_integers_stay_integers(dtype: str, seen: dict[str, Any], dist: dict[str, Any]) -> None:
    tensor = {**MATMUL["inputs"][0], "dtype": dtype, "dist": seen}
    item = made(changed(inputs=[tensor, tensor])).op.inputs[0]
    assert item.dtype == dtype
    assert item.dist is not None
    assert item.dist.model_dump() == dist


@pytest.mark.parametrize("seen", [{"kind": "normal", "mean": 0.0, "std": 1.0}, {"kind": "constant", "value": "x"}, {}])
def test_a_distribution_that_does_not_suit_the_dtype_is_left_to_the_file(seen: dict[str, Any]) -> None:
    tensor = {**MATMUL["inputs"][0], "dtype": "int64", "dist": seen}
    item = made(changed(inputs=[tensor, tensor])).op.inputs[0]
    assert item.dist is not None
    assert item.dist.kind == "code"


def test_state_is_named_apart_from_inputs_and_outputs() -> None:
    state = [{"attribute": name, "shape": [4], "dtype": "float32", "dist": None} for name in ("a", "layer.0.b", "out")]
    op = made(changed(state=state)).op
    assert [(item.name, item.attribute) for item in op.state] == [
        ("a_2", "a"),
        ("layer_0_b", "layer.0.b"),
        ("out_2", "out"),
    ]
    dist = op.state[1].dist
    assert dist is not None
    assert dist.kind == "code"
    assert "['layer.0.b']" in dist.source


def test_arguments_that_json_cannot_carry_are_made_by_the_file() -> None:
    op = made(changed(init=None)).op
    assert op.init == ()
    assert "construct(self, *(arguments or get_init_inputs()))" in op.reference
    assert is_constructed(op.reference)
    assert not is_constructed(PROBLEM)
    assert is_constructed(f"{PROBLEM}\n\n_Constructed = Model\n\n"), "specs that were imported before say it so"
    assert op.reference.startswith(PROBLEM)


def test_scalars_strides_and_written_inputs_are_said() -> None:
    inputs = [{**MATMUL["inputs"][0], "strides": [1, 4]}, {"shape": None, "dtype": "float64", "value": 0.5}]
    answer = changed(inputs=inputs, written={"inputs": [0], "state": ["norm.running_mean"]})
    found = made(answer)
    first, second = found.op.inputs
    assert (first.strides, first.mutated, second.shape, second.value) == ((1, 4), True, None, 0.5)
    assert found.notes == [
        "a call changes the module's own norm.running_mean; as in KernelBench, only what it returns is checked",
        COMPARED,
    ]


def test_inputs_that_the_file_may_draw_together_are_said_to_be_drawn_apart() -> None:
    said = "get_inputs draws a, b in one call; here each is drawn by its own, independently of the others"
    assert made(MATMUL).notes == [said, COMPARED]
    drawn = {**MATMUL["inputs"][0], "dist": {"kind": "uniform", "low": 0.0, "high": 1.0}}
    assert made(changed(inputs=[drawn, MATMUL["inputs"][1]])).notes == [COMPARED]


def test_a_candidate_beside_the_problem_is_kept() -> None:
    candidate = RawFile("new.py", b"class ModelNew: ...\n")
    found = made(MATMUL, PROBLEM, candidate)
    assert found.notes[0] == "kept in origin, and not part of the op: new.py with a ModelNew"
    assert found.op.origin is not None
    assert raw_files(found.op.origin)[1] == candidate


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PROBLEM.replace("class Model(", "class Other("), "12_Matmul_with.dots.py: found 'no class Model'"),
        (PROBLEM.replace("def get_init_inputs", "def other"), "found 'no get_init_inputs'"),
        (PROBLEM.replace("def forward", "def call"), "Model: found 'no method forward'"),
        (PROBLEM.replace("a, b)", "a)"), "get_inputs: found '2 inputs', expected 1 to 1"),
        ("class ModelNew: ...\n", "0 problems in 12_Matmul_with.dots.py"),
        (PROBLEM + "x = (\n", "was never closed"),
    ],
)
def test_a_file_that_is_no_whole_problem_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        made(MATMUL, text)
    assert message in "\n".join(errors_of(caught.value))


def test_two_problems_are_refused() -> None:
    with pytest.raises(SpecErrors, match="2 problems in"):
        made(MATMUL, PROBLEM, RawFile("b.py", PROBLEM.encode()))


SIZED = PROBLEM.replace("import torch\n", "import torch\n\nside = 4\n", 1).replace("(4, 4)", "(side, side)")


def test_the_reference_is_compared_on_the_sizes_that_were_found() -> None:
    asked: list[dict[str, Any]] = []
    small = changed(inputs=[{**MATMUL["inputs"][0], "shape": [2, 2], "strides": [2, 1]}] * 2)
    small["outputs"] = [{**MATMUL["outputs"][0], "shape": [2, 2], "strides": [2, 1]}]

    def analyse(request: dict[str, Any]) -> Any:
        asked.append(request)
        return answering(changed(small={"sizes": {"side": 2}, "facts": small}))(request)

    found = import_op([RawFile("a.py", SIZED.encode())], None, analyse)
    assert found.notes[-1] == "compared with the problem on values, with side 2"
    _, reference = asked
    assert reference["text"] == SIZED.replace("side = 4", "side = 2")
    assert [item["shape"] for item in reference["workload"]["inputs"]] == [[2, 2], [2, 2]]
    assert [item["shape"] for item in reference["whole"]["workload"]["inputs"]] == [[4, 4], [4, 4]]
    assert reference["whole"]["reference"] == reference_source(found.op)


def test_sizes_that_the_file_does_not_set_are_refused() -> None:
    with pytest.raises(SpecErrors, match="sizes: found 'other', expected one of side"):
        made(changed(small={"sizes": {"other": 2}, "facts": MATMUL}), SIZED)


def test_a_reference_that_computes_something_else_is_no_import() -> None:
    def analyse(request: dict[str, Any]) -> Any:
        if request["task"] == "reference":
            raise AnalysisFailed("raises", "NotUnderstoodError: the spec's reference: result 0 is off by 0.5")
        return answering(MATMUL)(request)

    with pytest.raises(SpecErrors, match=r"a\.py: found .*the spec's reference: result 0 is off by 0\.5"):
        import_op([RawFile("a.py", PROBLEM.encode())], None, analyse)


def test_without_a_place_to_run_it_a_problem_is_refused() -> None:
    with pytest.raises(SpecErrors, match="expected a machine with torch"):
        import_op([RawFile("a.py", PROBLEM.encode())], None, None)


def test_what_went_wrong_in_the_sandbox_is_said_with_the_file() -> None:
    def analyse(request: dict[str, Any]) -> Any:
        raise AnalysisFailed("raises", "ModuleNotFoundError: No module named 'absent'")

    with pytest.raises(SpecErrors, match=r"a.py: found \"raises: ModuleNotFoundError: No module named 'absent'"):
        import_op([RawFile("a.py", PROBLEM.encode())], None, analyse)


def test_a_file_that_its_tensors_would_repeat_too_often_is_refused_as_the_text_is_made() -> None:
    state = [{"attribute": f"s{n}", "shape": [4], "dtype": "float32", "dist": None} for n in range(1024)]
    with pytest.raises(SpecErrors, match=r"files: .*its sources repeat them for each tensor"):
        made(changed(state=state), PROBLEM + f"KEPT = {random.Random(0).randbytes(10_000).hex()!r}\n")


def test_a_file_that_is_repeated_goes_without_its_comments_where_there_is_no_room() -> None:
    state = [{"attribute": f"s{n}", "shape": [4], "dtype": "float32", "dist": None} for n in range(64)]
    text = PROBLEM + "# said at length\n" * 2_000
    op = made(changed(state=state), text).op
    dists = [*(item.dist for item in op.inputs), *(item.dist for item in op.state)]
    sources = [dist.source for dist in dists if isinstance(dist, Code)]
    assert len(sources) == len(dists)
    assert not any("at length" in source or "A product." in source for source in sources)
    assert op.reference == text


def test_a_file_that_has_no_room_without_comments_either_is_repeated_compressed() -> None:
    state = [{"attribute": f"s{n}", "shape": [4], "dtype": "float32", "dist": None} for n in range(64)]
    text = PROBLEM + "\n".join(f"KEPT_{n} = {n}" for n in range(400)) + "\n"
    op = made(changed(state=state), text).op
    assert op.state[0].dist is not None
    assert op.state[0].dist.kind == "code"
    space: dict[str, Any] = {}
    exec(compile(op.state[0].dist.source, "source", "exec"), space)
    assert "KEPT_399" not in op.state[0].dist.source
    assert space["KEPT_399"] == 399
    assert op.reference == text


@pytest.mark.parametrize(
    ("field", "count", "message"),
    [("inputs", 65, "at most 64 items"), ("outputs", 65, "at most 64 items"), ("state", 1025, "at most 1024 items")],
)
def test_more_tensors_than_a_spec_has_are_refused(field: str, count: int, message: str) -> None:
    item = MATMUL["inputs"][0] | {"dist": None}
    if field == "state":
        item = {"attribute": "s", "shape": [4], "dtype": "float32", "dist": None}
    with pytest.raises(SpecErrors, match=f"{field} List should have {message}"):
        made(changed(**{field: [item] * count}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"dtype": "int64", "dist": {"kind": "constant", "value": float("inf")}},
            r"inputs.0.dist .*value is not a finite",
        ),
        ({"dist": {"kind": "constant", "value": 10**400}}, r"inputs.0.dist .*value is not a finite number"),
        ({"dist": {"kind": "uniform", "low": 0.0, "high": [1]}}, r"inputs.0.dist .*high is not a text or a number"),
        ({"strides": [1]}, r"inputs.0 .*1 strides for 2 axes"),
        ({"strides": [4, 1, 1]}, r"inputs.0 .*3 strides for 2 axes"),
        ({"strides": [10**400, 1]}, r"inputs.0.strides.0"),
        ({"shape": None, "strides": None, "value": 10**400}, r"inputs.0.value"),
        ({"shape": None, "strides": None, "value": float("inf")}, r"inputs.0.value"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_number_that_no_tensor_has_is_refused_by_its_field(values: dict[str, Any], message: str) -> None:
    tensor = MATMUL["inputs"][0]
    with pytest.raises(SpecErrors, match=message):
        made(changed(inputs=[{**tensor, **values}, tensor]))


NUMBERS = st.floats() | st.integers(-9, 9) | st.sampled_from([10**400, -(10**3000), 2**63, -(2**63)])


@given(
    st.sampled_from(["float32", "int64", "bool"]),
    st.sampled_from(["constant", "normal", "uniform", "randint", "empty", "x"]),
    st.dictionaries(st.sampled_from(["value", "low", "high", "mean", "std"]), NUMBERS, max_size=3),
    st.lists(NUMBERS, max_size=3),
)
def test_whatever_numbers_a_hostile_file_says_are_read_or_refused(
    dtype: str, kind: str, numbers: dict[str, Any], strides: list[Any]
) -> None:
    tensor = {**MATMUL["inputs"][0], "dtype": dtype, "dist": {"kind": kind, **numbers}}
    for item in (
        tensor,
        {**tensor, "strides": strides},
        {"shape": None, "dtype": dtype, "value": next(iter(strides), 0)},
    ):
        try:
            found = made(changed(inputs=[item, MATMUL["inputs"][0]]))
        except SpecErrors:
            continue
        assert load_op(json.dumps(found.op.document())) == found.op


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kind", "shape", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.sampled_from(sorted(MATMUL)), JSON)
def test_whatever_a_hostile_file_says_of_itself_is_read_or_refused(field: str, value: Any) -> None:
    """The file shares the process that answers, so the answer is not to be believed."""
    try:
        found = made(changed(**{field: value}))
    except SpecErrors:
        return
    assert load_op(json.dumps(found.op.document())) == found.op
