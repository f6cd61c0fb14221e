"""robust-kbench tasks as specs: recognised, read, and refused where the configuration does not fit."""

from __future__ import annotations

import ast
import copy
import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.formats_support import EXAMPLES, MATMUL, answering
from warpsmith.kernels_db.formats.op_import import ImportedOp, import_op, recognise, wanted
from warpsmith.kernels_db.formats.robust_kbench import task
from warpsmith.kernels_db.formats.shared.files import RawFile
from warpsmith.kernels_db.spec.op import SpecError, SpecErrors

PLACE = EXAMPLES / "robust-kbench" / "biased_tanh"


def raw(name: str, data: bytes | None = None) -> RawFile:
    return RawFile(f"biased_tanh/{name}", (PLACE / name).read_bytes() if data is None else data)


def configuration(**changes: Any) -> RawFile:
    document = json.loads((PLACE / "config_forward.json").read_text()) | changes
    return raw("config_forward.json", json.dumps(document).encode())


def answer() -> dict[str, Any]:
    """What the sandbox says of a module with one input and one result."""
    found = copy.deepcopy(MATMUL)
    found["inputs"] = found["inputs"][:1]
    return found


def made(*files: RawFile) -> ImportedOp:
    return import_op(list(files), None, answering(answer()))


def error_of(*files: RawFile) -> SpecError:
    with pytest.raises(SpecErrors) as caught:
        made(*files)
    (error,) = caught.value.errors
    return error


def test_a_task_is_recognised_and_names_its_configuration() -> None:
    for kind in ("forward", "backward"):
        file = raw(f"func_{kind}.py")
        assert recognise([file, raw(f"config_{kind}.json")]) == task.FORMAT
        assert wanted([file], None) == [f"biased_tanh/config_{kind}.json"]


def test_the_module_is_the_file_and_its_configuration() -> None:
    found = made(raw("func_forward.py"), configuration())
    assert (found.op.name, found.format) == ("biased_tanh", "robust-kbench")
    assert found.op.description == "Adds a bias to every scaled row and takes the tanh."
    assert found.op.reference.startswith((PLACE / "func_forward.py").read_text())
    names: dict[str, Any] = {}
    exec(compile(found.op.reference, "reference", "exec"), names)
    assert names["get_init_inputs"]() == [96, 1.0, "random"], "the default between them is said, too"
    assert [tuple(value.shape) for value in names["get_inputs"]()] == [(48, 96)]
    assert [item.name for item in found.op.inputs] == ["x"]


def test_a_backward_task_takes_the_gradient_of_its_result() -> None:
    said = copy.deepcopy(MATMUL)
    files = [raw("func_backward.py"), raw("config_backward.json")]
    found = import_op(files, None, answering(said))
    assert found.op.name == "biased_tanh_backward"
    assert [item.name for item in found.op.inputs] == ["x", "grad_output"]
    assert any("gradients of the floating inputs" in note for note in found.notes)


def test_the_gradients_are_those_of_autograd() -> None:
    found = import_op([raw("func_backward.py"), raw("config_backward.json")], None, answering(copy.deepcopy(MATMUL)))
    names: dict[str, Any] = {}
    exec(compile(found.op.reference, "reference", "exec"), names)
    x, gradient = names["get_inputs"]()
    model = names["Model"](*names["get_init_inputs"]())
    with torch.no_grad():
        given = model(x, gradient)
    own = x.clone().requires_grad_()
    bias = model.bias.detach().clone().requires_grad_()
    expected = torch.autograd.grad(torch.tanh(own + bias), (own, bias), gradient)
    assert [one.shape for one in given] == [(48, 96), (96,)]
    torch.testing.assert_close(given, expected)


@pytest.mark.parametrize(
    ("changes", "field", "found"),
    [
        ({"single_init_configs": []}, "single_init_configs", "[]"),
        ({"single_input_configs": [3]}, "single_input_configs", "[3]"),
        ({"single_input_configs": [{"batch size": 3}]}, "single_input_configs", "batch size"),
        ({"single_init_configs": [{"class": 3}]}, "single_init_configs", "class"),
        ({"single_input_configs": [{"batch_size": {"a": 1}}]}, "single_input_configs.batch_size", '{"a": 1}'),
        ({"single_shared_configs": [{}]}, "Model", "no value for features"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(changes: dict[str, Any], field: str, found: str) -> None:
    error = error_of(raw("func_forward.py"), configuration(**changes))
    assert error.field.endswith(field)
    assert error.found == found


def test_a_keyword_that_nothing_takes_is_refused() -> None:
    error = error_of(raw("func_forward.py"), configuration(single_input_configs=[{"batch_size": 2, "colour": 3}]))
    assert error.field.endswith("get_inputs and Model")
    assert error.found == "colour"


@pytest.mark.parametrize("default", ["{[]: 1}", "print", "-'a'"])
def test_a_default_that_is_no_literal_is_refused(default: str) -> None:
    text = (PLACE / "func_forward.py").read_text()
    text = text.replace("(self, features: int,", f"(self, first={default}, features: int = 2,", 1)
    file = raw("func_forward.py", text.encode())
    error = error_of(file, configuration())
    assert error.field.endswith("Model")
    assert error.expected == "a literal default"


NAMED = """import torch


def forward_fn(x, weight):
    return x * weight


class Model(torch.nn.Module):
    def __init__(self, features, *, scale=1.0, **others):
        super().__init__()
        self.scale, self.others = scale, others
        self.weight = torch.nn.Parameter(torch.full((features,), scale))

    def forward(self, x, factor=2.0, fn=forward_fn):
        return fn(x, self.weight) * factor


def get_inputs(features, *, batch_size=1):
    return [torch.randn(batch_size, features), 3.0]
"""


def module_of(name: str, **configs: Any) -> dict[str, Any]:
    """The names of the module that a task of the source NAMED becomes."""
    file = raw(f"func_{name}.py", NAMED.encode())
    keywords = task._configuration(raw(f"config_{name}.json", json.dumps(configs).encode()))
    names: dict[str, Any] = {}
    text = task._text(file, ast.parse(NAMED), keywords, backward=name == "backward")
    exec(compile(text, "task", "exec"), names)
    return names


def test_what_is_taken_by_name_alone_is_passed_by_name() -> None:
    names = module_of(
        "forward",
        single_input_configs=[{"batch_size": 5}],
        single_init_configs=[{"scale": 7.0, "depth": 9}],
        single_shared_configs=[{"features": 4}],
    )
    assert names["get_inputs"]()[0].shape == (5, 4)
    assert names["get_init_inputs"]() == [4]
    model = names["Model"](*names["get_init_inputs"]())
    assert (model.scale, model.others) == (7.0, {"depth": 9})


def test_a_backward_task_may_take_a_scalar() -> None:
    names = module_of("backward", single_input_configs=[{}], single_shared_configs=[{"features": 4}])
    x, factor, gradient = names["get_inputs"]()
    model = names["Model"](*names["get_init_inputs"]())
    of_x, of_weight = model(x, factor, gradient)
    torch.testing.assert_close(of_x, gradient * 3.0)
    torch.testing.assert_close(of_weight, (gradient * x * 3.0).sum(0))


def test_a_task_without_its_configuration_or_two_tasks_are_refused() -> None:
    assert error_of(raw("func_forward.py")).found == "no biased_tanh/config_forward.json"
    assert error_of(raw("func_forward.py"), raw("func_backward.py"), configuration()).found == "2 tasks"


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(values, values)
def test_whatever_the_configuration_says_is_said_as_python(batch_size: Any, init_method: Any) -> None:
    found = configuration(
        single_input_configs=[{"batch_size": batch_size}], single_init_configs=[{"init_method": init_method}]
    )
    file = raw("func_forward.py")
    keywords = task._configuration(found)
    text = task._text(file, ast.parse(file.text()), keywords, backward=False)
    names: dict[str, Any] = {}
    exec(compile(text, "task", "exec"), names)
    assert names["get_init_inputs"]() == [96, 1.0, init_method]
    assert names.get("config_batch_size", batch_size) == batch_size
