"""The `vllm` format under a stand-in of vLLM's interface as published, in fresh processes without Warpsmith.

vLLM itself is not run here: `tests/support/vllm_interface` says what the stand-in holds.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.exporting import exported, in_fresh_process
from tests.support.layer_ops import (
    ADD,
    ADD_ALONE,
    ADD_ALONE_CPP,
    ADD_CPP,
    GELU,
    GELU_CPP,
    RMS,
    RMS_CPP,
    SILU,
    SILU_CPP,
    spec,
)
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.spec.op import SpecErrors

pytest.importorskip("torch", reason="exports are used with torch, which is not installed")

STAND_IN = Path(__file__).resolve().parents[2] / "support" / "vllm_interface"
HEAD = """
import importlib, logging, sys, tomllib
from pathlib import Path
import torch

logging.basicConfig(stream=sys.stdout, format="%(message)s")


def load(project):
    'As vLLM does: the functions of `vllm.general_plugins`, called.'
    project = Path(project)
    sys.path.insert(0, str(project))
    points = tomllib.loads((project / "pyproject.toml").read_text())["project"]["entry-points"]
    for value in points["vllm.general_plugins"].values():
        module, _, attribute = value.partition(":")
        getattr(importlib.import_module(module), attribute)()
    return importlib.import_module(module.partition(".")[0])


def served(package):
    return package.status()["served"]["kernel"]


def near(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


torch.manual_seed(0)
torch.set_grad_enabled(False)
"""


def used(script: str, *projects: Path) -> list[str]:
    """Run a script beside the stand-in; the lines that it prints."""
    program, first = HEAD + script, projects[0]
    done = in_fresh_process(first, "-c", program, *map(str, projects), home=first.parent, paths=[STAND_IN])
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.splitlines()


def build(kernel: ExportedKernel, directory: Path) -> Path:
    return registry.named("vllm").build(kernel, directory)


def test_the_layer_is_ours_and_serves_what_its_kernel_admits(tmp_path: Path) -> None:
    script = """
package = load(sys.argv[1])
from vllm.model_executor.layers.layernorm import RMSNorm
load(sys.argv[1])  # plugins may be loaded more than once
layer = RMSNorm(64)
layer.weight.copy_(torch.randn(64))
print(type(layer).__name__, layer.name)
x, r = torch.randn(2, 3, 64), torch.randn(2, 3, 64)
near(layer(x), RMSNorm.forward_native(layer, x))
print(served(package), RMSNorm.native)          # by the kernel; native was called for comparison
layer(x, r), layer(torch.randn(100, 64)), layer(x.transpose(0, 1))
print(served(package), RMSNorm.native)          # a residual and 100 rows are vLLM's own; rows that are copied are ours
for other in (RMSNorm(64, eps=1e-5), RMSNorm(64, var_hidden_size=32), RMSNorm(64, has_weight=False)):
    other(x)
print(served(package), RMSNorm.native)
compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
near(compiled(x), RMSNorm.forward_native(layer, x))
print(served(package))
"""
    lines = used(script, build(exported(RMS, RMS_CPP), tmp_path))
    assert lines == ["WarpsmithRMSNorm rms_norm", "1 1", "2 3", "2 6", "3"]


def test_two_packages_share_a_layer(tmp_path: Path) -> None:
    script = """
norm, add = map(load, sys.argv[1:])
from vllm.model_executor.layers.layernorm import RMSNorm
layer = RMSNorm(64)
layer.weight.copy_(torch.randn(64))
x, r = torch.randn(6, 64), torch.randn(6, 64)
near(layer(x), RMSNorm.forward_native(layer, x))
near(layer(x, residual=r), RMSNorm.forward_native(layer, x, r))
print(served(norm), served(add), RMSNorm.native)
"""
    projects = [build(exported(RMS, RMS_CPP), tmp_path), build(exported(ADD, ADD_CPP), tmp_path)]
    assert used(script, *projects) == ["1 1 2"]
    other_order = script.replace("map(load, sys.argv[1:])", "reversed([*map(load, sys.argv[:0:-1])])")
    assert used(other_order, *projects) == ["1 1 2"]


def test_an_op_that_keeps_the_sum_to_itself_is_a_layer_all_the_same(tmp_path: Path) -> None:
    script = """
add = load(sys.argv[1])
from vllm.model_executor.layers.layernorm import RMSNorm
layer, x, r = RMSNorm(64), torch.randn(6, 64), torch.randn(6, 64)
near(layer(x, r), RMSNorm.forward_native(layer, x, r))
print(served(add))
"""
    assert used(script, build(exported(ADD_ALONE, ADD_ALONE_CPP), tmp_path)) == ["1"]


@pytest.mark.parametrize(
    ("document", "source", "layer", "columns"),
    [(SILU, SILU_CPP, "SiluAndMul", 128), (GELU, GELU_CPP, "NewGELU", 64)],
    ids=["silu_and_mul", "gelu_tanh"],
)
def test_activations(document: dict[str, Any], source: str, layer: str, columns: int, tmp_path: Path) -> None:
    script = f"""
package = load(sys.argv[1])
from vllm.model_executor.layers.activation import {layer} as Layer
layer, x = Layer(), torch.randn(2, 4, {columns})
near(layer(x), Layer.forward_native(layer, x))
print(served(package))
"""
    assert used(script, build(exported(document, source), tmp_path)) == ["1"]


def test_vllms_configuration_switches_the_layer_by_its_own_name(tmp_path: Path) -> None:
    script = """
from vllm import config
package = load(sys.argv[1])
from vllm.model_executor.layers.layernorm import RMSNorm
for config.CUSTOM_OPS in (["none"], ["none", "+rms_norm"], ["all", "-rms_norm"], ["all"]):
    RMSNorm(64)(torch.randn(6, 64))
    print(served(package))
"""
    assert used(script, build(exported(RMS, RMS_CPP), tmp_path)) == ["0", "1", "1", "2"]


@pytest.mark.parametrize(
    "reference",
    [
        "    return torch.nn.functional.rms_norm(x, weight.shape, 1 + weight, 1e-6)\n",
        "    return torch.nn.functional.rms_norm(x + 0.1, weight.shape, weight, 1e-6)\n",
        "    return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6 + 1e-5 * 0 + 1e-6)\n"
        "    torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6)\n",
    ],
    ids=["gemma", "shifted", "epsilon"],
)
def test_an_op_that_computes_something_else_is_not_registered(reference: str, tmp_path: Path) -> None:
    script = """
package = load(sys.argv[1])
from vllm.model_executor.layers.layernorm import RMSNorm
print(type(RMSNorm(64)).__name__)
"""
    other = spec("rms_norm", ["x", "weight"], reference)
    said, made = used(script, build(exported(other, RMS_CPP), tmp_path))
    assert "not registered, it computes something else than vLLM's RMSNorm: result 0 is off by" in said
    assert made == "RMSNorm"


def test_a_layer_of_another_plugin_stays(tmp_path: Path) -> None:
    script = """
from vllm.model_executor.custom_op import CustomOp
from vllm.model_executor.layers.layernorm import RMSNorm

@CustomOp.register_oot(name="RMSNorm")
class Other(RMSNorm):
    pass

load(sys.argv[1])
print(type(RMSNorm(64)).__name__)
"""
    said, made = used(script, build(exported(RMS, RMS_CPP), tmp_path))
    assert "another plugin's" in said
    assert made == "Other"


def test_the_registry_of_older_versions_is_in_the_class(tmp_path: Path) -> None:
    script = """
from vllm.model_executor import custom_op
custom_op.CustomOp.op_registry_oot = custom_op.op_registry_oot
del custom_op.op_registry_oot
custom_op.CustomOp.__new__ = lambda cls, *a, **k: torch.nn.Module.__new__(cls.op_registry_oot.get(cls.__name__, cls))
custom_op.__dict__["op_registry_oot_of_old"] = custom_op.CustomOp.op_registry_oot


def register_oot(cls, _decorated_op_cls=None, name=None):
    def decorator(op_cls):
        cls.op_registry_oot[name] = op_cls
        op_cls.name = name
        return op_cls
    return decorator


custom_op.CustomOp.register_oot = classmethod(register_oot)
load(sys.argv[1])
from vllm.model_executor.layers.layernorm import RMSNorm
print(type(RMSNorm(64)).__name__)
"""
    assert used(script, build(exported(RMS, RMS_CPP), tmp_path)) == ["WarpsmithRMSNorm"]


@pytest.mark.parametrize(
    ("document", "field", "expected"),
    [
        (RMS | {"name": "softmax"}, "name", "one of rms_norm (RMSNorm), add_rms_norm"),
        (spec("rms_norm", ["x", "weight"], "    return x * weight\n"), "reference", "with a number, or an input eps"),
        (spec("rms_norm", ["x", "y", "weight"], "    return x * weight\n"), "inputs", "x of two axes, a weight of one"),
        (spec("gelu_tanh", ["x", "weight"], "    return x * weight\n"), "inputs", "x of two axes: what vLLM's NewGELU"),
        (spec("gelu_tanh", ["x"], "    return x, x\n", outputs=2), "outputs", "1"),
    ],
)
def test_an_op_that_is_no_known_layer_is_refused(
    document: dict[str, Any], field: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecErrors) as caught:
        build(exported(document, RMS_CPP), tmp_path)
    (error,) = caught.value.errors
    assert error.field == field
    assert expected in error.expected
    assert list(tmp_path.iterdir()) == []


def test_the_project_is_the_package_and_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    project, plain = (
        build(exported(RMS, RMS_CPP), tmp_path),
        registry.named("package").build(exported(RMS, RMS_CPP), tmp_path / "plain"),
    )
    points = tomllib.loads((project / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points == {"vllm.general_plugins": {project.name: f"{project.name}._vllm:register"}}
    assert "entry-points" not in (plain / "pyproject.toml").read_text()
    ours = {path.relative_to(project).as_posix() for path in project.rglob("*.py")}
    theirs = {path.relative_to(plain).as_posix() for path in plain.rglob("*.py")}
    assert ours - theirs == {f"{project.name}/_vllm.py", f"{project.name}/_layer.py"}
    assert "## In vLLM" in (project / "README.md").read_text()
    assert "## In vLLM" not in (plain / "README.md").read_text()
