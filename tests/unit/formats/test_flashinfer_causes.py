"""Definitions that would not run as they are: inputs left out, probabilities, a missing import, too much memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.formats.test_formats_flashinfer import DEFINITION, WORKLOAD, changed, made, with_sizes
from warpsmith.kernels_db.formats.flashinfer.reference import with_math
from warpsmith.kernels_db.spec.op import SpecErrors

EMBEDDING: dict[str, Any] = {
    "name": "embedding",
    "op_type": "embedding",
    "axes": {
        "n": {"type": "var"},
        "vocab_size": {"type": "const", "value": 128256},
        "width": {"type": "const", "value": 4096},
        "depth": {"type": "const", "value": 2048},
    },
    "inputs": {
        "input_ids": {"shape": ["n"], "dtype": "int64"},
        "weight": {"shape": ["vocab_size", "width"], "dtype": "bfloat16"},
        "more": {"shape": ["n", "depth"], "dtype": "bfloat16"},
    },
    "outputs": {"y": {"shape": ["n", "width"], "dtype": "bfloat16"}},
    "reference": "def run(input_ids, weight, more):\n"
    "    vocab_size, width = weight.shape\n"
    "    assert vocab_size == 128256 and width == 4096\n"
    "    return weight[input_ids]\n",
}


def test_inputs_that_run_does_not_take_are_left_out_of_its_call_and_zeros() -> None:
    definition = changed(DEFINITION, "inputs.unused", {"shape": ["n"], "dtype": "int32"})
    found = made(definition, changed(WORKLOAD, "inputs.unused", {"type": "random"}))
    assert "def run(x, by, unused):" in found.op.reference
    assert "_run(x=x, by=by)" in found.op.reference
    unused = next(item for item in found.op.inputs if item.name == "unused")
    assert unused.dist is not None
    assert unused.dist.model_dump() == {"kind": "constant", "value": 0}
    assert "the reference does not take unused: here, unless a Workload gives values, it is zeros" in found.notes


def test_a_run_with_parameters_of_other_names_is_refused() -> None:
    with pytest.raises(SpecErrors, match=r"run\(z\)"):
        made(changed(DEFINITION, "reference", "def run(z):\n    return z\n"), WORKLOAD)


def test_math_is_imported_where_the_reference_forgot_it() -> None:
    text = "def run(x, by):\n    return x * math.sqrt(by)\n"
    found = made(changed(DEFINITION, "reference", text), WORKLOAD)
    assert found.op.reference.startswith(text)
    assert found.op.reference.endswith("\nimport math\n")
    assert "the reference uses math and does not import it: here it does" in found.notes
    for imported in ("import math", "from math import *", "math = None", "def run(math): pass"):
        source = f"{imported}\n{text}"
        assert with_math(source) == source


def test_probabilities_of_a_made_workload_sum_to_one() -> None:
    torch = pytest.importorskip("torch")
    definition = changed(changed(DEFINITION, "inputs.probs", DEFINITION["inputs"]["x"]), "inputs.x", None)
    op, _ = with_sizes(changed(definition, "reference", "def run(by, probs):\n    return probs * by\n"), {"n": 4})
    dist = op.workloads[0].inputs["probs"].dist
    assert dist is not None
    assert dist.kind == "code"
    space: dict[str, Any] = {}
    exec(compile(dist.source, "source", "exec"), space)
    drawn = space["make"]((4, 8), torch.float32, torch.Generator().manual_seed(1))
    torch.testing.assert_close(drawn.sum(-1), torch.ones(4))
    assert bool((drawn >= 0).all())


def test_a_scalar_with_the_name_of_a_const_axis_has_its_value() -> None:
    definition = changed(changed(DEFINITION, "inputs.k", {"shape": None, "dtype": "int64"}), "inputs.by", None)
    _, chosen = with_sizes(changed(definition, "reference", "def run(x, k):\n    return x * k\n"), {"n": 4})
    assert chosen == {"k": 8}


def test_a_definition_that_does_not_fit_a_machine_comes_with_smaller_axes() -> None:
    found = made(EMBEDDING, {"uuid": "a", "axes": {"n": 4}, "inputs": {}})
    assert found.op.inputs[1].shape == ("vocab_size", "width")
    assert found.sizes == {"vocab_size": 501}  # the odd part of 128256; 501 rows are little enough
    assert found.small is not None
    assert "assert vocab_size == 501 and width == 4096" in found.small.reference
    assert found.small.axes["vocab_size"].model_dump()["value"] == 501
    assert "assert vocab_size == 128256" in found.op.reference


def test_an_axis_whose_number_the_reference_uses_stays() -> None:
    text = EMBEDDING["reference"].replace("weight[input_ids]", "weight[input_ids % 128256]")
    found = made(changed(EMBEDDING, "reference", text), {"uuid": "a", "axes": {"n": 4}, "inputs": {}})
    assert found.sizes == {"width": 64, "depth": 64}


def test_a_definition_that_fits_stays_as_it_is() -> None:
    found = made(DEFINITION, WORKLOAD)
    assert (found.small, found.sizes) == (None, {})


def test_a_constraint_keeps_an_axis() -> None:
    definition = EMBEDDING | {"constraints": ["vocab_size >= 1000 and width % 4096 == 0"]}
    assert made(definition, {"uuid": "a", "axes": {"n": 4}, "inputs": {}}).sizes == {"depth": 64}
