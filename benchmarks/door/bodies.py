"""Bodies that are cheap to send and dear to read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warpsmith.service.api.routes.pools import EXAMPLE_LINES
from warpsmith.service.api.submission import ADD_RELU

JSON = "application/json"
YAML = "application/yaml"
NDJSON = "application/x-ndjson"
MIB = 2**20


@dataclass(frozen=True)
class BodyAttack:
    """One body for one route."""

    name: str
    path: str
    media_type: str
    make: Callable[[], bytes]
    sliced: bool = False
    """Whether its work is cut into slices that hold no thread: then it may take longer, and others must not wait."""


def _spec(**fields: Any) -> bytes:
    return json.dumps({**ADD_RELU, **fields}).encode()[: 2 * MIB]


def _fill(unit: str, size: int, before: str = "", after: str = "") -> bytes:
    return (before + unit * ((size - len(before) - len(after)) // len(unit)) + after).encode()


def _flat_yaml() -> bytes:
    lines: list[str] = []
    size = 0
    while size < MIB - 20:
        lines.append(f"k{len(lines)}: 1\n")
        size += len(lines[-1])
    return "".join(lines).encode()


def _pool(replies: int) -> bytes:
    reply = {"ordinal": 0, "kind": "code", "summary": "", "reply": "x"}
    rest = dict.fromkeys(("finish_reason", "model", "prompt_tokens", "completion_tokens", "latency_s"))
    lines = [json.dumps(EXAMPLE_LINES[0])]
    lines += [json.dumps({"request": f"{number:064x}", **reply, **rest}) for number in range(replies)]
    return "\n".join(lines).encode()[: 16 * MIB]


def _big_constraint() -> bytes:
    return _spec(constraints=["1" + "+1" * 400_000 + " > 0"])


def _many_constraints() -> bytes:
    condition = " and ".join(["n + 1 > 0"] * 35)
    workloads = [{"id": f"w{number}", "role": "bench", "axes": {"n": 1024}} for number in range(1024)]
    return _spec(constraints=[condition] * 1024, workloads=workloads)


def _many_axes() -> bytes:
    axes = {f"a{number}": {"kind": "expr", "expr": f"n + {number}"} for number in range(15_000)}
    workloads = [{"id": f"w{number}", "role": "bench", "axes": {"n": 1024}} for number in range(1024)]
    return _spec(axes={"n": {"kind": "var"}, **axes}, workloads=workloads)


def _axis_chain() -> bytes:
    axes = {f"a{number}": {"kind": "expr", "expr": f"a{number + 1} + 1"} for number in range(20_000)}
    return _spec(axes={"n": {"kind": "var"}, **axes, "a20000": {"kind": "const", "value": 1}})


def _unknown_axes() -> bytes:
    axes = {f"axis_{number:0100}": {"kind": "const", "value": 1} for number in range(5_000)}
    inputs = [{"name": f"x{number}", "shape": ["nowhere"] * 16, "dtype": "float32"} for number in range(64)]
    return _spec(axes=axes, inputs=inputs)


def _near_misses() -> bytes:
    """Wrong words that are each like every one of the names there are, of 100 characters and of 30."""
    axes = {
        f"{'ab' * length}{number:04}": {"kind": "const", "value": 1} for number in range(500) for length in (48, 13)
    }
    words = [f"{'ba' * length}{number:04}" for number in range(8) for length in (48, 13)]
    inputs = [{"name": f"x{number}", "shape": words, "dtype": "float23"} for number in range(64)]
    return _spec(axes=axes, inputs=inputs)


def _long_key() -> bytes:
    """A key that is part of the path of each value below it."""
    return f"? {'k' * 900_000}\n: [{'1,' * 29_000}1]\nname: 5\n".encode()


def _wrong_workloads() -> bytes:
    return _spec(workloads=[{"id": "!", "role": "?", "axes": {"n": 0}} for _ in range(30_000)])


def _long_found() -> bytes:
    """Errors that each show a large part of the document."""
    return _spec(workloads={f"k{number}": number for number in range(100_000)})


def _sources() -> bytes:
    source = "def make(shape, dtype, generator):\n" + "    x = [" + "(1,)," * 20_000 + "]\n"
    dist = {"kind": "code", "source": source}
    inputs = [{"name": f"x{number}", "shape": ["n"], "dtype": "float32", "dist": dist} for number in range(15)]
    return _spec(inputs=inputs)


def _import(path: str, text: str) -> bytes:
    return json.dumps({"files": [{"path": path, "text": text[: 500 * 1024]}]}).encode()


def _import_many(text: str) -> bytes:
    files = [{"path": f"f{number}.py", "text": text[: 8000 - len(str(number))]} for number in range(64)]
    return json.dumps({"files": files}).encode()


def _verdicts() -> bytes:
    line = {
        **dict.fromkeys(("bundle_id", "search_id", "attempt_id"), "bn_01kaexample0000000000000000"),
        "job_digest": "0f" * 32,
        "signature": "a1" * 32,
        "verdict": {"id": "bj_0", "level": "screen", "padding": [0] * 8_000},
        "host": {},
    }
    return b"\n".join(
        json.dumps({"nonce": f"bj_{number}", **line}, separators=(",", ":")).encode() for number in range(950)
    )


def _axes_at_limit() -> bytes:
    axes = {f"a{number}": {"kind": "expr", "expr": f"a{number + 1} + 1"} for number in range(126)}
    workloads = [{"id": f"w{number}", "role": "bench", "axes": {"n": 8}} for number in range(60)]
    return _spec(axes={**axes, "a126": {"kind": "const", "value": 1}, "n": {"kind": "var"}}, workloads=workloads)


def _constraints_at_limit() -> bytes:
    condition = " and ".join(["n + 1 > 0"] * 35)
    workloads = [{"id": f"w{number}", "role": "bench", "axes": {"n": 8}} for number in range(5)]
    return _spec(constraints=[condition] * 240, workloads=workloads)


def _workloads_at_limit() -> bytes:
    workloads = [{"id": f"w{number}", "role": "bench", "axes": {"n": 8}} for number in range(1024)]
    inputs = [{"name": name, "shape": ["n"], "dtype": "float32"} for name in ("x", "y", *"abcdefghijk")]
    return _spec(inputs=inputs, workloads=workloads)


BODIES = (
    BodyAttack("YAML: 1 MB of flat keys", "/v1/ops/validate", YAML, _flat_yaml),
    BodyAttack("YAML: 1 MB of a flat list", "/v1/ops", YAML, lambda: _fill("- 1\n", MIB - 8)),
    BodyAttack("YAML: 1 MB of [[],[], ...", "/v1/ops", YAML, lambda: _fill("[],", MIB - 8, "[", "]")),
    BodyAttack("YAML: 1 MB of comments", "/v1/ops", YAML, lambda: _fill("#\n", MIB - 8)),
    BodyAttack("YAML: one plain word of 1 MB", "/v1/ops", YAML, lambda: _fill("a ", MIB - 8)),
    BodyAttack("YAML: 1 MB of escapes", "/v1/ops", YAML, lambda: _fill("\\x41", MIB - 8, 'a: "', '"')),
    BodyAttack("YAML: 1 MB of opening brackets", "/v1/ops", YAML, lambda: _fill("[", MIB - 8)),
    BodyAttack("YAML: 1 MB of `? ` keys", "/v1/ops", YAML, lambda: _fill("? ", MIB - 8)),
    BodyAttack("JSON: 2 MB of [0,0, ...", "/v1/searches", JSON, lambda: _fill("0,", 2 * MIB - 8, "[", "0]")),
    BodyAttack("JSON: 2 MB of {},{} in a spec", "/v1/ops", JSON, lambda: _spec(init=[{}] * 500_000)),
    BodyAttack("JSON: 2 MB of keys", "/v1/ops", JSON, lambda: _spec(axes={f"a{n}": {} for n in range(120_000)})),
    BodyAttack("JSON: a number of 2 MB", "/v1/ops", JSON, lambda: _fill("1", 2 * MIB - 8)),
    BodyAttack("JSON: 1 MB deep", "/v1/searches", JSON, lambda: _fill("[", MIB)),
    BodyAttack("pool of 60,000 replies", "/v1/pools", NDJSON, lambda: _pool(60_000)),
    BodyAttack("pool: 16 MB of line ends", "/v1/pools", NDJSON, lambda: _fill("\n", 16 * MIB - 8)),
    BodyAttack(
        "pool: policy of 2 million numbers",
        "/v1/pools",
        NDJSON,
        lambda: _pool(0).replace(b'{"name": "idea_beam"}', b'{"a": [' + b"0," * 2_000_000 + b"0]}"),
    ),
    BodyAttack("expression of 0.8 MB", "/v1/ops", JSON, _big_constraint),
    BodyAttack("1,024 constraints x 1,024 workloads", "/v1/ops", JSON, _many_constraints),
    BodyAttack("15,000 axes x 1,024 workloads", "/v1/ops", JSON, _many_axes),
    BodyAttack("20,000 axes, each of the next", "/v1/ops", JSON, _axis_chain),
    BodyAttack("errors that each list 5,000 axes", "/v1/ops", JSON, _unknown_axes),
    BodyAttack("wrong words, each like 1,000 axes", "/v1/ops", JSON, _near_misses),
    BodyAttack("a key of 0.9 MB above 29,000 values", "/v1/ops/validate", YAML, _long_key),
    BodyAttack("30,000 wrong workloads", "/v1/ops", JSON, _wrong_workloads),
    BodyAttack("an error that shows 1.5 MB", "/v1/ops", JSON, _long_found),
    BodyAttack("15 Python sources of 100 kB", "/v1/ops", JSON, _sources),
    BodyAttack("a reference of 256 kB", "/v1/ops", JSON, lambda: _spec(reference="x=1\n" * 65_000)),
    BodyAttack("an f-string of 256 kB", "/v1/ops", JSON, lambda: _spec(reference="f'" + "{x}" * 87_000 + "'")),
    BodyAttack(
        "the same in a search",
        "/v1/searches",
        JSON,
        lambda: json.dumps({"op": json.loads(_many_axes()), "target": "cpu", "model": {"provider": "agent"}}).encode(),
    ),
    BodyAttack(
        "import: 500 kB of flat YAML",
        "/v1/ops/import",
        JSON,
        lambda: _import("task.yml", "".join(f"k{n}: 1\n" for n in range(70_000))),
    ),
    BodyAttack("import: 500 kB of Python", "/v1/ops/import", JSON, lambda: _import("a.py", "x=1\n" * 130_000)),
    BodyAttack("import: 64 files of Python", "/v1/ops/import", JSON, lambda: _import_many("x=1\n" * 2_000)),
    BodyAttack("import: 500 kB of JSON lines", "/v1/ops/import", JSON, lambda: _import("a.jsonl", "{}\n" * 170_000)),
    BodyAttack("verdicts: 1,000 lines of 16 kB", "/v1/bundles/merge", NDJSON, _verdicts, sliced=True),
    BodyAttack("verdicts: 16 MB of `{}`", "/v1/bundles/merge", NDJSON, lambda: _fill("{}\n", 16 * MIB - 8)),
    BodyAttack("as large as is taken: 30,000 YAML values", "/v1/ops/validate", YAML, lambda: _fill("- 1\n", 119_900)),
    BodyAttack("as large as is taken: a chain of 128 axes", "/v1/ops/validate", JSON, _axes_at_limit),
    BodyAttack("as large as is taken: constraints", "/v1/ops/validate", JSON, _constraints_at_limit),
    BodyAttack("as large as is taken: 1,024 workloads", "/v1/ops/validate", JSON, _workloads_at_limit),
    BodyAttack(
        "as large as is taken: an f-string",
        "/v1/ops/validate",
        JSON,
        lambda: _spec(reference="f'" + "{x}" * 21_800 + "'"),
    ),
    BodyAttack("as large as is taken: Python", "/v1/ops/validate", JSON, lambda: _spec(reference="x=1\n" * 16_000)),
    BodyAttack("as large as is taken: imported Python", "/v1/ops/import", JSON, lambda: _import_many("x=1\n" * 500)),
    BodyAttack("unicode: 2 MB of combining marks", "/v1/ops", JSON, lambda: _spec(name="e" + "\u0301" * 300_000)),
)
