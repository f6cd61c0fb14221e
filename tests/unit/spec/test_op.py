"""Loading an op spec: what is accepted, and its identities."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests import REPOSITORY
from tests.unit.spec.specs import SPEC, spec
from warpsmith.kernels_db.spec.op import Op, SpecError, SpecErrors, Target, load_op, parse_op

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_spec_survives_its_document(path: Path) -> None:
    op = load_op(path)
    for document in (op.document(), op.model_dump(mode="json"), json.loads(json.dumps(op.document()))):
        again = parse_op(document)
        assert again == op
        assert again.digest == op.digest
        assert again.semantic_digest == op.semantic_digest
    assert load_op(json.dumps(op.document())) == op


def test_text_bytes_and_files_read_alike(tmp_path: Path) -> None:
    text = json.dumps(SPEC)
    path = tmp_path / "op.json"
    path.write_text(text)
    assert load_op(text) == load_op(text.encode()) == load_op(path) == load_op(b"\xef\xbb\xbf" + text.encode())


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_op(tmp_path / "none.yaml")


def test_nothing_of_a_spec_changes_after_loading() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        parse_op(spec()).name = "other"  # type: ignore[misc]


def test_numbers_in_yaml_are_numbers() -> None:
    op = load_op(json.dumps(spec(outputs=[])).replace("0.5", "5e-1").replace("{", "{ ", 1))
    assert op.inputs[2].value == 0.5
    text = (
        "schema_version: 1\nname: f\naxes: {n: {kind: var}}\n"
        "inputs: [{name: x, shape: [n], dtype: float32, dist: {kind: normal, std: 1e-5}}]\n"
        "outputs: [{name: y, shape: [n], dtype: float32, tolerance: {rtol: 1E-3, atol: .5}}]\n"
        "reference: 'def run(x): return x'\n"
        "workloads: [{id: a, role: bench, axes: {n: 8}}]\ndescription: 2024-01-01\n"
    )
    op = load_op(text)
    assert op.document()["inputs"][0]["dist"]["std"] == 1e-5
    assert op.document()["outputs"][0]["tolerance"] == {"rtol": 1e-3, "atol": 0.5}
    assert op.description == "2024-01-01"


def changed(**fields: Any) -> Op:
    return parse_op(spec(**fields))


def test_the_digest_is_of_everything_but_the_order_of_keys_and_defaults() -> None:
    op = parse_op(spec())
    reordered = dict(reversed(list(SPEC.items())))
    assert parse_op(reordered).digest == op.digest
    assert changed(math="ieee", library_calls=False).digest == op.digest
    assert changed(description="other").digest != op.digest
    assert changed(math="tf32").digest != op.digest


def test_a_weight_is_part_of_the_identity_only_where_it_says_something() -> None:
    plain, weighted = parse_op(spec()), spec()
    weighted["workloads"][0]["weight"] = 1
    assert parse_op(weighted).digest == plain.digest
    weighted["workloads"][0]["weight"] = 3
    found = parse_op(weighted)
    assert found.workloads[0].weight == 3.0
    assert found.document()["workloads"][0]["weight"] == 3.0
    assert found.digest != plain.digest
    assert found.semantic_digest == plain.semantic_digest


def test_the_calls_that_are_an_op_change_no_identity() -> None:
    called = parse_op(spec(calls=["torch.nn.functional.rms_norm", "LlamaRMSNorm"]))
    assert called.digest == parse_op(spec()).digest
    assert called.document()["calls"] == ["torch.nn.functional.rms_norm", "LlamaRMSNorm"]


def test_a_changed_copy_has_a_digest_of_its_own() -> None:
    op = parse_op(spec())
    before = op.digest
    assert op.model_copy(update={"description": "another"}).digest != before
    assert op.model_copy().digest == before


def test_the_semantic_digest_is_of_what_is_computed() -> None:
    op = parse_op(spec())
    workloads = [{"id": "other", "role": "bench", "axes": {"tokens": 3}}]
    inputs = copy.deepcopy(SPEC["inputs"])
    inputs[0]["description"] = "the activations"
    for same in (changed(description="other"), changed(workloads=workloads), changed(inputs=inputs)):
        assert same.semantic_digest == op.semantic_digest
    inputs[0]["dtype"] = "float64"
    axes = SPEC["axes"] | {"description": {"kind": "const", "value": 3}}
    for other in (
        changed(inputs=inputs),
        changed(reference=SPEC["reference"] + "#\n"),
        changed(math="tf32"),
        changed(name="other"),
        changed(axes=axes),
        changed(constraints=["tokens > 0"]),
    ):
        assert other.semantic_digest != op.semantic_digest


def test_workloads_by_target() -> None:
    small = {"id": "small", "role": "bench", "axes": {"tokens": 2}}
    op = changed(targets={"cpu": {"workloads": [small]}})
    cpu, cuda = Target.parse("cpu:x86_64"), Target.parse("cuda:sm_90")
    assert [workload.id for workload in op.workloads_for(cpu)] == ["small"]
    assert [workload.id for workload in op.workloads_for(cuda)] == ["decode", "ragged"]
    assert {device: len(workloads) for device, workloads in op.workloads_by_device().items()} == {"cpu": 1, "cuda": 2}
    assert op.workload(cpu, "small").axes == {"tokens": 2}
    with pytest.raises(SpecErrors, match=r"^workload: found 'small', expected one of decode, ragged$"):
        op.workload(cuda, "small")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu:x86_64", "cpu:x86_64"),
        ("cpu:amd64", "cpu:x86_64"),
        ("cpu:arm64", "cpu:aarch64"),
        ("cuda:sm_90", "cuda:sm_90"),
        ("cuda:sm_90a", "cuda:sm_90a"),
        ("cuda:sm_120", "cuda:sm_120"),
    ],
)
def test_targets(text: str, expected: str) -> None:
    target = Target.parse(text)
    assert str(target) == expected
    assert Target.parse(str(target)) == target


def test_cpu_is_this_machine() -> None:
    assert Target.parse("cpu").device == "cpu"
    assert Target.parse(str(Target.parse("cpu"))) == Target.parse("cpu")


@pytest.mark.parametrize(
    "text", ["", "gpu", "cuda", "cuda:", "cuda:90", "cuda:sm_9", "cpu:", "cpu:z80", "tpu:v5", "CPU"]
)
def test_unknown_targets(text: str) -> None:
    with pytest.raises(SpecError, match=r"^target: found ") as caught:
        Target.parse(text)
    assert "cpu:x86_64" in caught.value.expected


def test_loading_needs_no_torch() -> None:
    code = (
        "import sys, warpsmith.kernels_db.spec.op, warpsmith.kernels_db.spec.resolve; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["tokens", "float32", "bench"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    steps = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place, *(below for step in steps for below in places(value[step], (*place, step)))]


@given(st.sampled_from(places(SPEC)[1:]), JSON)
@settings(max_examples=300, deadline=None)
def test_any_change_gives_an_op_or_the_errors(place: tuple[Any, ...], value: Any) -> None:
    document = spec()
    holder: Any = document
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = value
    errors = []
    try:
        assert parse_op(document).digest
    except SpecErrors as error:
        errors = error.errors
    for each in errors:
        assert each.field
        assert each.expected
        json.dumps({"field": each.field, "found": each.found, "expected": each.expected}, allow_nan=False).encode(
            "utf-8"
        )


@given(
    st.one_of(
        st.text(),
        st.binary(),
        st.lists(st.sampled_from([*"{}[]:,&*!|>-'\"\n #%@`?", "a", "1", "- ", ": "])).map("".join),
    )
)
@settings(deadline=None)
def test_any_text_gives_the_errors(text: str | bytes) -> None:
    with pytest.raises(SpecErrors):
        load_op(text)
