"""The ops of the catalogue. Each takes its shapes: the first is the bench workload, the last the hold-out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.jobs import Role, output, scalar, tensor, workload
from benchmarks.redteam_catalogue.entry import Op
from warpsmith.kernels_db.job.documents import ResolvedInput, ResolvedOutput

Shape = tuple[int, ...]
Tensors = tuple[list[ResolvedInput], list[ResolvedOutput]]

LENGTHS: list[Shape] = [(5000,), (257,), (1031,)]
ROWS: list[Shape] = [(64, 128), (3, 17), (5, 133)]


def build(
    name: str,
    returns: str,
    shapes: Sequence[Shape],
    tensors: Callable[[Shape], Tensors],
    flops: Callable[[Shape], int] | None = None,
) -> Op:
    """An op whose `run` takes the inputs of `tensors` and has `returns` as its body."""
    workloads = []
    for number, shape in enumerate(shapes):
        role: Role = "bench" if number == 0 else "holdout" if number == len(shapes) - 1 else "test"
        inputs, outputs = tensors(shape)
        work = flops(shape) if flops else None
        workloads.append(workload("x".join(map(str, shape)) or "scalar", role, inputs, outputs, flops=work))
    parameters = ", ".join(item["name"] for item in workloads[0]["inputs"])
    body = "\n".join(f"    {line}" for line in returns.splitlines())
    reference = f"import torch\nimport torch.nn.functional as F\n\n\ndef run({parameters}):\n{body}\n"
    return Op(name, reference, tuple(workloads))


def add(shapes: Sequence[Shape] = LENGTHS, dtype: str = "float32") -> Op:
    """x + y."""

    def tensors(shape: Shape) -> Tensors:
        dist = {"kind": "randint", "low": -1000, "high": 1000} if "int" in dtype else {"kind": "normal"}
        inputs = [tensor(name, shape, dtype=dtype, **dist) for name in ("x", "y")]
        return inputs, [output("out", shape, dtype=dtype)]

    return build("add", "return x + y", shapes, tensors)


def affine(shapes: Sequence[Shape] = ROWS, dtype: str = "float32") -> Op:
    """x * w + b, with weights for each column."""

    def tensors(shape: Shape) -> Tensors:
        inputs = [tensor("x", shape, dtype=dtype), *(tensor(name, shape[1:], dtype=dtype) for name in "wb")]
        return inputs, [output("out", shape, dtype=dtype)]

    return build("affine", "return x * w + b", shapes, tensors)


def residual(shapes: Sequence[Shape] = ROWS) -> Op:
    """x plus a small share of y * w."""

    def tensors(shape: Shape) -> Tensors:
        return [tensor("x", shape), tensor("y", shape), tensor("w", shape[1:])], [output("out", shape)]

    return build("residual", "return x + 1e-4 * (y * w)", shapes, tensors)


def unary(name: str, returns: str, shapes: Sequence[Shape] = LENGTHS, dtype: str = "float32", **dist: Any) -> Op:
    """A function of x, element by element."""

    def tensors(shape: Shape) -> Tensors:
        return [tensor("x", shape, dtype=dtype, **dist)], [output("out", shape, dtype=dtype)]

    return build(name, returns, shapes, tensors)


def divide(shapes: Sequence[Shape] = LENGTHS, dtype: str = "float32") -> Op:
    """x / y where many y are zero: infinities of either sign."""

    def tensors(shape: Shape) -> Tensors:
        inputs = [tensor("x", shape, dtype=dtype), tensor("y", shape, dtype=dtype, kind="bernoulli", p=0.9)]
        return inputs, [output("out", shape, dtype=dtype)]

    return build("divide", "return x / y", shapes, tensors)


def greater(shapes: Sequence[Shape] = LENGTHS) -> Op:
    """x > y, as booleans."""

    def tensors(shape: Shape) -> Tensors:
        return [tensor("x", shape), tensor("y", shape)], [output("out", shape, dtype="bool")]

    return build("greater", "return x > y", shapes, tensors)


def row_op(name: str, returns: str, shapes: Sequence[Shape] = ROWS, dtype: str = "float32", **dist: Any) -> Op:
    """A function of each row of x that has the row's shape."""

    def tensors(shape: Shape) -> Tensors:
        return [tensor("x", shape, dtype=dtype, **dist)], [output("out", shape, dtype=dtype)]

    return build(name, returns, shapes, tensors)


def softmax(shapes: Sequence[Shape] = ROWS, dtype: str = "float32") -> Op:
    """Softmax of each row."""
    return row_op("softmax", "return torch.softmax(x, -1)", shapes, dtype)


def cumsum(shapes: Sequence[Shape] = ROWS) -> Op:
    """Running sums of each row."""
    return row_op("cumsum", "return torch.cumsum(x, -1)", shapes)


def recurrence(shapes: Sequence[Shape]) -> Op:
    """h = 0.9 h + x along each row, which eager does step by step: a large speed-up is honest."""
    steps = "h = torch.zeros_like(x[:, 0])\nall = []\nfor t in range(x.shape[1]):\n"
    steps += "    h = 0.9 * h + x[:, t]\n    all.append(h)\nreturn torch.stack(all, 1)"
    return row_op("recurrence", steps, shapes)


def row_mean(shapes: Sequence[Shape] = ROWS) -> Op:
    """The mean of each row."""

    def tensors(shape: Shape) -> Tensors:
        return [tensor("x", shape)], [output("out", shape[:1])]

    return build("row_mean", "return x.mean(-1)", shapes, tensors)


def argmax(shapes: Sequence[Shape] = ROWS) -> Op:
    """The place of each row's largest element."""

    def tensors(shape: Shape) -> Tensors:
        return [tensor("x", shape)], [output("out", shape[:1], dtype="int64")]

    return build("argmax", "return x.argmax(-1)", shapes, tensors)


def extremes(shapes: Sequence[Shape] = ROWS) -> Op:
    """Two outputs: each row's sum and largest element."""

    def tensors(shape: Shape) -> Tensors:
        return [tensor("x", shape)], [output("total", shape[:1]), output("most", shape[:1])]

    return build("extremes", "return x.sum(-1), x.amax(-1)", shapes, tensors)


def total(shapes: Sequence[Shape] = LENGTHS, dtype: str = "float32") -> Op:
    """The sum of all elements, without an axis left."""

    def tensors(shape: Shape) -> Tensors:
        return [tensor("x", shape, dtype=dtype, kind="uniform")], [output("out", (), dtype=dtype)]

    return build("total", "return x.sum()", shapes, tensors)


def histogram(shapes: Sequence[Shape] = LENGTHS) -> Op:
    """How often each of 40 numbers occurs."""

    def tensors(shape: Shape) -> Tensors:
        numbers = tensor("x", shape, dtype="int64", kind="randint", low=0, high=40)
        return [numbers], [output("out", (40,), dtype="int64")]

    return build("histogram", "return torch.bincount(x, minlength=40)", shapes, tensors)


def gather(shapes: Sequence[Shape] = ROWS, dtype: str = "float32") -> Op:
    """Rows of a table, by index."""

    def tensors(shape: Shape) -> Tensors:
        indices = tensor("index", (shape[0] + 3,), dtype="int64", kind="randint", low=0, high=shape[0])
        return [tensor("x", shape, dtype=dtype), indices], [output("out", (shape[0] + 3, shape[1]), dtype=dtype)]

    return build("gather", "return x[index]", shapes, tensors)


def padded_gather(shapes: Sequence[Shape] = ROWS) -> Op:
    """Rows of a table, by index; zeros for a negative one, of which -1 alone is drawn."""

    def tensors(shape: Shape) -> Tensors:
        index = tensor("index", (shape[0] + 3,), dtype="int64", kind="randint", low=-1, high=shape[0])
        index["values"] = {"range": [-100, shape[0] - 1]}
        return [tensor("x", shape), index], [output("out", (shape[0] + 3, shape[1]))]

    returns = "return torch.where(index[:, None] < 0, torch.zeros_like(x[:1]), x[index.clamp(min=0)])"
    return build("padded_gather", returns, shapes, tensors)


def inverse(shapes: Sequence[Shape] = LENGTHS) -> Op:
    """The inverse of a permutation."""

    def tensors(shape: Shape) -> Tensors:
        return [tensor("p", shape, dtype="int64", kind="permutation")], [output("out", shape, dtype="int64")]

    return build("inverse", "return torch.argsort(p)", shapes, tensors)


def layer_norm(shapes: Sequence[Shape] = ROWS, dtype: str = "float32", mean: float = 0.0) -> Op:
    """Layer normalisation of each row, with weight and bias; `mean` is that of the inputs, whose deviation is 1."""

    def tensors(shape: Shape) -> Tensors:
        x = tensor("x", shape, dtype=dtype, kind="normal", mean=mean)
        return [x, *(tensor(name, shape[1:], dtype=dtype) for name in "wb")], [output("out", shape, dtype=dtype)]

    return build("layer_norm", "return F.layer_norm(x, w.shape, w, b, 1e-5)", shapes, tensors)


def rms_norm(shapes: Sequence[Shape] = ROWS, dtype: str = "float32") -> Op:
    """RMS normalisation of each row, with a weight."""

    def tensors(shape: Shape) -> Tensors:
        inputs = [tensor("x", shape, dtype=dtype), tensor("w", shape[1:], dtype=dtype)]
        return inputs, [output("out", shape, dtype=dtype)]

    return build("rms_norm", "return F.rms_norm(x, w.shape, w, 1e-6)", shapes, tensors)


def masked_softmax(shapes: Sequence[Shape] = ROWS) -> Op:
    """Softmax over what a mask leaves; a row that is masked whole is NaN."""

    def tensors(shape: Shape) -> Tensors:
        mask = tensor("mask", shape, dtype="bool", kind="bernoulli", p=0.3)
        return [tensor("x", shape), mask], [output("out", shape)]

    return build("masked_softmax", 'return torch.softmax(x.masked_fill(mask, float("-inf")), -1)', shapes, tensors)


def transposed_sum(shapes: Sequence[Shape] = ROWS) -> Op:
    """x + y where x lies column by column."""

    def tensors(shape: Shape) -> Tensors:
        rows, columns = shape
        return [tensor("x", shape, strides=(1, rows)), tensor("y", shape)], [output("out", (rows, columns))]

    return build("transposed_sum", "return x + y", shapes, tensors)


def gapped_sum(shapes: Sequence[Shape] = ROWS) -> Op:
    """x + y where the rows of x lie apart."""

    def tensors(shape: Shape) -> Tensors:
        rows, columns = shape
        return [tensor("x", shape, strides=(columns + 32, 1)), tensor("y", shape)], [output("out", (rows, columns))]

    return build("gapped_sum", "return x + y", shapes, tensors)


def fused_in_place(shapes: Sequence[Shape] = ROWS) -> Op:
    """x becomes max(x + m * y + bias, 0)."""

    def tensors(shape: Shape) -> Tensors:
        x = tensor("x", shape, mutated=True, kind="normal")
        return [x, tensor("y", shape), tensor("bias", shape[1:]), scalar("m", 0.75)], []

    return build("fused_in_place", "x.add_(y, alpha=m).add_(bias).relu_()", shapes, tensors)


def matmul(shapes: Sequence[Shape], dtype: str = "float32") -> Op:
    """a @ b; a shape is (m, k, n)."""

    def tensors(shape: Shape) -> Tensors:
        m, k, n = shape
        return [tensor("a", (m, k), dtype=dtype), tensor("b", (k, n), dtype=dtype)], [
            output("out", (m, n), dtype=dtype)
        ]

    return build("matmul", "return a @ b", shapes, tensors, lambda shape: 2 * shape[0] * shape[1] * shape[2])


def conv2d(shapes: Sequence[Shape]) -> Op:
    """A 3 x 3 convolution without padding; a shape is (batch, channels, height, width, filters)."""

    def tensors(shape: Shape) -> Tensors:
        batch, channels, height, width, filters = shape
        inputs = [tensor("x", (batch, channels, height, width)), tensor("w", (filters, channels, 3, 3))]
        return inputs, [output("out", (batch, filters, height - 2, width - 2))]

    return build("conv2d", "return F.conv2d(x, w)", shapes, tensors)


def row_sum(shapes: Sequence[Shape] = ROWS, dtype: str = "float32") -> Op:
    """The sum of each row."""

    def tensors(shape: Shape) -> Tensors:
        return [tensor("x", shape, dtype=dtype)], [output("out", shape[:1], dtype=dtype)]

    return build("row_sum", "return x.sum(-1)", shapes, tensors)


def gate(shapes: Sequence[Shape], kept: int = 4) -> Op:
    """The weights and places of the likeliest experts, whose bfloat16 scores have many equals."""

    def tensors(shape: Shape) -> Tensors:
        results = (shape[0], kept)
        return [tensor("x", shape, dtype="bfloat16")], [
            output("weight", results, dtype="bfloat16"),
            output("expert", results, dtype="int64"),
        ]

    body = f"found = torch.topk(torch.softmax(x.float(), -1), {kept}, dim=-1)\n"
    body += "weight = found.values / found.values.sum(-1, keepdim=True)\nreturn weight.to(x.dtype), found.indices"
    return build("gate", body, shapes, tensors)


def order(shapes: Sequence[Shape], dtype: str = "bfloat16", *, stable: bool = False) -> Op:
    """The order of each row's elements, from the smallest."""

    def tensors(shape: Shape) -> Tensors:
        return [tensor("x", shape, dtype=dtype)], [output("out", shape, dtype="int64")]

    return build("order", f"return torch.argsort(x, dim=-1{', stable=True' if stable else ''})", shapes, tensors)


def nearest(shapes: Sequence[Shape]) -> Op:
    """The nearest code of each row; a shape is (rows, codes, n)."""

    def tensors(shape: Shape) -> Tensors:
        rows, codes, n = shape
        return [tensor("x", (rows, n)), tensor("codes", (codes, n))], [output("out", (rows,), dtype="int64")]

    return build("nearest", "return torch.cdist(x, codes).argmin(-1)", shapes, tensors)


def quantise(shapes: Sequence[Shape], dtype: str = "int8", given: str = "float32") -> Op:
    """Rows divided by their scales and rounded to 8 bits."""

    def tensors(shape: Shape) -> Tensors:
        spread = 4.0 if "float" in dtype else 20.0
        x = tensor("x", shape, dtype=given, kind="normal", std=spread)
        scale = tensor("scale", (shape[0], 1), dtype=given, kind="uniform", low=0.3, high=0.9)
        return [x, scale], [output("out", shape, dtype=dtype)]

    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    rounded = f"torch.clamp(torch.round(x / scale){' + 128' if dtype == 'uint8' else ''}, {low}, {high})"
    return build(
        f"quantise_{dtype}",
        f"return ({'x / scale' if 'float' in dtype else rounded}).to(torch.{dtype})",
        shapes,
        tensors,
    )


def embedding(shapes: Sequence[Shape]) -> Op:
    """A few rows of a large table; a shape is (rows, n, picked)."""

    def tensors(shape: Shape) -> Tensors:
        rows, n, picked = shape
        index = tensor("index", (picked,), dtype="int64", kind="randint", low=0, high=rows)
        return [tensor("x", (rows, n)), index], [output("out", (picked, n))]

    return build("embedding", "return F.embedding(index, x)", shapes, tensors)
