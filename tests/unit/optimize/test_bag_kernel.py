"""The kernel of grouped embedding bags: interpreted, against PyTorch's order of additions, and compiled for sm_90."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="Triton is not installed")

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource
from triton.runtime.jit import create_function_from_signature

from warpsmith.workers.judge.runner.interpreter.bfloat16_rounding import bfloat16_rounding
from warpsmith.workers.optimize.compiled import bag_kernel
from warpsmith.workers.optimize.compiled.bag_kernel import Part, Plan

ROWS = 7
SMALL = 256
"""Elements of a program: so few that a result of a dozen bags has several."""


@pytest.fixture(scope="module")
def interpreted() -> Iterator[ModuleType]:
    """The module with its kernel interpreted: Triton decides where it is defined."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        spec = importlib.util.spec_from_file_location("interpreted_bags", bag_kernel.__file__)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        patch.setattr(module, "ELEMENTS", SMALL)
        assert module.INTERPRETED
        with bfloat16_rounding():
            yield module


def in_order(part: Part, tensors: list[torch.Tensor], bag: int, bags: int) -> torch.Tensor:
    """One bag as `EmbeddingBag.cu` computes it: row after row, in float32."""
    table = tensors[part.table]
    if part.indices is None:
        return table[bag]
    indices = tensors[part.indices].tolist()
    begin, end = bag * part.length, (bag + 1) * part.length
    if part.offsets is not None:
        offsets = tensors[part.offsets].tolist()
        begin = offsets[bag] if bag else 0
        end = offsets[bag + 1] if bag < bags - 1 else len(indices)
    if part.mode == "row":
        return table[indices[begin]]
    total, counted = torch.zeros(part.width), 0
    for at in range(begin, end):
        if indices[at] == part.padding:
            continue
        row = table[indices[at]].float()
        if part.mode == "max":
            total = row if not counted else torch.where(row > total, row, total)
        else:
            total = total + (row if part.weights is None else row * tensors[part.weights][at].float())
        counted += 1
    return (total / max(counted, 1) if part.mode == "mean" else total).to(table.dtype)


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[torch.Tensor], Plan]:
    """Tensors and a plan of them: bags of every mode, empty ones, rows, copies, strides; weights are powers of 2."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    integer = draw(st.sampled_from([torch.int64, torch.int32]))
    bags, stacked = draw(st.integers(1, 12)), draw(st.booleans())
    width = draw(st.integers(1, 20))
    tensors: list[torch.Tensor] = []
    parts: list[Part] = []

    def add(tensor: torch.Tensor) -> int:
        tensors.append(tensor)
        return len(tensors) - 1

    def listed(values: torch.Tensor) -> int:
        step = draw(st.integers(1, 3))
        spread = values.new_zeros(max(1, values.shape[0]), step)
        spread[: values.shape[0], 0] = values
        return add(spread[: values.shape[0], 0])

    for _ in range(draw(st.integers(1, 4))):
        columns = width if stacked else draw(st.integers(1, 20))
        mode = draw(st.sampled_from(bag_kernel.MODES))
        if mode == "copy":
            parts.append(Part(mode, add(torch.randn(bags, columns, generator=generator).to(dtype)), columns))
            continue
        table = add(torch.randn(ROWS, columns, generator=generator).to(dtype))
        tensors[table][0] = draw(st.sampled_from([0.0, -0.0, float("nan"), float("inf")]))
        lengths = torch.randint(0, 4, (bags,), generator=generator)
        if mode == "row" or draw(st.booleans()):
            lengths[:] = 1 if mode == "row" else draw(st.integers(1, 3))
        indices = torch.randint(ROWS, (int(lengths.sum()),), generator=generator)
        part = Part(mode, table, columns, listed(indices.to(integer)), padding=-1 if mode == "row" else draw(_PADDING))
        if mode == "row" or (bool((lengths == lengths[0]).all()) and lengths[0] and draw(st.booleans())):
            part = replace(part, length=int(lengths[0]))
        else:
            last = draw(st.booleans())
            ends = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).to(integer)
            part = replace(part, offsets=add(ends if last else ends[:-1]), last=last)
        if mode == "sum" and draw(st.booleans()):
            weights = 2.0 ** torch.randint(-2, 3, indices.shape, generator=generator)
            part = replace(part, weights=listed(weights.to(dtype)))
        parts.append(part)
    return tensors, Plan(tuple(parts), stacked)


_PADDING = st.sampled_from([-1, 0, 3])


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two results are the same bits, but for which NaN it is."""
    bits = {2: torch.int16, 4: torch.int32}[found.element_size()]
    either = (found.view(bits) == expected.view(bits)) | (found.isnan() & expected.isnan())
    return found.dtype == expected.dtype and found.shape == expected.shape and bool(either.all())


@settings(max_examples=15, deadline=None)
@given(call=calls())
def test_each_bag_is_added_in_order_to_the_bit(interpreted: ModuleType, call: tuple[list[torch.Tensor], Plan]) -> None:
    tensors, plan = call
    bags = plan.parts[0].bags(tensors)
    found = interpreted.allocated(tensors, plan.written())
    interpreted.launch(tensors, plan.written(), found)
    each = [torch.stack([in_order(part, tensors, bag, bags) for bag in range(bags)]) for part in plan.parts]
    assert same(found, torch.cat(each, 0 if plan.stacked else 1))
    if found.dtype is torch.float32 and all(part.mode != "mean" for part in plan.parts):
        assert same(found, bag_kernel.plain(tensors, plan.written()))  # a CPU's code rounds others in another way


def tables_of(count: int, dtype: torch.dtype, bags: int, width: int = 128) -> tuple[list[torch.Tensor], Plan]:
    """Bags of several tables behind a copy, as a DLRM has them."""
    lists = [torch.zeros(bags, dtype=torch.int64) for _ in range(2 * count)]
    tensors = [torch.zeros(bags, width, dtype=dtype), *torch.zeros(count, ROWS, width, dtype=dtype), *lists]
    bag = [Part("sum", 1 + at, width, 1 + count + at, 1 + 2 * count + at) for at in range(count)]
    return tensors, Plan((Part("copy", 0, width), *bag), False)


def bound(tensors: list[torch.Tensor], plan: Plan) -> tuple[dict[str, Any], list[Any]]:
    """The arguments of a plan's first launch by name, and what of them Triton compiles for."""
    target = CUDABackend(GPUTarget("cuda", 90, 32))
    kernel: Any = bag_kernel._write
    bind = create_function_from_signature(kernel.signature, kernel.params, target)
    one = bag_kernel._launches(plan.written())[0]
    arguments, constants = bag_kernel._arguments(tensors, one)
    output = bag_kernel.allocated(tensors, plan.written())
    given, special, _ = bind(output, *arguments, plan.parts[0].bags(tensors), **constants)
    return given, special


def compiled(tensors: list[torch.Tensor], plan: Plan) -> str:
    """The PTX of a plan's first launch on an H100."""
    given, special = bound(tensors, plan)
    constants = {
        (at,): value
        for at, (value, (kind, _)) in enumerate(zip(given.values(), special, strict=True))
        if kind == "constexpr"
    }
    attributes: dict[tuple[int, ...], Any] = {}

    def mark(path: tuple[int, ...], fact: Any) -> None:
        if isinstance(fact, tuple):
            for at, each in enumerate(fact):
                mark((*path, at), each)
        elif fact == "D":
            attributes[path] = [["tt.divisibility", 16]]

    for at, (kind, fact) in enumerate(special):
        if kind != "constexpr":
            mark((at,), fact)
    signature = dict(zip(given, (kind for kind, _ in special), strict=True))
    source = ASTSource(fn=bag_kernel._write, signature=signature, constexprs=constants, attrs=attributes)
    options = {"debug": True, "sanitize_overflow": False}
    found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    return str(found.asm["ptx"])


def test_rows_are_read_and_written_in_vectors_of_sixteen_bytes() -> None:
    ptx = compiled(*tables_of(3, torch.bfloat16, 64))
    assert set(re.findall(r"(?:ld|st)\.global\S*", ptx)) == {"ld.global.b64", "ld.global.v4.b32", "st.global.v4.b32"}
    assert "an index is out of range" in asserted(ptx)
    assert "a bag ends before it begins" in asserted(ptx)


def asserted(ptx: str) -> str:
    """The texts of a kernel's assertions."""
    listed = re.findall(r"assertMessage_\d+\[\d+\] = \{([\d, ]+)\}", ptx)
    return "\n".join(bytes(int(each) for each in text.split(",")).decode() for text in listed)


def test_weights_are_multiplied_and_added_in_one_rounding_and_means_divided_in_one() -> None:
    tensors, plan = tables_of(2, torch.float32, 64)
    weighted, mean = replace(plan.parts[1], weights=len(tensors)), replace(plan.parts[2], mode="mean")
    ptx = compiled([*tensors, torch.ones(64)], Plan((plan.parts[0], weighted, mean), False))
    assert "fma.rn.f32" in ptx
    assert "div.rn.f32" in ptx
    assert "div.full" not in ptx


@pytest.mark.parametrize("bags", [1, 8, 16, 2048])
def test_another_batch_is_compiled_for_by_the_same_code(bags: int) -> None:
    facts = [bound(*tables_of(2, torch.bfloat16, count))[1] for count in (7, bags)]
    assert facts[0] == facts[1]


@pytest.mark.parametrize("integer", [torch.int64, torch.int32])
def test_lists_that_are_rows_of_one_tensor_may_lie_anywhere(integer: torch.dtype) -> None:
    facts = []
    for bags in (2048, 2047, 2046):
        (copied, *rest), plan = tables_of(2, torch.bfloat16, bags)
        facts.append(bound([copied, *rest[:2], *torch.zeros(4, bags, dtype=integer)], plan)[1])
    assert facts[0] == facts[1] == facts[2]


def test_more_parts_than_a_launch_has_are_written_by_several(
    interpreted: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreted, "MOST_PARTS", 2)
    for stacked in (False, True):
        plan = Plan(tuple(Part("copy", at, 3) for at in range(5)), stacked)
        tensors = [torch.randn(4, 3) for _ in plan.parts]
        assert len(interpreted._launches(plan.written())) == 3
        found = interpreted.bags(tensors, plan.written())
        assert torch.equal(found, torch.cat(tensors, 0 if stacked else 1))


def test_after_a_launch_that_raised_pytorch_serves_and_a_warning_says_why(
    interpreted: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_order(*_: Any) -> None:
        raise RuntimeError("no such device")

    monkeypatch.setattr(interpreted, "_failed", [])
    monkeypatch.setattr(interpreted, "launch", out_of_order)
    tensors, plan = tables_of(2, torch.float32, 3, 4)
    assert interpreted.failure() is None
    with pytest.warns(RuntimeWarning, match="embedding bags go to PyTorch from now on: .*RuntimeError: no such device"):
        found = interpreted.bags(tensors, plan.written())
    assert torch.equal(found, bag_kernel.plain(tensors, plan.written()))
    assert "no such device" in interpreted.failure()
    monkeypatch.setattr(interpreted, "launch", bag_kernel.launch)
    assert torch.equal(interpreted.bags(tensors, plan.written()), found)


def test_a_copy_of_the_module_has_the_same_operator_and_other_code_another(
    interpreted: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert interpreted.operator is bag_kernel.operator
    file = tmp_path / "other_bags.py"
    file.write_text(f"{Path(bag_kernel.__file__).read_text('utf-8')}\n# another version\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    other = importlib.import_module("other_bags")
    tensors, plan = tables_of(2, torch.float32, 3, 4)
    assert other.operator is not bag_kernel.operator
    found = [module.operator(tensors, plan.written()) for module in (other, bag_kernel)]
    assert torch.equal(*found)


def test_an_index_that_is_out_of_range_is_an_error_of_pytorchs_on_a_cpu() -> None:
    tensors, plan = tables_of(2, torch.float32, 3, 4)
    tensors[3][1] = ROWS
    with pytest.raises(RuntimeError, match="not in the valid range"):
        bag_kernel.operator(tensors, plan.written())
