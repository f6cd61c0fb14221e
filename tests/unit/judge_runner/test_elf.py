"""The digest of what a compiler made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.gate.normalise import host_digest
from warpsmith.workers.judge.languages.elf import code_digest, digests
from warpsmith.workers.judge.machine.elf import sections

CODE = "int twice(int value) { int result = value * 2; return result; }\n"


def built(place: Path, source: str, *flags: str) -> bytes:
    """A shared object of `source`."""
    place.mkdir()
    (place / "k.c").write_text(source)
    command = ["gcc", "-O2", "-shared", "-fPIC", *flags, "k.c", "-o", "k.so"]
    subprocess.run(command, cwd=place, check=True)
    return (place / "k.so").read_bytes()


def test_names_of_locals_lines_and_debug_information_do_not_count(tmp_path: Path) -> None:
    first = built(tmp_path / "first", CODE)
    renamed = built(tmp_path / "renamed", CODE.replace("result", "outcome").replace("value", "input"))
    later = built(tmp_path / "later", "\n\n\n" + CODE, "-g", f"-Wl,--build-id=0x{'12' * 20}")
    assert first != later
    assert code_digest(first) == code_digest(renamed) == code_digest(later)
    assert digests([first, renamed, later]) == [code_digest(first)]


@pytest.mark.parametrize(
    "other",
    [
        CODE.replace("* 2", "* 3"),
        CODE.replace("twice", "double_"),
        CODE + "int unused_data[3] = {1, 2, 3};\n",
        CODE + "int room[100];\n",
    ],
)
def test_other_code_data_or_names_of_functions_count(tmp_path: Path, other: str) -> None:
    assert code_digest(built(tmp_path / "a", CODE)) != code_digest(built(tmp_path / "b", other))


def test_the_sections_of_a_shared_object_have_names(tmp_path: Path) -> None:
    names = {one.name for one in sections(built(tmp_path / "a", CODE))}
    assert {".text", ".dynsym"} <= names


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_have_a_digest_of_their_own(raw: bytes, elf: bool) -> None:
    raw = (b"\x7fELF\x02\x01" + raw) if elf else raw
    assert len(code_digest(raw)) == 64
    if not elf:
        assert code_digest(raw) != code_digest(raw + b"\0")


CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""{}""")

def run(x, out):
    """What it does."""
    kernels.{}(x, out, {})
'''


def test_the_host_code_counts_without_its_kernels() -> None:
    one = CPP.format('extern "C" void f(const float* x, float* out, int64_t n) {}', "f", "x.numel()")
    other = CPP.format('extern "C" void f(const float* x, float* out, int64_t n) { int a; }', "f", "x.numel()")
    assert host_digest(one) == host_digest(other) == host_digest("# a comment\n" + one)
    assert host_digest(one) != host_digest(CPP.format("", "f", "x.numel() - 1"))


def test_the_body_of_a_triton_kernel_is_no_host_code() -> None:
    text = (
        "import triton\nimport triton.language as tl\n\n@triton.jit\ndef add(x, BLOCK: tl.constexpr):\n    {}\n\n"
        "def run(x, out):\n    add[(1,)](x, BLOCK={})\n"
    )
    assert host_digest(text.format("a = 1", 2)) == host_digest(text.format("b = 1", 2))
    assert host_digest(text.format("a = 1", 2)) != host_digest(text.format("a = 1", 4))
