"""Wrong siblings of `controls_truth`: what the room for honest arithmetic must not let pass."""

from __future__ import annotations

from benchmarks.redteam_catalogue import ops
from benchmarks.redteam_catalogue.controls_cpp import ARGMAX, NARROW, row_code, typed_add
from benchmarks.redteam_catalogue.controls_truth import (
    BF16_SUM,
    DOUBLE_NORM,
    DOUBLE_NORM_CODE,
    DOUBLE_PRODUCT,
    DOUBLE_PRODUCT_CODE,
    DOUBLE_SOFTMAX,
    DOUBLE_SOFTMAX_CODE,
    DOUBLE_SUM,
    FLOAT8,
    FLOAT8_CODE,
    GATE,
    HALF_SUM,
    INT8,
    LOAD_ROW,
    NEAREST,
    PRODUCT_RUN,
    STABLE_ORDER,
    UINT8,
    UPWARDS,
    clamped,
    gate_code,
    gate_triton,
    nearest_code,
    nearest_triton,
    order_code,
    row_triton,
    steps_code,
    steps_triton,
    sum_code,
    within,
)
from benchmarks.redteam_catalogue.entry import Cheat, Op
from benchmarks.redteam_catalogue.text import add_triton, cpp
from warpsmith.kernels_db.job.documents import Level

CUT = "[&] { const float s = wide(x[i]) + wide(y[i]); uint32_t bits; std::memcpy(&bits, &s, 4); return (uint16_t)(bits >> 16); }()"
CUT_TL = """s = (a.to(tl.float32) + b.to(tl.float32)).to(tl.int32, bitcast=True) & -65536
tl.store(out + i, s.to(tl.float32, bitcast=True), mask=m)"""
FIRST = ops.argmax([(64, 130), (3, 17), (5, 133)])


def _cpp() -> list[tuple[str, Op, str, str, Level]]:
    chain = "float s = 0; for (int64_t i = 0; i < n; i++) s += in[i]; *to = s;"
    half_way = "double s = 0; for (int64_t i = 0; i < n; i++) s += i % 2 ? (float)in[i] : in[i]; *to = s;"
    narrow_chain = "uint16_t s = 0; for (int64_t i = 0; i < n; i++) s = bf16(wide(s) + wide(in[i])); *to = s;"
    again = gate_code(UPWARDS, ">").replace(
        "expert[r * 4 + k] = best;",
        "expert[r * 4 + k] = best; if (k == 3 && wide(in[best]) == wide(in[expert[r * 4 + 2]])) expert[r * 4 + 3] = expert[r * 4 + 2];",
    )
    fifth = gate_code(UPWARDS, ">").replace(
        "for (int64_t k = 0; k < 4; k++) weight",
        "if (n > 5) expert[r * 4 + 3] = expert[r * 4 + 3] ? 0 : 1; for (int64_t k = 0; k < 4; k++) weight",
    )
    return [
        ("sums float64 in float32", DOUBLE_SUM, sum_code("double", chain), "a float32 sum", "screen"),
        ("rounds every other term of a float64 sum", DOUBLE_SUM, sum_code("double", half_way), "to float32", "screen"),
        ("takes float32's exponential for float64", DOUBLE_SOFTMAX, row_code(DOUBLE_SOFTMAX_CODE.replace("std::exp(x[r * n + i] - most) * scale", "std::exp((float)(x[r * n + i] - most)) * scale"), "x, out"), "a float32 function", "screen"),
        ("takes float32's root for float64", DOUBLE_NORM, row_code(DOUBLE_NORM_CODE.replace("1 / std::sqrt(squares / n + 1e-5)", "1 / std::sqrt((float)(squares / n + 1e-5))"), "x, w, b, out"), "a float32 function", "screen"),
        ("multiplies float64 in float32", DOUBLE_PRODUCT, cpp(DOUBLE_PRODUCT_CODE.replace("+= a[i * k + t] * b[t * n + j]", "+= (float)a[i * k + t] * (float)b[t * n + j]"), PRODUCT_RUN), "a float32 product", "screen"),
        ("names the last of equals", FIRST, row_code(ARGMAX.replace("x[r * n + i] > x", "x[r * n + i] >= x"), "x, out"), "PyTorch promises the first", "verify"),
        ("looks at bfloat16 for a maximum", FIRST, row_code(NARROW + ARGMAX.replace("x[r * n + i] > x[r * n + best]", "bf16(x[r * n + i]) != bf16(x[r * n + best]) && x[r * n + i] > x[r * n + best]"), "x, out"), "what differs by less is taken for equal", "verify"),
        ("turns equals of a stable sort", STABLE_ORDER, order_code("k", ">="), "their order is asked", "screen"),
        ("names an expert twice", GATE, again, "where two are equal", "screen"),
        ("names another expert", GATE, fifth, "with the right weight", "screen"),
        ("rounds scores before it chooses", GATE, gate_code(UPWARDS, ">").replace("wide(in[i]) > wide(in[best])", "std::nearbyint(8 * wide(in[i])) > std::nearbyint(8 * wide(in[best]))"), "to eighths", "screen"),
        ("nearest code in bfloat16", NEAREST, nearest_code("float", "d += b * b - 2 * wide(bf16(a)) * wide(bf16(b))", narrow=NARROW), "narrow products", "screen"),
        ("nearest code by products alone", NEAREST, nearest_code("float", "d -= a * b"), "no square of the code", "screen"),
        ("nearest code of the first half", NEAREST, nearest_code("float", "if (i < (n + 1) / 2 || n < 9) d += (a - b) * (a - b)"), "the rest is not read", "screen"),
        ("int8 cut", INT8, steps_code("int8_t", within("std::trunc(v * t)", -128, 127)), "towards zero", "screen"),
        ("int8 cut in a few places", INT8, steps_code("int8_t", within("(i % 97 == 96 ? std::trunc(v * t) : std::nearbyint(v * t))", -128, 127)), "towards zero", "screen"),
        ("int8 of a bfloat16 quotient", INT8, steps_code("int8_t", within("std::nearbyint(wide(bf16(v * t)))", -128, 127), before=NARROW), "narrow arithmetic", "screen"),
        ("uint8 without its offset's half", UINT8, steps_code("uint8_t", within("std::floor(v * t + 128.0f)", 0, 255), "uint16_t", NARROW), "rounds down", "screen"),
        ("float8 cut", FLOAT8, steps_code("uint8_t", "e4m3(v * t, true)", before=FLOAT8_CODE), "towards zero", "screen"),
        ("float8 of bfloat16", FLOAT8, steps_code("uint8_t", "e4m3(wide(bf16(v * t)))", before=NARROW + FLOAT8_CODE), "rounds twice", "screen"),
        ("sums bfloat16 in one bfloat16 chain", BF16_SUM, sum_code("uint16_t", narrow_chain, NARROW), "its error grows with the length", "screen"),
        ("adds bfloat16 and cuts the sum", ops.add(dtype="bfloat16"), typed_add("uint16_t", CUT, NARROW), "off by less than a unit, in one direction", "screen"),
        ("sums float16 of bfloat16", HALF_SUM, sum_code("_Float16", "float s = 0; for (int64_t i = 0; i < n; i++) s += wide(bf16((float)in[i])); *to = (_Float16)s;", NARROW), "narrow terms", "screen"),
    ]  # fmt: skip


def _triton() -> list[tuple[str, Op, str, str, Level]]:
    last = f"{LOAD_ROW}most = tl.max(tl.where(m, v, -float('inf')), 0)\ntl.store(out + r, tl.max(tl.where(m & (v == most), c, -1), 0).to(tl.int64))"
    return [
        ("sums float64 in float32", DOUBLE_SUM, row_triton(f"{LOAD_ROW}tl.store(out + r, tl.sum(v.to(tl.float32), 0).to(tl.float64))"), "a float32 sum", "screen"),
        ("names the last of equals", FIRST, row_triton(last), "PyTorch promises the first", "verify"),
        ("names an expert twice", GATE, gate_triton("tl.argmax(v, 0)").replace("left = tl.where(c == at", "left = tl.where((c == at) & (k != 2)"), "the third again", "screen"),
        ("nearest code in bfloat16", NEAREST, nearest_triton("b * b - 2.0 * a.to(tl.bfloat16).to(tl.float32) * b.to(tl.bfloat16).to(tl.float32)"), "narrow products", "screen"),
        ("int8 cut", INT8, steps_triton(clamped("v * t", -128, 127)), "towards zero", "screen"),
        ("adds bfloat16 and cuts the sum", ops.add(dtype="bfloat16"), add_triton(CUT_TL), "off by less than a unit, in one direction", "screen"),
        ("float8 of bfloat16", FLOAT8, steps_triton("(v * t).to(tl.bfloat16).to(tl.float32)"), "rounds twice", "screen"),
    ]  # fmt: skip


def cheats() -> list[Cheat]:
    """All of them."""
    found = [Cheat(name, (), "cpp", op, source, does, level=level) for name, op, source, does, level in _cpp()]
    return found + [
        Cheat(name, (), "triton", op, source, does, level=level) for name, op, source, does, level in _triton()
    ]
