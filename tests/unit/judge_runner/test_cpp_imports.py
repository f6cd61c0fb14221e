"""What a built C++ kernel reaches for: the libraries of its language, and nothing of the process that loads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpsmith.kernels_db.runtime import CompileError, cpp
from warpsmith.workers.judge import languages
from warpsmith.workers.judge.languages.imports import foreign, undefined

KERNEL = 'extern "C" void f(float* x, int64_t n) {{ {body} }}'
HONEST = """
#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>
extern "C" void f(float* x, int64_t n) {
    static std::vector<double> kept(3);
    thread_local std::vector<int> own;
    own.push_back(1);
    std::vector<float> v(x, x + n);
    std::stable_sort(v.begin(), v.end());
    std::function<float(float)> g = [&](float a) { return a + v[0]; };
    auto shared = std::make_shared<int>(3);
    #pragma omp parallel
    {
        #pragma omp critical
        x[0] += omp_get_thread_num() + g(x[1]) + *shared + float(kept[0]) + std::erf(x[2]);
    }
    if (n < 0) throw 3;
}
"""
FOREIGN = {
    "dlsym": 'extern "C" void* dlsym(void*, const char*);' + KERNEL.format(body='dlsym(nullptr, "sgemm_");'),
    "dlopen": 'extern "C" void* dlopen(const char*, int);' + KERNEL.format(body='dlopen("libm.so.6", 1);'),
    "dl_iterate_phdr": 'extern "C" int dl_iterate_phdr(int (*)(void*, unsigned long, void*), void*);'
    + KERNEL.format(body="dl_iterate_phdr(nullptr, nullptr);"),
    "sgemm_": 'extern "C" void sgemm_(float*) __attribute__((weak));' + KERNEL.format(body="if (sgemm_) sgemm_(x);"),
    "PyRun_SimpleString": 'extern "C" int PyRun_SimpleString(const char*) __attribute__((weak));'
    + KERNEL.format(body='PyRun_SimpleString("");'),
}


def test_the_libraries_of_its_language_are_its_own(tmp_path: Path) -> None:
    built = cpp.build(HONEST, cache_dir=tmp_path)
    names = {name for name, _ in undefined(built.path)}
    assert {"GOMP_parallel", "erff"} <= names
    assert foreign(built.path) == []


@pytest.mark.parametrize("name", FOREIGN)
def test_what_reaches_for_others_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    source = (
        f'from kernels_db.runtime import cpp\nkernels = cpp.compile(r"""{FOREIGN[name]}""")\ndef run(x):\n    pass\n'
    )
    with pytest.raises(CompileError, match=f"reaches for {name}: expected its own functions"):
        languages.prepare(
            source, "cpp", target_arch="x86_64", cache_dir=tmp_path, limits=languages.CompileLimits(seconds=60)
        )


def test_a_file_of_another_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "kernel.so").write_bytes(b"not one")
    with pytest.raises(ValueError, match=r"kernel\.so is no little-endian ELF-64 file"):
        undefined(tmp_path / "kernel.so")
