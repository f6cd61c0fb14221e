"""The few host headers that CUDA sources name by habit, for NVRTC, which has none. Types agree with libcu++
(`cuda/std/cstdint`), whose names the C++ headers bring into `std`.
"""

from __future__ import annotations

_INTEGERS = """#pragma once
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef signed short int16_t;
typedef unsigned short uint16_t;
typedef signed int int32_t;
typedef unsigned int uint32_t;
typedef signed long long int64_t;
typedef unsigned long long uint64_t;
typedef int64_t intptr_t;
typedef uint64_t uintptr_t;
"""
_STANDARD_INTEGERS = """#pragma once
#include <stdint.h>
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t; using ::intptr_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t; using ::uintptr_t;
}
"""
_FLOATS = """#pragma once
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#endif
"""
_LIMITS = """#pragma once
#ifndef INT_MAX
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define LLONG_MAX 9223372036854775807ll
#define LLONG_MIN (-LLONG_MAX - 1)
#define ULLONG_MAX 18446744073709551615ull
#endif
"""
# The real one declares the driver's host functions, which NVRTC refuses.
_TENSOR_MAP = """#pragma once
#include <stdint.h>
typedef struct alignas(64) CUtensorMap_st { uint64_t opaque[16]; } CUtensorMap;
"""
_ALGORITHM = """#pragma once
namespace std {
template <class T> __host__ __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> __host__ __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> __host__ __device__ constexpr const T& clamp(const T& v, const T& low, const T& high) {
    return v < low ? low : high < v ? high : v;
}
template <class T> __host__ __device__ constexpr void swap(T& a, T& b) { T c = a; a = b; b = c; }
}
"""
# libcu++ has these, at the price of a second of NVRTC's time.
_LIBCUXX = (
    "array",
    "bit",
    "complex",
    "concepts",
    "functional",
    "initializer_list",
    "iterator",
    "limits",
    "numeric",
    "optional",
    "span",
    "tuple",
    "type_traits",
    "utility",
)
# NVRTC has the functions of these built in.
_BUILT_IN = (
    "assert.h",
    "math.h",
    "stddef.h",
    "stdlib.h",
    "string.h",
    "cassert",
    "cmath",
    "cstddef",
    "cstdlib",
    "cstring",
)

HEADERS = {
    "cuda.h": _TENSOR_MAP,
    "stdint.h": _INTEGERS,
    "cstdint": _STANDARD_INTEGERS,
    "float.h": _FLOATS,
    "cfloat": _FLOATS,
    "limits.h": _LIMITS,
    "climits": _LIMITS,
    "algorithm": _ALGORITHM,
    **{
        name: f"#pragma once\n#include <cuda/std/{name}>\nnamespace std {{ using namespace ::cuda::std; }}\n"
        for name in _LIBCUXX
    },
    **dict.fromkeys(_BUILT_IN, "#pragma once\n"),
}
"""Header name to text."""
