"""Bad specs: each error names the field, what was found and what was expected, and all are told at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.spec.specs import SPEC, spec
from warpsmith.kernels_db.spec.document import MAX_BYTES
from warpsmith.kernels_db.spec.op import SpecError, SpecErrors, load_op, parse_op


def errors_of(document: Any) -> list[SpecError]:
    with pytest.raises(SpecErrors) as caught:
        parse_op(document)
    return caught.value.errors


def changed_at(place: str, value: Any) -> dict[str, Any]:
    document = spec()
    holder: Any = document
    *steps, last = (int(step) if step.isdigit() else step for step in place.split("."))
    for step in steps:
        holder = holder[step]
    holder[last] = value
    return document


REFERENCE = "def run(x, rows, m):\n    return x\n"


@pytest.mark.parametrize(
    ("place", "value", "field", "found", "expected"),
    [
        ("schema_version", 2, "schema_version", 2, "1"),
        ("name", "two words", "name", "two words", "a name"),
        ("name", "class", "name", "class", "no word of the language"),
        ("colour", 1, "colour", "colour", "one of the fields schema_version, name"),
        ("axes.tokens", {}, "axes.tokens.kind", None, "one of const, var, expr"),
        ("axes.tokens", {"kind": "vary"}, "axes.tokens.kind", "vary", "one of const, var, expr"),
        ("axes.hidden.value", 0, "axes.hidden.value", 0, "a positive integer"),
        ("axes.hidden.value", "16", "axes.hidden.value", "16", "a positive integer"),
        ("axes.hidden.value", True, "axes.hidden.value", True, "a positive integer"),
        ("axes.hidden.value", 2**50, "axes.hidden.value", 2**50, "at most 281474976710656"),
        ("axes.hidden.size", 1, "axes.hidden.size", "size", "the fields kind, value, description"),
        ("axes.min", {"kind": "const", "value": 1}, "axes.min", "min", "a name"),
        ("axes.twice.expr", "2 * hiden", "axes.twice.expr", "2 * hiden", "not hiden; an axis: one of hidden,"),
        ("axes.twice.expr", "2 *", "axes.twice.expr", "2 *", "at position 3"),
        ("axes.twice.expr", "twice + 1", "axes.twice.expr", "twice + 1", "does not depend on the axis itself"),
        ("axes.twice.expr", "hidden - 16", "axes.twice.expr", "hidden - 16 = 0", "a size from 1 to 2**48"),
        ("axes.twice.expr", "8 // (tokens - 64)", "axes.twice.expr", "8 // (tokens - 64)", "division by zero"),
        ("constraints", ["tokens + 1"], "constraints[0]", "tokens + 1", "expected a condition"),
        ("constraints", ["tokens < wide"], "constraints[0]", "tokens < wide", "not wide"),
        ("constraints", ["tokens % 64 == 0"], "workloads[1].axes", None, "meet the constraint 'tokens % 64 == 0'"),
        ("inputs", "x", "inputs", "x", "a list"),
        ("inputs.0", "x", "inputs[0]", "x", "a mapping"),
        ("inputs.1.name", "x", "inputs[1].name", "x", "another name, for inputs[0] bears it"),
        ("calls", ["rms norm"], "calls[0]", "rms norm", "text that matches"),
        ("workloads.0.weight", 0, "workloads[0].weight", 0, "a number above 0, at most 1e+12"),
        ("workloads.0.weight", -1.5, "workloads[0].weight", -1.5, "a number above 0, at most 1e+12"),
        ("workloads.0.weight", True, "workloads[0].weight", True, "a number above 0, at most 1e+12"),
        ("workloads.0.weight", "3", "workloads[0].weight", "3", "a number above 0, at most 1e+12"),
        ("workloads.0.weight", 1e13, "workloads[0].weight", 1e13, "a number above 0, at most 1e+12"),
        ("workloads.1.weight", 2, "workloads[1].weight", 2.0, "nothing, for a workload of role test has no part in"),
        ("inputs.1.dtype", "float31", "inputs[1].dtype", "float31", "one of float64, float32"),
        ("inputs.0.shape", ["token", "twice"], "inputs[0].shape[0]", "token", "an axis: one of hidden, tokens, twice"),
        ("inputs.0.shape", ["tokens", -1], "inputs[0].shape[1]", -1, "an axis name or a positive integer"),
        ("inputs.0.shape", ["tokens", 1.5], "inputs[0].shape[1]", 1.5, "an axis name or a positive integer"),
        ("inputs.0.shape", ["tokens", 2**45], "inputs[0].shape", f"[64, {2**45}]: {2**51} elements", "at most"),
        ("inputs.0.shape", ["tokens"] * 17, "inputs[0].shape", None, "at most 16 items"),
        ("inputs.0.mutated", "yes", "inputs[0].mutated", "yes", "true or false"),
        ("inputs.0.role", "output", "inputs[0].role", "output", "'input' or 'weight'"),
        ("inputs.0.alignment", 24, "inputs[0].alignment", 24, "a power of two"),
        ("accuracy", "exact", "accuracy", "exact", "'componentwise' or 'normwise'"),
        ("inputs.0.values", {"range": [1]}, "inputs[0].values.range", None, "at least 2"),
        ("inputs.0.values", {"range": [2, 1]}, "inputs[0].values", None, "first number is not above its second"),
        ("inputs.0.values", {"range": [-1, 1]}, "inputs[0].values.range", "[-1.0, 1.0]", "normal gives, from -6 to 6"),
        ("inputs.0.values", {"range": [True, 9]}, "inputs[0].values.range[0]", True, "a number for dtype float32"),
        ("inputs.0.values", {"finite": 1}, "inputs[0].values.finite", 1, "true or false"),
        ("inputs.1.values", {"finite": True}, "inputs[1].values.finite", True, "every number of dtype int64 is finite"),
        ("inputs.1.values", {"range": [0, 62]}, "inputs[1].values.range", "[0, 62]", "from 0 to 63"),
        ("inputs.1.values", {"range": [0.5, 99]}, "inputs[1].values.range[0]", 0.5, "an integer from"),
        ("inputs.2.values", {"range": [0, 1]}, "inputs[2].values.range", "[0.0, 1.0]", "from -1.5 to -1.5"),
        ("inputs.0.strides", [1], "inputs[0].strides", "1 strides", "one for each of the 2 axes"),
        ("inputs.0.strides", ["twice", -1], "inputs[0].strides[1]", -1, "a stride from 0"),
        ("inputs.0.strides", [1, 1], "inputs[0].strides", "[1, 1]", "without overlap"),
        ("inputs.0.strides", ["twice // x", 1], "inputs[0].strides[0]", "twice // x", "not x"),
        ("inputs.0.value", 1, "inputs[0].value", 1, "the input is a tensor"),
        ("inputs.0.dist", {"kind": "norml"}, "inputs[0].dist.kind", "norml", "one of normal, uniform"),
        ("inputs.0.dist", {"kind": "normal", "std": -1}, "inputs[0].dist.std", -1, "at least 0"),
        ("inputs.0.dist", {"kind": "uniform", "low": 2}, "inputs[0].dist", None, "low below high"),
        ("inputs.0.dist", {"kind": "randint", "high": 3}, "inputs[0].dist.kind", "randint", "one for float32"),
        ("inputs.0.dist", {"kind": "spd"}, "inputs[0].dist", "spd over shape [64, 32]", "last two axes are equal"),
        ("inputs.0.dist", {"kind": "code", "source": "x = 1"}, "inputs[0].dist.source", "no function make", "3 pos"),
        ("inputs.0.dist", {"kind": "code", "source": "x ="}, "inputs[0].dist.source", "x =", "parses (line 1"),
        ("inputs.1.dist", None, "inputs[1].dist", None, "dtype int64 have no default"),
        ("inputs.1.dist", {"kind": "normal"}, "inputs[1].dist.kind", "normal", "one for int64"),
        ("inputs.1.dist.high", 0, "inputs[1].dist.high", 0, "more than low (0)"),
        ("inputs.1.dist.high", "vocab", "inputs[1].dist.high", "vocab", "not vocab"),
        ("inputs.1.dtype", "uint8", "inputs[1].dist", "0 to 1020", "values of uint8: 0 to 255"),
        ("inputs.1.dist", {"kind": "indptr", "total": -1}, "inputs[1].dist.total", -1, "0 to"),
        ("inputs.1.dist", {"kind": "ends", "total": -1}, "inputs[1].dist.total", -1, "0 to"),
        ("inputs.1.dist", {"kind": "constant", "value": 0.5}, "inputs[1].dist.value", 0.5, "an integer from"),
        ("inputs.2.value", None, "inputs[2].value", None, "a value, because the input is a scalar"),
        ("inputs.2.value", "half", "inputs[2].value", "half", "a finite number"),
        ("inputs.2.value", True, "inputs[2].value", True, "a number for dtype float32"),
        ("inputs.2.mutated", True, "inputs[2].mutated", True, "the input is a scalar"),
        ("inputs.2.dist", {"kind": "normal"}, "inputs[2].dist", "normal", "the input is a scalar"),
        ("outputs.0.name", "x", "outputs[0].name", "x", "another name"),
        ("outputs.0.dtype", "half", "outputs[0].dtype", "half", "one of float64"),
        ("outputs.0.shape", None, "outputs[0].shape", None, "a list"),
        ("outputs.0.shape", ["rows"], "outputs[0].shape[0]", "rows", "an axis"),
        ("outputs.0.tolerance", {"rtol": 0.1}, "outputs[0].tolerance.atol", None, "the field is required"),
        ("outputs.0.tolerance", {"rtol": -1, "atol": 0}, "outputs[0].tolerance.rtol", -1, "at least 0"),
        ("reference", "def run(x, rows, m:", "reference", None, "Python that parses (line 1"),
        ("reference", "def forward(x): pass", "reference", "no function run", "run with 3 positional parameters"),
        ("reference", "def run(x, rows): pass", "reference", "run(x, rows) in line 1", "run with 3 positional"),
        ("reference", "def run(x, rows, m, *, k): pass", "reference", None, "run with 3 positional"),
        ("reference", "def run(rows, x, m): pass", "reference", "run(rows, x, m) in line 1", "order, for they go by"),
        ("reference", "async def run(x, rows, m): pass", "reference", "no function run", "run with 3"),
        ("reference", 5, "reference", 5, "text"),
        ("init", [3], "reference", "no class Model", "a class Model"),
        ("workloads", [], "workloads", "[]", "at least 1 items"),
        ("workloads.0.role", "test", "workloads", "no workload with role bench", "at least one"),
        ("workloads.0.role", "train", "workloads[0].role", "train", "'bench', 'test' or 'holdout'"),
        ("workloads.1.id", "decode", "workloads[1].id", "decode", "another id, for workloads[0] bears it"),
        ("workloads.1.id", "a b", "workloads[1].id", "a b", "text that matches"),
        ("workloads.0.axes", {}, "workloads[0].axes.tokens", None, "a size, for the axis is var"),
        ("workloads.0.axes.tokens", 0, "workloads[0].axes.tokens", 0, "a positive integer"),
        ("workloads.0.axes.hidden", 8, "workloads[0].axes.hidden", 8, "nothing, for the axis is const"),
        ("workloads.0.axes.batch", 8, "workloads[0].axes.batch", 8, "an axis of kind var: one of tokens"),
        ("workloads.0.inputs", {"z": {}}, "workloads[0].inputs.z", "z", "an input: one of m, rows, x"),
        ("workloads.0.inputs", {"x": {"omit": True}}, "workloads[0].inputs.x.omit", True, "'x' is not optional"),
        ("workloads.0.inputs", {"x": {"value": 1}}, "workloads[0].inputs.x.value", 1, "'x' is a tensor"),
        ("workloads.0.inputs", {"m": {"dist": {"kind": "normal"}}}, "workloads[0].inputs.m.dist", "normal", "scalar"),
        ("workloads.1.inputs.m.value", "a", "workloads[1].inputs.m.value", "a", "a finite number"),
        ("targets", {"tpu": {}}, "targets.tpu", "tpu", "one of the fields cpu, cuda"),
        ("targets", {"cpu": {"workloads": []}}, "targets.cpu.workloads", "[]", "at least 1 items"),
        (
            "targets",
            {"cpu": {"workloads": [{"id": "a", "role": "test", "axes": {"tokens": 1}}]}},
            "targets.cpu.workloads",
            "no workload with role bench",
            "at least one",
        ),
        (
            "targets",
            {"cpu": {"workloads": [{"id": "a", "role": "bench", "axes": {"tokens": 1, "token": 1}}]}},
            "targets.cpu.workloads[0].axes.token",
            1,
            "one of tokens",
        ),
        ("math", "fp16", "math", "fp16", "'ieee' or 'tf32'"),
        ("objective", {"baselines": ["eager", "jit"]}, "objective.baselines[1]", "jit", "; or an expert of this name"),
        ("limits.flops", "tokens - 64", "limits.flops", "tokens - 64 = 0", "a positive number"),
        ("limits.flops", "batch", "limits.flops", "batch", "not batch"),
        ("limits.flops", 1.5, "limits.flops", 1.5, "a 64-bit integer or an expression"),
        ("origin", {"format": "x", "files": [{"path": "a"}]}, "origin.files[0]", None, "exactly one of text"),
        ("description", "a\0b", "description", "a\\0b", "text without NUL"),
        ("description", 2**70, "description", "an integer of 71 bits", "at most 64 bits"),
        ("description", float("nan"), "description", "nan", "a finite number"),
        ("description", {1, 2}, "description", None, "text, a number"),
    ],
)  # fmt: skip
def test_one_error(place: str, value: Any, field: str, found: Any, expected: str) -> None:
    errors = errors_of(changed_at(place, value))
    told = {error.field: error for error in errors}
    assert field in told, str(errors)
    assert expected in told[field].expected
    if found is not None:
        assert told[field].found == found
    assert str(told[field]).startswith(f"{field}: found ")
    assert len(errors) == 1, [str(error) for error in errors]


def test_all_errors_of_a_document_at_once() -> None:
    document = spec(math="fp16", reference="def run(x): pass", colour=1)
    document["inputs"][1]["dtype"] = "float31"
    document["inputs"][0]["shape"] = ["tokens", "wide"]
    document["axes"]["hidden"] = {"kind": "const"}
    document["axes"]["loop"] = {"kind": "expr", "expr": "back + 1"}
    document["axes"]["back"] = {"kind": "expr", "expr": "loop + 1"}
    document["workloads"][0]["axes"] = {"batch": 3}
    assert {error.field for error in errors_of(document)} == {
        "colour",
        "math",
        "reference",
        "inputs[0].shape[1]",
        "inputs[1].dtype",
        "axes.hidden.value",
        "axes.loop.expr",
        "axes.back.expr",
        "workloads[0].axes.batch",
        "workloads[0].axes.tokens",
    }


def test_values_are_checked_beside_malformed_parts() -> None:
    document = spec(constraints=["tokens < 100"], math="fp16")
    document["outputs"][0]["dtype"] = "half"
    assert {error.field for error in errors_of(document)} == {"math", "outputs[0].dtype", "workloads[1].axes"}


def test_an_op_needs_inputs() -> None:
    assert "inputs: found '[]', expected at least 1 items" in map(str, errors_of(spec(inputs=[])))


def test_an_op_must_write_something() -> None:
    document = spec(outputs=[])
    parse_op(document)
    document["inputs"][0]["mutated"] = False
    (error,) = errors_of(document)
    assert (error.field, error.expected) == ("outputs", "at least one output, or an input with mutated: true")


def test_an_axis_far_from_a_cycle_is_not_blamed() -> None:
    axes = SPEC["axes"] | {
        "a": {"kind": "expr", "expr": "b"},
        "b": {"kind": "expr", "expr": "a"},
        "c": {"kind": "expr", "expr": "a + 1"},
    }
    assert {error.field for error in errors_of(spec(axes=axes))} == {"axes.a.expr", "axes.b.expr"}


@pytest.mark.parametrize("document", [None, 5, "text", [], [SPEC]])
def test_no_mapping(document: Any) -> None:
    (error,) = errors_of(document)
    assert error.field == "document"
    assert "a mapping" in error.expected


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        ("name: [1, 2\nb: 3", "line 2, column", "YAML"),
        ("a: b: c", "line 1, column 5", "YAML"),
        ("a: 1\na: 2", "the key 'a' twice (line 2, column 1)", "each key once"),
        ("a: &x [1]\nb: *x", "an alias (line 2, column 4)", "without aliases"),
        ("a: !!python/object/apply:os.system [ls]", "the tag", "without tags"),
        ("a: !!binary aGk=", "the tag", "without tags"),
        ("a: \x07", "the character", "printable"),
        (b"a: \xff", "byte 0xff at offset 3", "UTF-8"),
        ("1: x\nname: f", "the key 1", "keys that are text"),
        ("? [1, 2]\n: x", "unhashable key", "YAML"),
        ("--- 1\n--- 2", "line 2", "YAML"),
        ("a: " + nested(40), "more levels (line 1", "at most 32 levels"),
        ('{"a": 1,}', "line 1, column 9", "JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' twice", "each key once"),
        ('{"a": NaN}', "NaN", "a finite number"),
        ('{"a": ' + "9" * 5000 + "}", "digits", "64 bits"),
        ('{"a": ' + nested(40) + "}", "more levels", "at most 32 levels"),
        ('{"a": ' + nested(100_000) + "}", "more levels", "at most 32 levels"),
        ('{"a": "\\ud800"}', "\\ud800", "lone surrogates"),
        ('{"a": 1e999}', "inf", "a finite number"),
        ("a: .inf", "inf", "a finite number"),
        ("a: " + "9" * 5000, "a value that cannot be read", "YAML"),
        ("x" * (MAX_BYTES + 1), f"{MAX_BYTES + 1} bytes", "1 MiB"),
        ("", "nothing", "a mapping"),
        ("sk-0123456789", "found 'a str'", "a mapping"),
        ("[sk-0123456789]", "found 'a list'", "a mapping"),
    ],
)  # fmt: skip
def test_malformed_text(text: str | bytes, found: str, expected: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        load_op(text)
    message = str(caught.value)
    assert found in message
    assert expected in message


def test_a_long_finding_is_shortened() -> None:
    (error,) = errors_of(spec(math="x" * 10_000))
    assert isinstance(error.found, str)
    assert len(error.found) == 200
