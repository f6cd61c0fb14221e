"""What a C++ or CUDA source declares, and which flags it may ask for."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.runtime import CompileError, flags
from warpsmith.kernels_db.runtime.calls import converter
from warpsmith.kernels_db.runtime.ctext import canonical, directives, tokens
from warpsmith.kernels_db.runtime.signatures import Parameter, signatures

NOISE = r"""
// extern "C" void commented(int n) {}
/* extern "C" void blocked(int n) {} */
const char* text = "extern \"C\" void quoted(int n) {}";
const char* raw = R"x(extern "C" void raw(int n) {})x";
#define EXPORT extern "C"
using scalar_t = float;
typedef unsigned short bf16;
#define INDEX int64_t
struct Helper { int n; };
static inline float helper(float v) { return v; }
extern "C" void declared_only(int n);
"""


def parameter(declaration: str, *, cuda: bool = False) -> Parameter:
    """The only parameter of a kernel that declares `declaration`."""
    head = "__global__ void" if cuda else "void"
    ((found,),) = signatures(f'{NOISE}\nextern "C" {head} f({declaration}) {{ }}', cuda=cuda).values()
    return found


@pytest.mark.parametrize(
    ("declaration", "name", "kind", "scalar"),
    [
        ("const float* __restrict x", "x", "pointer", "float32"),
        ("float *__restrict__ x", "x", "pointer", "float32"),
        ("float const * const x", "x", "pointer", "float32"),
        ("float x[]", "x", "pointer", "float32"),
        ("const double x[8]", "x", "pointer", "float64"),
        ("const scalar_t* x", "x", "pointer", "float32"),
        ("const bf16* x", "x", "pointer", "uint16"),
        ("std::int64_t n", "n", "integer", "int64"),
        ("INDEX n", "n", "integer", "int64"),
        ("long long n", "n", "integer", "int64"),
        ("unsigned long long int n", "n", "integer", "uint64"),
        ("long unsigned n", "n", "integer", "uint64"),
        ("unsigned n", "n", "integer", "uint32"),
        ("const int n = 4", "n", "integer", "int32"),
        ("short int n", "n", "integer", "int16"),
        ("size_t n", "n", "integer", "uint64"),
        ("float eps", "eps", "floating", "float32"),
        ("double eps", "eps", "floating", "float64"),
        ("bool causal", "causal", "boolean", "bool"),
        ("const bool* mask", "mask", "pointer", "bool"),
        ("void* anything", "anything", "pointer", "void"),
        ("_Float16* x", "x", "pointer", "float16"),
        ("const __bf16* x", "x", "pointer", "bfloat16"),
        ("std::complex<float>* x", "x", "pointer", "complex64"),
        ("const float*", "argument 1", "pointer", "float32"),
        ("unsigned int", "argument 1", "integer", "uint32"),
    ],
)
def test_a_parameter_is_read_as_declared(declaration: str, name: str, kind: str, scalar: str) -> None:
    found = parameter(declaration)
    assert (found.name, found.kind, found.scalar) == (name, kind, scalar)


@pytest.mark.parametrize(
    ("declaration", "kind", "scalar"),
    [
        ("const __half* x", "pointer", "float16"),
        ("const __nv_bfloat16* x", "pointer", "bfloat16"),
        ("const float4* x", "pointer", "float32"),
        ("__nv_fp8_e4m3* x", "pointer", "float8_e4m3fn"),
        ("const __grid_constant__ CUtensorMap map", "tensor_map", "void"),
    ],
)
def test_cuda_has_types_of_its_own(declaration: str, kind: str, scalar: str) -> None:
    found = parameter(declaration, cuda=True)
    assert (found.kind, found.scalar) == (kind, scalar)


def test_every_definition_and_nothing_else_is_found() -> None:
    source = (
        NOISE
        + r"""
    extern "C" {
    void first(float* x, int n) { if (n) { x[0] = 1; } }
    static void hidden(int n) {}
    __attribute__((noinline)) void second(const float* a, float* b) noexcept { }
    }
    extern "C" [[gnu::hot]] inline void third(void) { }
    extern "C" void
    fourth(
        const float* x,  // the input, "quoted"
        /* the count */ int64_t n
    ) { }
    void not_c(int n) {}
    """
    )
    found = signatures(source)
    assert {name: [p.name for p in parameters] for name, parameters in found.items()} == {
        "first": ["x", "n"],
        "second": ["a", "b"],
        "third": [],
        "fourth": ["x", "n"],
    }


def test_cuda_kernels_are_the_global_functions() -> None:
    source = r"""
    extern "C" __device__ void helper(float* x) {}
    extern "C" __global__ void __launch_bounds__(256, 2) __cluster_dims__(2, 1, 1) kernel(float* x, int n) {}
    extern "C" void __global__ other(int n) {}
    """
    assert list(signatures(source, cuda=True)) == ["kernel", "other"]


@pytest.mark.parametrize(
    ("declaration", "named"),
    [
        ("std::vector<float> values", "values"),
        ("float& value", "value"),
        ("float** rows", "rows"),
        ("Helper helper", "helper"),
        ("const Helper* helper", "helper"),
        ("void nothing", "nothing"),
        ("void (*callback)(int)", "argument 1"),
        ("__half x", "x"),
    ],
)
def test_a_parameter_that_no_argument_fits_is_named(declaration: str, named: str) -> None:
    with pytest.raises(CompileError, match=f"parameter '{named}' of 'f': found `.*expected a pointer"):
        signatures(f'struct Helper {{ int n; }};\nextern "C" void f({declaration}) {{ }}')


def test_a_kernel_that_returns_something_is_refused() -> None:
    with pytest.raises(CompileError, match="'f' returns 'float'"):
        signatures('extern "C" float f(float* x) { return x[0]; }')


@pytest.mark.parametrize(
    "source", ["", "int main() {}", 'extern "C" void f(int n);', 'extern "C"', '#define E extern "C"']
)
def test_a_source_without_kernels_is_refused(source: str) -> None:
    with pytest.raises(CompileError, match="defines no kernel"):
        signatures(source)


@given(st.text(alphabet='extern "C"void{}()*,;[]/\\\n#=<>:RfxĀ\'0 ', max_size=200))
def test_any_text_has_signatures_or_a_compile_error(text: str) -> None:
    for cuda in (False, True):
        with suppress(CompileError):
            assert signatures(text, cuda=cuda)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "unit", ['"', "'", "/*", 'R"(', '\\"', "#", "(", "{", "1'", '#include "', 'extern "C" {', 'extern "C" void f(']
)
def test_reading_is_linear_in_the_length(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    tokens(text)
    directives(text)
    canonical(text)


def test_directives_are_found_through_comments_and_continuations() -> None:
    source = "/* a\n */ #include <cmath>\n  %: define X \\\n  1\nint x; // #error no\n#pragma omp parallel\n"
    assert [(d.line, d.name, d.text) for d in directives(source)] == [
        (2, "include", "<cmath>"),
        (3, "define", "X   1"),
        (6, "pragma", "omp parallel"),
    ]


def test_layout_does_not_change_the_canonical_text_and_meaning_does() -> None:
    left = "int  f( int a ){ // note\n  return a+1; /* b */ }\n#define  X  1\n"
    assert canonical(left) == canonical("int f(int a)\n{ return a + 1; }\n#define X 1")
    assert canonical(left) != canonical(left.replace("+1", "+2"))
    assert canonical('f("a  b")') != canonical('f("a b")')
    assert canonical("#define X 1\nY") != canonical("#define X 1 Y")


class Tensor:
    """What the runtime asks of a tensor."""

    is_cuda = False
    device = "cpu"

    def __init__(self, dtype: str) -> None:
        self.dtype = f"torch.{dtype}"

    def data_ptr(self) -> int:
        return 4096


@pytest.mark.parametrize(
    ("declaration", "dtype", "fits"),
    [
        ("const uint16_t* x", "bfloat16", True),
        ("const uint16_t* x", "float16", True),
        ("const uint8_t* x", "bool", True),
        ("const void* x", "float64", True),
        ("const float* x", "float64", False),
        ("const int* x", "int64", False),
    ],
)
def test_a_tensor_must_have_the_pointers_element_type(declaration: str, dtype: str, fits: bool) -> None:
    convert = converter("f", parameter(declaration), "cpu")
    if fits:
        assert convert(Tensor(dtype)) == 4096
    else:
        with pytest.raises(TypeError, match=rf"parameter 'x' .*found a tensor of {dtype}, expected"):
            convert(Tensor(dtype))


def test_none_is_a_null_pointer() -> None:
    assert converter("f", parameter("const float* x"), "cpu")(None) == 0


def test_a_tensor_must_be_on_the_kernels_device() -> None:
    with pytest.raises(TypeError, match="found a tensor on cpu, expected one on cuda"):
        converter("f", parameter("const float* x"), "cuda")(Tensor("float32"))


@given(st.integers())
def test_an_integer_fits_or_is_out_of_range(value: int) -> None:
    for declaration, low, high in (("int n", -(2**31), 2**31 - 1), ("size_t n", 0, 2**64 - 1)):
        convert = converter("f", parameter(declaration), "cpu")
        if low <= value <= high:
            assert convert(value) == value
        else:
            with pytest.raises(OverflowError, match="parameter 'n'"):
                convert(value)


@pytest.mark.parametrize(
    ("declaration", "value"),
    [
        ("int n", 1.0),
        ("int n", "1"),
        ("int n", Tensor("int32")),
        ("float e", "1"),
        ("float e", Tensor("float32")),
        ("bool b", 2),
        ("float* x", 4096),
    ],
)
def test_an_argument_of_another_kind_is_refused(declaration: str, value: object) -> None:
    with pytest.raises(TypeError, match=r"parameter '\w' .*: found .*, expected"):
        converter("f", parameter(declaration), "cpu")(value)


@pytest.mark.parametrize("flag", ["-ffast-math", "-O2", "-mprefer-vector-width=512", "-DTILE=64", "-DNAME"])
def test_an_optimisation_flag_is_allowed(flag: str) -> None:
    assert flags.checked([flag], "cpp") == (flag,)


@pytest.mark.parametrize(
    "flag",
    [
        "-fplugin=/x.so",
        "-include/etc/passwd",
        "-I/",
        "@file",
        "-wrapper",
        "-DX=$(id)",
        "-DX= -I/",
        "-o/x",
        "-B.",
        "-specs=x",
        "-Wl,-rpath,/",
        "",
        "-O3 -I/",
    ],
)
def test_any_other_flag_is_refused_and_named(flag: str) -> None:
    with pytest.raises(CompileError, match="flags: found"):
        flags.checked([flag], "cpp")


def test_a_flag_of_the_other_language_is_refused() -> None:
    with pytest.raises(CompileError, match="flags"):
        flags.checked(["--use_fast_math"], "cpp")
    with pytest.raises(CompileError, match="expected a tuple"):
        flags.checked("-O2", "cpp")
