"""Which kernels may stand in one export, and which formats hold several."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.exporting import IN_PLACE, IN_PLACE_CPP, SCALED_ADD, SCALED_ADD_CPP, exported
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.export.joining import joined
from warpsmith.kernels_db.export.kernel import kernel_name, module_name
from warpsmith.kernels_db.export.kernel_facts import source, timed, verified_numbers
from warpsmith.kernels_db.spec.op import SpecErrors

FIRST = exported(SCALED_ADD, SCALED_ADD_CPP, name="kn_first")
OTHER_CPP = SCALED_ADD_CPP.replace("= 0; i", "= 0L; i")
SECOND = exported(SCALED_ADD, OTHER_CPP, name="kn_second")
GPU = exported(SCALED_ADD, SCALED_ADD_CPP, "cuda", target="cuda:sm_90", name="kn_gpu")


def changed(**fields: Any) -> dict[str, Any]:
    return SCALED_ADD | fields


def with_inputs(position: int, **fields: Any) -> dict[str, Any]:
    inputs = [dict(item) for item in SCALED_ADD["inputs"]]  # type: ignore[attr-defined]
    inputs[position].update(fields)
    return changed(inputs=inputs)


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (
            IN_PLACE,
            "kn_other of the op scaled_add_, which differs in inputs, name, outputs, reference",
        ),
        (changed(reference="def run(x, y, m):\n    return x - m * y\n"), "differs in reference"),
        (changed(math="tf32"), "differs in math"),
        (with_inputs(2, dtype="int32", value=1), "differs in inputs"),
        (with_inputs(2, value=0.25), "differs in inputs"),
        (with_inputs(0, alignment=16), "differs in inputs"),
    ],
    ids=["op", "reference", "math", "type of a number", "number", "alignment"],
)
def test_kernels_of_different_ops_are_refused(spec: dict[str, Any], found: str) -> None:
    other = exported(spec, IN_PLACE_CPP if spec is IN_PLACE else SCALED_ADD_CPP, name="kn_other")
    with pytest.raises(SpecErrors) as caught:
        joined([FIRST, SECOND, other])
    [error] = caught.value.errors
    assert error.field == "kernels[2]"
    assert found in str(error.found)
    assert error.expected == "a kernel of the op of kn_first, scaled_add"


def test_the_same_kernel_twice_is_refused() -> None:
    again = replace(FIRST, id="kn_again", evidence={**FIRST.evidence, "device": {"name": "another"}})
    with pytest.raises(SpecErrors, match="kn_again with the source and the envelope of kn_first"):
        joined([FIRST, again])


def test_what_may_differ() -> None:
    tensors = [{**item, "dtype": "float16"} for item in SCALED_ADD["inputs"][:2]]  # type: ignore[index]
    half = changed(
        inputs=[*tensors, SCALED_ADD["inputs"][2]],  # type: ignore[index]
        outputs=[{**SCALED_ADD["outputs"][0], "dtype": "float16"}],  # type: ignore[index]
        description="of another dtype",
    )
    fewer = changed(workloads=[{"id": "only", "role": "bench", "axes": {"rows": 9}}])
    kernels = [FIRST, SECOND, GPU, exported(half, SCALED_ADD_CPP), exported(fewer, SCALED_ADD_CPP)]
    assert set(map(id, joined(kernels))) == set(map(id, kernels))
    assert joined(kernels) == joined(kernels[::-1])
    assert len({kernel_name(kernel) for kernel in kernels}) == 5
    assert module_name(*kernels) == module_name(*kernels[::-1])
    assert module_name(*kernels) not in {module_name(kernel) for kernel in kernels}


@pytest.mark.parametrize("form", [each for each in registry.FORMATS if each.name != "vllm"], ids=lambda form: form.name)
def test_a_format_holds_several_or_says_that_it_does_not(form: registry.Format, tmp_path: Path) -> None:
    if not form.several:
        with pytest.raises(SpecErrors, match="kernels: found '2 kernels', expected one") as caught:
            form.write([FIRST, SECOND], tmp_path)
        assert "package, module, hf-kernels, vllm hold several" in str(caught.value)
        assert list(tmp_path.iterdir()) == []
        return
    project = form.write([FIRST, SECOND], tmp_path)
    text = "\n".join(path.read_text("utf-8") for path in project.rglob("*") if path.is_file())
    for kernel in (FIRST, SECOND):
        for said in (kernel.id, kernel.source_digest, kernel_name(kernel)):
            assert said in text, said
    assert form.write([FIRST], tmp_path) != project


def test_a_spec_that_this_version_refuses_is_told_of_its_kernel() -> None:
    spec = SCALED_ADD | {"workloads": [{"id": "small", "role": "bench", "axes": {"rows": 0.5}}]}
    refused = replace(SECOND, spec=spec)
    with pytest.raises(SpecErrors) as caught:
        joined([FIRST, refused])
    [error] = caught.value.errors
    assert (error.field, error.found) == ("kernels[1]", "kn_second")
    assert "whose spec this version takes; workloads[0].axes.rows: found 0.5" in error.expected
    assert joined([refused]) == (refused,), "alone it is its format that refuses it"


def test_formats_that_hold_several() -> None:
    assert [form.name for form in registry.FORMATS if form.several] == ["package", "module", "hf-kernels", "vllm"]


def test_a_repository_has_a_variant_for_each_type_of_device(tmp_path: Path) -> None:
    repository = registry.named("hf-kernels").write([GPU, FIRST], tmp_path)
    variants = {path.name: path for path in (repository / "build").iterdir()}
    assert set(variants) == {"torch-cpu", "torch-cuda"}
    for name, variant in variants.items():
        metadata = json.loads((variant / "metadata.json").read_text())
        assert metadata["backend"] == {"type": name.removeprefix("torch-")}
        assert {kernel["kernel"] for kernel in metadata["warpsmith"]["kernels"]} == {"kn_first", "kn_gpu"}
        assert len(list(variant.glob("_kernel_*.py"))) == 2


def test_numbers_are_those_of_the_verified_workloads() -> None:
    declared: list[dict[str, Any]] = SCALED_ADD["workloads"]  # type: ignore[assignment]
    more = [{"id": "more", "role": "test", "axes": {"rows": 9}}, declared[1] | {"inputs": {"m": {"value": 2.0}}}]
    assert verified_numbers(exported(changed(workloads=[declared[0], *more]), SCALED_ADD_CPP)) == [(0.5,), (2.0,)]


def test_times_are_told_by_the_limit_or_by_bytes() -> None:
    kernel = exported(SCALED_ADD, SCALED_ADD_CPP, times_us={"small": 6.0})
    assert timed(kernel, by_limit=True) == [({"rows": 3}, 6.0, 6.0), ({"rows": 40}, 2.0, 2.0)]
    [small, _] = timed(kernel, by_limit=False)
    assert small[:2] == ({"rows": 3}, 6.0)
    assert small[2] == pytest.approx(6.0 * 1e6 / (3 * 3 * 8 * 4))
    assert timed(replace(kernel, evidence={"workloads": []}), by_limit=True) == []


def test_values_are_written_as_source() -> None:
    assert eval(source({"a": [(1, 2.5), (True,)], "b": None})) == {"a": [(1, 2.5), (True,)], "b": None}
    assert eval(source([float("inf")])) == [float("inf")]
