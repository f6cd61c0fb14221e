"""A candidate's identity, and the kernel sources inside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.gate import kernel_sources, normalised_digest

SOURCE = '''
from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void add(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] + 1.0f;
}
""", flags=("-O2",))


def run(x, out):
    kernels.add(x, out, out.numel())
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\nfrom", '"""What it does."""\n# and how\nfrom'),
        ("def run(x, out):", 'def run(x, out):  # fast\n    """Adds one."""'),
        ("kernels.add(x, out, out.numel())", "kernels.add(\n        x,\n        out,\n        out.numel(),\n    )"),
        ("    for (int64_t", "    // one pass\n    for(int64_t"),
        ("{\n    for", "{ /* loop */ for"),
        ("x[i] + 1.0f", "x[i]+1.0f"),
        ('r"""', '"""'),
    ],
)
def test_layout_and_comments_do_not_change_the_identity(old: str, new: str) -> None:
    changed = SOURCE.replace(old, new, 1)
    assert changed != SOURCE
    assert normalised_digest(changed) == normalised_digest(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1.0f", "1.5f"),
        ("+ 1", "- 1"),
        ("-O2", "-O3"),
        ("out.numel()", "x.numel()"),
        ("++i", "i += 2"),
        ("kernels", "native"),
        ("float* out", "double* out"),
    ],
)
def test_a_change_of_meaning_changes_the_identity(old: str, new: str) -> None:
    assert normalised_digest(SOURCE.replace(old, new)) != normalised_digest(SOURCE)


def test_a_string_that_is_no_kernel_keeps_its_spaces() -> None:
    assert normalised_digest("x = 'a  b'") != normalised_digest("x = 'a b'")


@given(st.text(max_size=200))
def test_any_text_has_an_identity(text: str) -> None:
    digest = normalised_digest(text)
    assert len(digest) == 64
    assert digest == normalised_digest(text)


def test_a_candidate_is_the_same_one_under_every_python() -> None:
    """The digest as Python 3.11, 3.12 and 3.13 gave it: databases, bundles and packages travel between them."""
    assert normalised_digest(SOURCE) == "89e3e53aa09e6cf16e1123f3e72f263de1ca266da38a6c938db503681e704b09"


def test_deep_text_has_an_identity() -> None:
    assert normalised_digest("x = 1" + " + 1" * 3000) != normalised_digest("x = 1" + " + 1" * 3001)


def test_the_kernel_sources_are_the_constant_ones() -> None:
    source = """
from kernels_db.runtime import cpp
from kernels_db.runtime import cuda as gpu
TEXT = "extern"
FLAGS = ["-O2"]
one = cpp.compile(TEXT, FLAGS)
two = gpu.compile(source="second", flags=("--use_fast_math",))
three = cpp.compile("a" + "b")
four = print("x")
"""
    found = [(entry.name, entry.language, entry.source, entry.flags, entry.line) for entry in kernel_sources(source)]
    assert found == [
        ("one", "cpp", "extern", ("-O2",), 4),
        ("two", "cuda", "second", ("--use_fast_math",), 7),
    ]
