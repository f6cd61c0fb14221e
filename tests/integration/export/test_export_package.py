"""The exported package, read and used as its new owner would: in a fresh process, with Warpsmith out of reach."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.exporting import IN_PLACE, IN_PLACE_CPP, SCALED_ADD, SCALED_ADD_CPP, exported, in_fresh_process
from warpsmith.kernels_db.export.kernel import module_name
from warpsmith.kernels_db.export.package import build

pytest.importorskip("torch", reason="exports are used with torch, which is not installed")


@pytest.mark.parametrize(
    ("spec", "source"), [(SCALED_ADD, SCALED_ADD_CPP), (IN_PLACE, IN_PLACE_CPP)], ids=["returns", "in_place"]
)
def test_selfcheck_agrees_with_pytorch(spec: dict[str, Any], source: str, tmp_path: Path) -> None:
    project = build(exported(spec, source), tmp_path / "out")
    done = in_fresh_process(project, "-m", f"{project.name}.selfcheck", "--json", home=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)
    assert report["agrees"]
    assert [w["workload"] for w in report["workloads"]] == ["small", "large"]
    assert all(w["served_by"].startswith("kernel") for w in report["workloads"])


def test_selfcheck_finds_a_wrong_kernel(tmp_path: Path) -> None:
    project = build(exported(SCALED_ADD, SCALED_ADD_CPP.replace("x[i] + m", "x[i] - m")), tmp_path / "out")
    done = in_fresh_process(project, "-m", f"{project.name}.selfcheck", home=tmp_path)
    assert done.returncode == 1
    assert "DIFFERS" in done.stdout


USE = """
import warnings
import torch
import {module} as package

x, y = torch.randn(40, 8), torch.randn(40, 8)
expected = x + 0.5 * y
torch.testing.assert_close(package.scaled_add(x, y, 0.5), expected)
torch.library.opcheck(package._op.op, (x, y, 0.5))
double = lambda x, y: package.scaled_add(x, y, 0.5) * 2
compiled = torch.compile(double, fullgraph=True, dynamic=True, backend="aot_eager")
torch.testing.assert_close(compiled(x, y), 2 * expected)
assert package.status()["served"]["kernel"] >= 2, package.status()

needs = x.clone().requires_grad_()
package.scaled_add(needs, y, 0.5).sum().backward()
torch.testing.assert_close(needs.grad, torch.ones_like(x))

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    strided = torch.randn(8, 40).t()
    torch.testing.assert_close(package.scaled_add(strided, y, 0.5), strided + 0.5 * y)
    torch.testing.assert_close(package.scaled_add(x.double(), y.double(), 0.5), expected.double())
    many = torch.randn(41, 8)
    torch.testing.assert_close(package.scaled_add(many, many, 0.5), 1.5 * many)
assert [w.category for w in caught] == [RuntimeWarning], [str(w.message) for w in caught]
assert "strided" in str(caught[0].message)
assert package.status()["served"]["pytorch"] == 3
assert "verified from 3 to 40" in package.explain(many, many, 0.5)
assert "expected columns = 8" in package.explain(torch.randn(3, 9), torch.randn(3, 9), 0.5)
print("used")
"""


def test_use_inside_and_outside_the_envelope(tmp_path: Path) -> None:
    project = build(exported(SCALED_ADD, SCALED_ADD_CPP), tmp_path / "out")
    done = in_fresh_process(project, "-c", USE.format(module=project.name), home=tmp_path)
    assert done.stdout.strip() == "used", done.stderr


STEPS = """
import torch
import {module} as package

good, odd, wide = (torch.ones(rows, columns) for rows, columns in ((16, 32), (18, 36), (32, 16)))
assert package.explain(good, good, 0.5).startswith("kernel"), package.explain(good, good, 0.5)
assert "rows is 18, verified for multiples of 4" in package.explain(odd, odd, 0.5)
assert "rows is 32 and columns 16, verified where rows is at most columns" in package.explain(wide, wide, 0.5)
print("used")
"""


FAKES = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
import {module} as package

asked = []
own = package._compare.plain
package._compare.plain = lambda arguments: asked.append(1) or own(arguments)
op = package._op.op


def traced(*shape, dtype=torch.float32, scale=0.5):
    found = op(torch.empty(*shape, dtype=dtype), torch.empty(*shape, dtype=dtype), scale)
    assert (tuple(found.shape), found.dtype, found.device.type) == (shape, dtype, "cpu")
    assert found.is_contiguous()
    return len(asked)


with FakeTensorMode():
    assert traced(40, 8) == 1
    assert traced(40, 8) == 1, "the same call is traced once"
    assert traced(40, 9) == 2
    assert traced(40, 8, scale=0.25) == 3, "a number may decide a shape"
    assert traced(40, 8) == 3
with FakeTensorMode():
    assert traced(40, 8) == 3, "and of another model, or another compilation"
    for rows in range(package._op.MOST_FAKES):
        traced(100 + rows, 8)
    assert len(package._op._FAKES) <= package._op.MOST_FAKES
    del asked[3:]
    assert traced(40, 8) == 4, "the memory has a bound, and what it forgot is traced again"
    del asked[3:]
varies = FakeTensorMode(shape_env=ShapeEnv())
x = varies.from_tensor(torch.empty(40, 8))
assert all(isinstance(size, torch.SymInt) for size in x.shape)
for asked_before in (3, 4):
    assert op(x, x, 0.5).shape == x.shape
    assert len(asked) == asked_before + 1, "a size that varies is no number to remember"
"""


def test_a_call_is_traced_once_for_all_that_are_alike(tmp_path: Path) -> None:
    """A model has an op in each of its layers, and a compiler asks several times for each."""
    project = build(exported(SCALED_ADD, SCALED_ADD_CPP), tmp_path / "out")
    done = in_fresh_process(project, "-c", FAKES.format(module=project.name), home=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout


def test_the_envelope_is_where_hold_outs_are_drawn(tmp_path: Path) -> None:
    """Multiples of what divides every verified size, and what relates two axes in every verified shape."""
    sizes = ((8, 16), (40, 120))
    spec = SCALED_ADD | {
        "axes": {"rows": {"kind": "var"}, "columns": {"kind": "var"}},
        "workloads": [
            {"id": f"w{n}", "role": "bench", "axes": {"rows": rows + 4 * n, "columns": columns}}
            for n, (rows, columns) in enumerate(sizes)
        ],
    }
    project = build(exported(spec, SCALED_ADD_CPP), tmp_path / "out")
    assert "in multiples of 4" in (project / "README.md").read_text()
    assert "only where `rows` is at most `columns`" in (project / "README.md").read_text()
    done = in_fresh_process(project, "-c", STEPS.format(module=project.name), home=tmp_path)
    assert done.stdout.strip() == "used", done.stderr


USE_IN_PLACE = """
import torch
import {module} as package

x, y = torch.randn(40, 8), torch.randn(40, 8)
expected = x + 0.5 * y
mine = x.clone()
assert package.scaled_add_(mine, y, 0.5) is None
torch.testing.assert_close(mine, expected)
torch.library.opcheck(package._op.op, (x.clone(), y, 0.5))
assert "shares memory" in package.explain(mine, mine, 0.5)
leaf = x.clone().requires_grad_()
changed = leaf * 1
package.scaled_add_(changed, y, 0.5)
changed.sum().backward()
torch.testing.assert_close(leaf.grad, torch.ones_like(x))
print("used")
"""


def test_in_place_op(tmp_path: Path) -> None:
    project = build(exported(IN_PLACE, IN_PLACE_CPP), tmp_path / "out")
    done = in_fresh_process(project, "-c", USE_IN_PLACE.format(module=project.name), home=tmp_path)
    assert done.stdout.strip() == "used", done.stderr


def test_without_a_compiler_pytorch_serves(tmp_path: Path) -> None:
    project = build(exported(SCALED_ADD, SCALED_ADD_CPP), tmp_path / "out")
    script = f"import torch, {project.name} as p\nx = torch.ones(3, 8)\nprint(p.explain(x, x, 0.5))"
    variables = {"CXX": "no-such-compiler", "WARPSMITH_KERNEL_CACHE": str(tmp_path)}
    done = in_fresh_process(project, "-c", script, home=tmp_path, variables=variables)
    assert done.stdout.startswith("PyTorch: the kernel did not load"), done.stdout + done.stderr


def test_contents(tmp_path: Path) -> None:
    kernel = exported(SCALED_ADD, SCALED_ADD_CPP)
    project = build(kernel, tmp_path)
    assert project.name == module_name(kernel)
    package = project / project.name
    for path in project.rglob("*.py"):
        ast.parse(path.read_text())
        assert not re.search(r"^\s*(from|import) (kernels_db|workers)", path.read_text(), re.MULTILINE), path
    assert json.loads((package / "evidence.json").read_text()) == kernel.evidence
    readme = (project / "README.md").read_text()
    assert "2.00x [1.90, 2.10]" in readme
    assert "Apache License" in (project / "LICENSE").read_text()
    with pytest.raises(FileExistsError):
        build(kernel, tmp_path)
