"""The compiler reads nothing of this host for a candidate, whatever the text says and however it says it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kinds import nightly_but
from warpsmith.kernels_db.runtime import CompileError, cpp
from warpsmith.workers.judge import languages
from warpsmith.workers.judge.languages import confined_compiler
from warpsmith.workers.judge.sandbox import sandbox

SECRET = "planted_4711_hunter2"
KERNEL = 'extern "C" void f(float* x) { x[0] = 1; }\n'
ABILITY = sandbox.detect()
whole = pytest.mark.skipif(not (ABILITY.landlock and ABILITY.seccomp), reason=f"this machine confines less: {ABILITY}")

INCLUDES = {
    "an absolute name": '#include "PATH"',
    "a name in angles": "#include <PATH>",
    "a relative name": '#include "RELATIVE"',
    "a name from a macro": '#define NAMED "PATH"\n#include NAMED',
    "a name from an angled macro": "#define NAMED <PATH>\n#include NAMED",
    "a trigraph": '??=include "PATH"',
    "a digraph": '%:include "PATH"',
    "a spliced word": '#inc\\\nlude "PATH"',
    "a spliced name": '#include "PATH_HEAD\\\nPATH_TAIL"',
    "a form feed": '\f#include "PATH"',
    "a vertical tab": '\v#include "PATH"',
    "a lone carriage return": 'int q;\r#include "PATH"\r',
    "a comment before it": '/* */ #/* */include/* */"PATH"',
    "include_next": '#include_next "PATH"',
    "import": '#import "PATH"',
    "embed": 'const unsigned char q[] = {\n#embed "PATH"\n};',
    "a line's file": '#line 1 "PATH"\nno_such_type q;',
    "a line marker": '# 1 "PATH"\nno_such_type q;',
    "a file that others wait for": '#pragma GCC dependency "PATH"',
    "a precompiled header": '#pragma GCC pch_preprocess "PATH"',
    "a pragma in code": '_Pragma("GCC dependency \\"PATH\\"")',
    "a header unit": 'import "PATH";',
}
ASSEMBLED = {
    "incbin": '.incbin \\"PATH\\"',
    "include of the assembler": '.include \\"PATH\\"',
}
PLACES = {
    "an asm": 'asm("INSERT");',
    "an asm in a function": 'static void g() { asm volatile("INSERT"); }\nvoid (*h)() = g;',
    "a section's name": '__attribute__((section("s\\n.section .data\\nINSERT\\n#"))) int q = 1;',
    "a label": 'int q asm("q\\nINSERT\\n");',
    "a function's label": 'void q() asm("q\\nINSERT\\n#"); void q() {}',
    "an alias's name": 'extern "C" int one = 1; extern int q __attribute__((alias("one\\nINSERT\\n#")));',
    "a symbol's version": '__attribute__((symver("q@V\\nINSERT\\n#"))) int q() { return 1; }',
    "a target": '__attribute__((target("arch=native\\nINSERT"))) void q() {}',
}
WAYS = INCLUDES | {
    f"{one} in {place}": text.replace("INSERT", insert)
    for place, text in PLACES.items()
    for one, insert in ASSEMBLED.items()
}
"""Texts by what they try; PATH is the planted file."""
LEAKS = (
    "an absolute name",
    "a name from a macro",
    "a form feed",
    "a line's file",
    "incbin in an asm",
    "incbin in a section's name",
    "include of the assembler in a label",
)
"""Those of which it is known that an unconfined compiler falls for them, on any version of it."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted") / "file"
    path.write_text(f"{SECRET}\n")
    return path


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_PLANTED_KEY", SECRET)


def text(way: str, path: Path) -> str:
    name = str(path)
    source = WAYS[way].replace("PATH_HEAD", name[:5]).replace("PATH_TAIL", name[5:]).replace("PATH", name)
    return f"{source.replace('RELATIVE', '../' * 12 + name.lstrip('/'))}\n{KERNEL}"


def candidate(source: str, flags: str = "") -> str:
    head = f"from kernels_db.runtime import cpp\nkernels = cpp.compile({source!r}{flags})"
    return f"{head}\n\n\ndef run(x):\n    kernels.f(x)\n"


def told(source: str, cache: Path) -> str:
    """All that a judge's build of a candidate says and keeps, but for the name of the file."""
    try:
        prepared = languages.prepare(
            source, "cpp", target_arch="x86_64", cache_dir=cache, limits=languages.CompileLimits(seconds=60)
        )
        said = prepared["log"]
    except CompileError as error:
        said = error.message + error.log
    return said + kept(cache)


def kept(cache: Path) -> str:
    return "".join(path.read_bytes().decode("latin-1") for path in cache.rglob("*") if path.is_file())


@whole
@pytest.mark.parametrize("way", nightly_but(lambda way: way in LEAKS, WAYS))
def test_no_way_leads_to_a_file_of_the_host(planted: Path, tmp_path: Path, way: str) -> None:
    assert SECRET not in told(candidate(text(way, planted)), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("way", LEAKS)
def test_each_way_leads_there_without_the_confinement(planted: Path, tmp_path: Path, way: str) -> None:
    """Else the test above would prove nothing."""
    try:
        said = cpp.build(text(way, planted), cache_dir=tmp_path).log
    except CompileError as error:
        said = error.log
    assert SECRET in said + kept(tmp_path)


@whole
@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/self/cmdline", "/proc/PARENT/environ", "/dev/stdin", "/proc/self/fd/3"]
)
def test_the_environment_is_no_file(tmp_path: Path, path: str) -> None:
    source = f'asm(".incbin \\"{path.replace("PARENT", str(os.getpid()))}\\"");\n{KERNEL}'
    assert SECRET not in told(candidate(source), tmp_path)


@whole
def test_the_preprocessor_cannot_ask_what_is_in_a_home(planted: Path, tmp_path: Path) -> None:
    source = f'#if __has_include("{planted}")\n#error it is there\n#endif\n{KERNEL}'
    assert "it is there" not in told(candidate(source), tmp_path)


FLAGS = ["-IPATH", "-includePATH", "@PATH", "-Wl,PATH", "-Wa,PATH", "-fplugin=PATH", "-flto", "-B/tmp", "-xassembler"]


@pytest.mark.parametrize("flag", FLAGS)
def test_no_flag_names_a_file(planted: Path, tmp_path: Path, flag: str) -> None:
    flags = f", flags=({flag.replace('PATH', str(planted))!r},)"
    with pytest.raises(CompileError, match="flags: found"):
        languages.prepare(
            candidate(KERNEL, flags), "cpp", target_arch="x86_64", cache_dir=tmp_path,
            limits=languages.CompileLimits(seconds=60),
        )  # fmt: skip


def test_the_toolchain_is_named_by_itself_and_has_no_home() -> None:
    places = confined_compiler.toolchain_places()
    assert any(Path(place, "omp.h").exists() or list(Path(place).rglob("omp.h")) for place in places)
    home = os.path.expanduser("~")
    assert not any(f"{home}/".startswith(place.rstrip("/") + "/") for place in places)


@whole
def test_what_confines_the_compiler_is_told(tmp_path: Path) -> None:
    told(candidate(KERNEL), tmp_path)
    held = confined_compiler.confinement()
    assert held is not None
    assert {sandbox.FILES, sandbox.SYSTEM_CALLS} <= set(held.layers)
    assert "memory watch" not in held.layers
