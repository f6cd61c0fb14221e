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
# The functions are built in; of the macros NVRTC has none.
_MATH = """#pragma once
#ifndef INFINITY
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#define NAN __builtin_bit_cast(float, 0x7fffffff)
#define HUGE_VALF __builtin_bit_cast(float, 0x7f800000)
#define HUGE_VAL __builtin_bit_cast(double, 0x7ff0000000000000ll)
#endif
#ifndef M_PI
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
"""
_FUNCTIONS = """
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma
    fmax fmin fmod frexp hypot ilogb isfinite isinf isnan ldexp lgamma log log10 log1p log2 logb lrint lround modf
    nearbyint nextafter pow remainder rint round scalbn signbit sin sinh sqrt tan tanh tgamma trunc
"""
_CMATH = (
    "#pragma once\n#include <math.h>\nnamespace std {\n"
    + "".join(f"using ::{name};\n" for name in _FUNCTIONS.split())
    + "}\n"
)
# NVRTC has the functions of these built in.
_BUILT_IN = (
    "assert.h",
    "stddef.h",
    "stdlib.h",
    "string.h",
    "cassert",
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
    "math.h": _MATH,
    "cmath": _CMATH,
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
