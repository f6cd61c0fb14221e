"""Which leading sizes of a graph a reference is traced for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
import torch

from warpsmith.workers.optimize.compiled import inductor, leads, match
from warpsmith.workers.optimize.compiled.served import SOME, Rows

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

CPU = torch.device("cpu")


class Product(Rows):
    """The product of rows with a matrix, traced with one leading axis."""

    devices = ("cpu",)

    def __init__(self) -> None:
        super().__init__([("rows", "width"), ("columns", "width")], ["rows"])
        self.traced: list[Any] = []

    def axes(self, tensors: Sequence[torch.Tensor], numbers: Any = ()) -> dict[str, int]:
        return {"rows": tensors[0].shape[0], "columns": tensors[1].shape[0], "width": tensors[1].shape[1]}

    def pattern(self, lead: Any, device: torch.device, shapes: Any = None, integers: Any = None) -> match.Pattern:
        self.traced.append(lead)
        given = [torch.zeros(*lead, 16), torch.zeros(8, 16)]
        return match.Pattern.of(inductor.operators(torch.nn.functional.linear, given))


def proposed(run: Any, *given: torch.Tensor) -> set[Any]:
    graph = inductor.operators(run, list(given))
    operators = {str(node.target) for node in graph.nodes if node.op == "call_function"}
    return {lead for lead, _ in leads.leads(leads.Read(graph), cast("Any", Product()), operators)}


def test_only_what_a_reference_reads_is_its_first_tensor() -> None:
    """The four axes are read by a sine alone, and a product reads three of them, through a view of two."""

    def run(x: torch.Tensor, heads: torch.Tensor, weight: torch.Tensor) -> Any:
        return torch.nn.functional.linear(x, weight), heads.sin()

    found = proposed(run, torch.zeros(1, 5, 16), torch.zeros(1, 5, 4, 16), torch.zeros(8, 16))
    assert {(1, 5), (SOME[0],)} <= found
    assert not any(len(lead) == 3 for lead in found)


def test_a_copy_is_read_by_what_reads_it() -> None:
    def run(heads: torch.Tensor, weight: torch.Tensor) -> Any:
        return torch.nn.functional.linear(heads.transpose(1, 2).contiguous(), weight)

    assert (1, 5, 7) in proposed(run, torch.zeros(1, 4, 6, 16), torch.zeros(8, 16))


def test_an_op_whose_reference_reads_nothing_there_is_traced_once() -> None:
    op = Product()
    graph = inductor.operators(torch.sin, [torch.zeros(3, 16)])
    assert leads.leads(leads.Read(graph), cast("Any", op), {"aten.sin.default"}) == []
    assert op.traced == [SOME[:1]]


def test_a_product_of_one_row_may_be_written_out() -> None:
    """Inductor makes one a sum of products under `coordinate_descent_tuning`."""

    def run(x: torch.Tensor, weight: torch.Tensor) -> Any:
        return (x.unsqueeze(-1) * weight.t()).sum(1)

    graph = inductor.operators(run, [torch.zeros(1, 16), torch.zeros(8, 16)])
    assert "product" in leads.Read(graph).readers[(1, 16), CPU]
