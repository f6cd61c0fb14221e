"""The program that makes recorded calls of a kernel: its C++ source and the file that it reads.

It stands in for Python, which would have to be started for a sanitizer: the kernel's source is compiled with the
sanitizer and linked with this driver, buffers are allocated to the byte, so that an access beyond either end is seen.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.runtime.signatures import Parameter

BEGUN = "the calls begin"
"""What the driver prints once the sanitizer has let it start."""

_C_NAMES = {"float32": "float", "float64": "double", "bool": "bool"}
_POINTER, _NULL, _INTEGER, _FLOATING = 0, 1, 2, 3

_HEAD = """
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
extern "C" void __asan_poison_memory_region(const volatile void*, unsigned long) __attribute__((weak));
extern "C" void __asan_unpoison_memory_region(const volatile void*, unsigned long) __attribute__((weak));
extern "C" {
"""
_BODY = """
}
namespace {
union Value { void* p; int64_t i; uint64_t u; double d; };
std::vector<char> file;
size_t at = 0;
template <class T> T take() {
    T value;
    if (file.size() - at < sizeof(T)) std::abort();
    std::memcpy(&value, file.data() + at, sizeof(T));
    at += sizeof(T);
    return value;
}
struct Buffer { char* base; uint64_t before; char* start; };
Buffer allocated() {
    Buffer one;
    one.before = take<uint64_t>();
    const uint64_t size = take<uint64_t>();
    if (file.size() - at < size || posix_memalign((void**)&one.base, 64, one.before + size) != 0) std::abort();
    one.start = one.base + one.before;
    std::memcpy(one.start, file.data() + at, size);
    at += size;
    if (one.before && __asan_poison_memory_region) __asan_poison_memory_region(one.base, one.before);
    return one;
}
void call(uint32_t function, const std::vector<Value>& a) {
    switch (function) {
CASES
    }
}
}
int main(int, char** arguments) {
    FILE* const stream = std::fopen(arguments[1], "rb");
    if (!stream) return 3;
    std::fseek(stream, 0, SEEK_END);
    file.resize(std::ftell(stream));
    std::rewind(stream);
    if (std::fread(file.data(), 1, file.size(), stream) != file.size()) return 3;
    std::puts("BEGUN");
    std::fflush(stdout);
    for (uint32_t left = take<uint32_t>(); left > 0; left--) {
        const uint32_t function = take<uint32_t>();
        std::vector<Buffer> buffers(take<uint32_t>());
        for (Buffer& one : buffers) one = allocated();
        std::vector<Value> values(take<uint32_t>());
        for (Value& value : values) {
            const uint32_t kind = take<uint32_t>(), buffer = take<uint32_t>();
            const uint64_t bits = take<uint64_t>();
            if (kind == 0) value.p = buffers.at(buffer).start + bits;
            else if (kind == 1) value.p = nullptr;
            else std::memcpy(&value, &bits, 8);
        }
        call(function, values);
        for (Buffer& one : buffers) {
            if (one.before && __asan_unpoison_memory_region) __asan_unpoison_memory_region(one.base, one.before);
            std::free(one.base);
        }
    }
}
"""


def source(functions: Mapping[str, Sequence[Parameter]]) -> str:
    """Return the driver for the functions of one source."""
    declared, cases = [], []
    for number, (name, parameters) in enumerate(functions.items()):
        types = [_c_name(parameter) for parameter in parameters]
        declared.append(f"void {name}({', '.join(types)});")
        values = [
            f"({kind})a[{place}].{_member(one)}"
            for place, (kind, one) in enumerate(zip(types, parameters, strict=True))
        ]
        cases.append(f"    case {number}: {name}({', '.join(values)}); break;")
    return _HEAD + "\n".join(declared) + _BODY.replace("CASES", "\n".join(cases)).replace("BEGUN", BEGUN)


def packed(
    calls: Sequence[Mapping[str, Any]], functions: Mapping[str, Sequence[Parameter]], memory: memoryview
) -> bytes:
    """Return the file that has the driver make `calls` of these functions, with the memory of a trace.

    The calls are a runner's words. Raises ValueError, TypeError, KeyError, IndexError or OverflowError where they
    cannot be.
    """
    names = list(functions)
    parts = [struct.pack("<I", len(calls))]
    for call in calls:
        buffers, arguments = call["buffers"], call["arguments"]
        parameters = functions[call["function"]]
        parts.append(struct.pack("<II", names.index(call["function"]), len(buffers)))
        sizes = []
        for before, size, place in buffers:
            if not (0 <= before < 64 and 0 <= place <= place + size <= len(memory)):
                raise ValueError("a buffer outside of the trace")
            sizes.append(size)
            parts += [struct.pack("<QQ", before, size), bytes(memory[place : place + size])]
        parts.append(struct.pack("<I", len(parameters)))
        parts += [_packed(one, parameter, sizes) for one, parameter in zip(arguments, parameters, strict=True)]
    return b"".join(parts)


def _packed(argument: Sequence[Any], parameter: Parameter, sizes: Sequence[int]) -> bytes:
    if parameter.kind == "pointer":
        if argument[0] == "null":
            return struct.pack("<IIQ", _NULL, 0, 0)
        _, buffer, offset = argument
        if not 0 <= offset <= sizes[buffer]:
            raise ValueError("a pointer outside of its buffer")
        return struct.pack("<IIQ", _POINTER, buffer, offset)
    number = argument[1]
    if parameter.kind == "floating":
        return struct.pack("<IId", _FLOATING, 0, float.fromhex(number) if isinstance(number, str) else float(number))
    return struct.pack("<IIQ", _INTEGER, 0, int(number) & (1 << 64) - 1)


def _c_name(parameter: Parameter) -> str:
    if parameter.kind == "pointer":
        return "void*"
    return _C_NAMES.get(parameter.scalar, f"{parameter.scalar}_t")


def _member(parameter: Parameter) -> str:
    return {"pointer": "p", "floating": "d"}.get(parameter.kind, "i" if parameter.signed else "u")
