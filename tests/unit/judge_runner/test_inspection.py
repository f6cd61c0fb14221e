"""What a built C++ kernel may hold: the compiler's sections, its own functions, the libraries of its language."""

# ruff: noqa: E501 - a source on each line

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kinds import nightly_but
from warpsmith.kernels_db.runtime import CompileError, cpp
from warpsmith.workers.judge import languages
from warpsmith.workers.judge.languages.inspection import inspect
from warpsmith.workers.judge.machine import elf

KERNEL = 'extern "C" void f(float* x, int64_t n) {{ {body} }}'
PLAIN = KERNEL.format(body="for (int64_t i = 0; i < n; i++) x[i] = x[i] * 2;")

HONEST = {
    "a template": "template <class T, int N> static T times(T v) { return v * N; }\n"
    + KERNEL.format(body="for (int64_t i = 0; i < n; i++) x[i] = times<float, 3>(x[i]);"),
    "a lambda": KERNEL.format(body="auto g = [&](float a) { return a + x[0]; }; for (int64_t i = 0; i < n; i++) x[i] = g(x[i]);"),
    "a constant table": "static const float table[300] = {1, 2, 3}; static constexpr double more[2] = {0.5, 0.25};\n"
    + KERNEL.format(body="for (int64_t i = 0; i < n; i++) x[i] = table[i % 300] * more[i % 2];"),
    "a table of functions": "static float one(float a) { return a; } static float two(float a) { return a + a; }\n"
    "static float (*const ways[])(float) = {one, two};\n" + KERNEL.format(body="for (int64_t i = 0; i < n; i++) x[i] = ways[n % 2](x[i]);"),
    "parallel regions": KERNEL.format(
        body="float s = 0;\n#pragma omp parallel for reduction(+:s) schedule(dynamic)\nfor (int64_t i = 0; i < n; i++) s += x[i];\n"
        "#pragma omp parallel\n{\n#pragma omp critical(own)\nx[0] += omp_get_thread_num();\n#pragma omp barrier\n#pragma omp single\nx[1] = s; }"
    ),
    "tasks": KERNEL.format(body="\n#pragma omp parallel\n#pragma omp single\nfor (int64_t i = 0; i < n; i++)\n#pragma omp task\nx[i] = 1;"),
    "vectors as scratch": "#include <vector>\n#include <algorithm>\n#include <numeric>\n"
    + KERNEL.format(body="std::vector<float> v(x, x + n); std::stable_sort(v.begin(), v.end()); std::copy(v.begin(), v.end(), x);"),
    "an inline function": 'inline float twice(float a) { return a + a; }\n' + KERNEL.format(body="x[0] = twice(x[1]);"),
    "words": KERNEL.format(body='const char* words[] = {"one", "two"}; x[0] = words[n % 2][0];'),
    "exceptions inside": "#include <vector>\nstruct Bad { int at; };\n"
    + KERNEL.format(body="try { if (n < 0) throw Bad{3}; std::vector<int> v(2); x[0] = v.at(n); } catch (const Bad& b) { x[0] = b.at; } catch (...) { x[0] = -1; }"),
    "classes": "struct Base { virtual float get() const = 0; virtual ~Base() {} }; struct A : Base { float get() const override { return 1; } };\n"
    "struct B : Base { float get() const override { return 2; } };\n#include <memory>\n"
    + KERNEL.format(body="std::unique_ptr<Base> p; if (n > 3) p = std::make_unique<A>(); else p = std::make_unique<B>(); x[0] = p->get();"),
    "functions of the library": "#include <functional>\n#include <memory>\n"
    + KERNEL.format(body="std::function<float(float)> g = [&](float a) { return a + n; }; auto s = std::make_shared<int>(3); x[0] = g(x[1]) + *s;"),
    "mathematics": KERNEL.format(body="for (int64_t i = 0; i < n; i++) x[i] = std::erf(x[i]) + std::lgamma(x[i]) + std::exp(x[i]) + std::nearbyint(x[i]);"),
    "half precision and wide integers": KERNEL.format(body="_Float16 h = (_Float16)x[0]; __int128 w = (__int128)n * n; x[0] = (float)h + (float)(w / 3);"),
    "aligned memory": "#include <cstdlib>\n" + KERNEL.format(body="float* p = (float*)std::aligned_alloc(64, 4096); p[0] = x[0]; x[1] = p[0]; std::free(p);"),
    "a variable that no call changes": "float scale = 2; int counts[3];\n" + KERNEL.format(body="x[0] = scale + counts[0];"),
}  # fmt: skip

REFUSED = {
    "a constructor": ("#include <vector>\nstatic std::vector<float> kept(3);\n" + KERNEL.format(body="x[0] = kept[1];"), r"constructor .*_GLOBAL__sub_I_"),
    "a constructor attribute": ("static int seen; __attribute__((constructor)) static void first() { seen = 1; }\n" + KERNEL.format(body="x[0] = seen;"), "constructor"),
    "a destructor attribute": ("int one; volatile int* volatile_ = &one; __attribute__((destructor)) static void last() { *volatile_ = 1; }\n" + PLAIN, "destructor"),
    "thread-local memory": ("static thread_local int calls = 3;\n" + KERNEL.format(body="x[0] = ++calls;"), "calls.* is thread-local memory"),
    "private memory of threads": ("static int calls;\n#pragma omp threadprivate(calls)\n" + KERNEL.format(body="x[0] = ++calls;"), "calls.* is thread-local memory"),
    "a section of its own": ('__attribute__((section("mine"))) int hidden = 3;\n' + KERNEL.format(body="x[0] = ++hidden;"), "section of its own, 'mine'"),
    "code in a section of its own": ('__attribute__((section(".mine"), noinline)) static void g(float* x) { x[0] = 1; }\n' + KERNEL.format(body="g(x);"), "section of its own, '.mine'"),
    "code in .init": ('__attribute__((section(".init"))) void early() {}\n' + PLAIN, "'_Z5earlyv' is in .init, which runs unasked"),
    "a resolver": ('extern "C" { static void one() {} static void (*choose())() { return one; } void two() __attribute__((ifunc("choose"))); }\n' + KERNEL.format(body="two();"), "IFUNC"),
    "versions of a function": ('__attribute__((target_clones("avx2", "default"))) float g(float a) { return a * a; }\n' + KERNEL.format(body="x[0] = g(x[1]);"), "IFUNC"),
    "a weak alias": ('extern "C" { void one(float* x) { x[0] = 1; } void two(float*) __attribute__((weak, alias("one"))); }\n' + KERNEL.format(body="one(x); two(x);"), "'two' is a weak alias of 'one'"),
    "data among the code": ('__attribute__((section(".text"))) extern const unsigned char bytes[] = {0xc3, 0x90};\n' + KERNEL.format(body="((void (*)())bytes)();"), "'bytes' is data among the code"),
    "a stack that runs": ('__attribute__((section("x,\\"\\"\\n.section .note.GNU-stack,\\"x\\",@progbits\\n.section .data\\n#"))) int q = 1;\n' + PLAIN, "stack that can be run"),
}  # fmt: skip

TAKEN = {
    "dlsym": "void* dlsym(void*, const char*);",
    "dlopen": "void* dlopen(const char*, int);",
    "dl_iterate_phdr": "int dl_iterate_phdr(void*, void*);",
    "fork": "int fork();",
    "pthread_create": "int pthread_create(void*, void*, void*, void*);",
    "mmap": "void* mmap(void*, unsigned long, int, int, int, long);",
    "syscall": "long syscall(long, ...);",
    "open": "int open(const char*, int, ...);",
    "setenv": "int setenv(const char*, const char*, int);",
    "mallopt": "int mallopt(int, int);",
    "omp_set_num_threads": "void omp_set_num_threads(int);",
    "__errno_location": "int* __errno_location();",
    "optarg": "extern char* optarg;",
    "__cxa_get_globals": "void* __cxa_get_globals();",
    "sgemm_": "void sgemm_(float*) __attribute__((weak));",
    "PyRun_SimpleString": "int PyRun_SimpleString(const char*) __attribute__((weak));",
}


def candidate(source: str) -> str:
    return f"from kernels_db.runtime import cpp\nkernels = cpp.compile({source!r})\ndef run(x):\n    pass\n"


def prepare(source: str, cache: Path) -> None:
    limits = languages.CompileLimits(seconds=60)
    languages.prepare(candidate(source), "cpp", target_arch="x86_64", cache_dir=cache, limits=limits)


def often(name: str) -> bool:
    return name in ("exceptions inside", "parallel regions", "a constructor", "thread-local memory", "fork", "sgemm_")


@pytest.mark.parametrize("name", nightly_but(often, HONEST))
def test_honest_code_passes(tmp_path: Path, name: str) -> None:
    prepare(HONEST[name], tmp_path)


@pytest.mark.parametrize("name", nightly_but(often, REFUSED))
def test_what_no_kernel_needs_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    source, message = REFUSED[name]
    with pytest.raises(CompileError, match=message):
        prepare(source, tmp_path)


@pytest.mark.parametrize("name", nightly_but(often, TAKEN))
def test_what_reaches_for_others_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    source = f'extern "C" {{ {TAKEN[name]} }}\n' + KERNEL.format(body=f"volatile auto p = (void*)&{name}; (void)p;")
    with pytest.raises(CompileError, match=f"reaches for {name}: expected its own functions"):
        prepare(source, tmp_path)


@pytest.mark.parametrize("flag", ["-Wl,-rpath,/somewhere", "-Wl,--no-as-needed,-lpthread,-ldl"])
def test_libraries_and_their_places_are_the_languages_own(tmp_path: Path, flag: str) -> None:
    (tmp_path / "k.cpp").write_text("#include <cstdint>\n" + PLAIN)
    command = ["g++", "-shared", "-fPIC", "k.cpp", "-o", "k.so", flag]
    subprocess.run(command, cwd=tmp_path, check=True)
    found = elf.image((tmp_path / "k.so").read_bytes())
    if not found.paths and all(name.startswith(("libc.", "libm.", "libstdc", "libgcc")) for name in found.needed):
        pytest.skip("this system has no such library apart from libc")
    with pytest.raises(CompileError, match=r"names a directory of libraries, '/somewhere'|needs the library"):
        inspect(tmp_path / "k.so")


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kernel.so").write_bytes(b"not one")
    with pytest.raises(CompileError, match="found a file of another format"):
        inspect(tmp_path / "kernel.so")


MOST = 2**20


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cpp.build(PLAIN, cache_dir=tmp_path_factory.mktemp("cache")).path


@pytest.mark.parametrize("field", [0x20, 0x28])
def test_tables_beyond_the_largest_offset_are_refused(library: Path, tmp_path: Path, field: int) -> None:
    damaged = bytearray(library.read_bytes())
    damaged[field + 7] = 0x80  # of the program headers', the sections' offset
    (tmp_path / "damaged.so").write_bytes(bytes(damaged))
    with pytest.raises(CompileError, match="no library that can be read: found offset"):
        inspect(tmp_path / "damaged.so")


@given(cut=st.integers(0, MOST), changes=st.lists(st.tuples(st.integers(0, MOST), st.integers(0, 255)), max_size=8))
def test_a_damaged_file_is_refused_or_read_and_nothing_else(
    library: Path, tmp_path_factory: pytest.TempPathFactory, cut: int, changes: list[tuple[int, int]]
) -> None:
    whole = library.read_bytes()
    damaged = bytearray(whole[: 6 + cut % (len(whole) - 5)])
    for place, value in changes:
        damaged[place % len(damaged)] = value
    path = tmp_path_factory.getbasetemp() / "damaged.so"
    path.write_bytes(bytes(damaged))
    with contextlib.suppress(CompileError):
        inspect(path)
