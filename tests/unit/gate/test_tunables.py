"""Tunables: what is read of a candidate, what is refused, and its source under other numbers."""

from __future__ import annotations

import ast
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.kernels_db.runtime.ctext import tokens
from warpsmith.workers.gate import check, tunables
from warpsmith.workers.gate.tunables import BadTunables, Tunables, read_tunables, specialise

CANDIDATE = '''"""Zeile für Zeile."""
from kernels_db.runtime import cpp

TUNE = {"ROWS": [1, 4, 16], "WIDTH": (256, 512), "BOTH": [2, 3]}
TUNE_WHERE = ("ROWS * WIDTH <= 4096", "not (BOTH == 3 and ROWS > 4)")
ä, ROWS = 0, 0
ROWS = 4
BOTH = 2  # and a flag
FLAGS = ("-O3", "-DWIDTH=" "256", '-DBOTH=2')
kernels = cpp.compile(r"""
extern "C" void f(const float* x, float* y, int64_t n, int64_t rows) {
    for (int64_t i = 0; i < n; i += rows) y[i] = x[i] * WIDTH * BOTH;
}
""", flags=FLAGS)


def run(x, y):
    kernels.f(x, y, x.numel(), ROWS * BOTH)
'''.replace("ä, ROWS = 0, 0\n", "")


def read(source: str) -> Tunables | None:
    return read_tunables(ast.parse(source))


def test_names_values_and_the_configurations_that_conditions_admit() -> None:
    found = read(CANDIDATE)
    assert found is not None
    assert found.values == {"ROWS": (1, 4, 16), "WIDTH": (256, 512), "BOTH": (2, 3)}
    assert found.default == {"ROWS": 4, "WIDTH": 256, "BOTH": 2} == found.configurations[0]
    # 12 combinations: 16 x 512 is too many, for either BOTH; 16 x 256 goes with BOTH 2 alone.
    assert len(found.configurations) == 9
    assert {"ROWS": 16, "WIDTH": 256, "BOTH": 2} in found.configurations
    assert {"ROWS": 16, "WIDTH": 256, "BOTH": 3} not in found.configurations
    assert read(CANDIDATE.replace("TUNE", "OTHER")) is None
    assert check(CANDIDATE, "cpp", (), ("x", "y")) == []


@given(st.data())
def test_a_configuration_is_the_same_file_with_other_numbers(data: st.DataObject) -> None:
    found = read(CANDIDATE)
    assert found is not None
    chosen = data.draw(st.sampled_from(found.configurations))
    again = specialise(CANDIDATE, chosen)
    other = read(again)
    assert other is not None
    assert other.default == chosen
    assert other.values == found.values
    assert sorted(map(str, other.configurations)) == sorted(map(str, found.configurations))
    assert specialise(again, chosen) == again
    assert check(again, "cpp", (), ("x", "y")) == []
    changed = [pair for pair in zip(CANDIDATE.splitlines(), again.splitlines(), strict=True) if pair[0] != pair[1]]
    assert all(line.startswith(("ROWS", "BOTH", "FLAGS")) for line, _ in changed)


def test_numbers_are_replaced_in_their_places() -> None:
    again = specialise(CANDIDATE, {"ROWS": 1, "WIDTH": 512, "BOTH": 3})
    assert "\nROWS = 1\nBOTH = 3  # and a flag\n" in again
    assert 'FLAGS = ("-O3", "-DWIDTH=512", "-DBOTH=3")' in again


@pytest.mark.parametrize("chosen", [{}, {"ROWS": 2, "WIDTH": 256, "BOTH": 2}, {"ROWS": 16, "WIDTH": 512, "BOTH": 2}])
def test_no_other_configuration_can_be_had(chosen: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected one of the candidate's own"):
        specialise(CANDIDATE, chosen)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('{"ROWS": [1, 4, 16], "WIDTH": (256, 512), "BOTH": [2, 3]}', "{}", "line 4: TUNE: expected a dict such as"),
        ("[1, 4, 16]", "range(3)", "TUNE['ROWS']: expected a list of 1 to 16 different whole numbers"),
        ("[1, 4, 16]", "[1, 4, 4]", "TUNE['ROWS']: expected a list of 1 to 16 different whole numbers"),
        ("[1, 4, 16]", "[4, True]", "TUNE['ROWS']: expected a list of 1 to 16 different whole numbers"),
        ("[1, 4, 16]", "[4, -1]", "TUNE['ROWS']: expected a list of 1 to 16 different whole numbers"),
        ("[1, 4, 16]", "[4, 1.5]", "TUNE['ROWS']: expected a list of 1 to 16 different whole numbers"),
        ("[1, 4, 16]", str(list(range(17))), "TUNE['ROWS']: expected a list of 1 to 16 different whole numbers"),
        ('"ROWS": [1, 4, 16]', '"no name": [1, 4, 16]', "TUNE: a key is no name"),
        ('"BOTH": [2, 3]', '"ROWS": [2, 3]', "TUNE: found 'ROWS' twice"),
        ("\nROWS = 4", "\nROWS = 5", "line 6: ROWS: found 5, expected the same number everywhere, one of [1, 4, 16]"),
        ("\nROWS = 4", "\nROWS = 2 + 2", "ROWS: found no whole number, expected"),
        ("\nROWS = 4", "", "TUNE['ROWS']: expected `ROWS = 1` in the module, or a flag -DROWS=..."),
        ("'-DBOTH=2'", "'-DBOTH=3'", "BOTH: found 3, expected the same number everywhere"),
        ('"ROWS * WIDTH <= 4096"', '"ROWS * WIDTH <= 1"', "TUNE_WHERE: the numbers in the file, ROWS=4, WIDTH=256"),
        ('"ROWS * WIDTH <= 4096"', '"ROWS ** WIDTH <= 1"', "TUNE_WHERE: found 'ROWS ** WIDTH <= 1', expected"),
        ('"ROWS * WIDTH <= 4096"', '"OTHER < 1"', "TUNE_WHERE: found 'OTHER < 1', expected comparisons"),
        ('"ROWS * WIDTH <= 4096"', '"ROWS"', "TUNE_WHERE: found 'ROWS', expected comparisons"),
        ('"ROWS * WIDTH <= 4096"', '"print(ROWS) == 1"', "TUNE_WHERE: found 'print(ROWS) == 1', expected"),
        ('"ROWS * WIDTH <= 4096"', '"ROWS <"', "TUNE_WHERE: found 'ROWS <', expected comparisons"),
        ('"ROWS * WIDTH <= 4096"', "7", "TUNE_WHERE: expected 1 to 8 texts such as"),
        ("TUNE =", "OTHER =", "line 5: TUNE_WHERE: found without TUNE"),
    ],
)
def test_what_cannot_be_read_is_named_by_the_gate(old: str, new: str, says: str) -> None:
    assert CANDIDATE.count(old) == 1
    source = CANDIDATE.replace(old, new)
    with pytest.raises(BadTunables) as caught:
        read(source)
    assert says in str(caught.value)
    assert caught.value.problem in check(source, "cpp", (), ("x", "y"))


def test_there_are_limits_to_combinations() -> None:
    constants = "".join(f"N{number} = 0\n" for number in range(4))

    def declared(*counts: int) -> str:
        values = ", ".join(f'"N{number}": {list(range(count))}' for number, count in enumerate(counts))
        return f"TUNE = {{{values}}}\n{constants}"

    with pytest.raises(BadTunables, match="found 512 configurations, expected at most 64: fewer values"):
        read(declared(8, 8, 8))
    found = read(declared(8, 8, 8) + 'TUNE_WHERE = "N0 + N1 + N2 <= 3"\n')
    assert found is not None
    assert len(found.configurations) == 20
    with pytest.raises(BadTunables, match="found 6656 combinations, expected at most 4096"):
        read(declared(8, 8, 8, 13))


def test_a_division_by_zero_admits_nothing() -> None:
    found = read('TUNE = {"A": [0, 1, 2]}\nTUNE_WHERE = ("4 % A == 0",)\nA = 1\n')
    assert found is not None
    assert found.configurations == ({"A": 1}, {"A": 2})


@given(st.text(max_size=200))
def test_any_text_behind_tune_is_refused_or_read(text: str) -> None:
    try:
        tree = ast.parse(f"TUNE = {text}\nA = 1\n")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    with suppress(BadTunables):
        read_tunables(tree)


@pytest.mark.parametrize(
    ("template", "parameter"),
    [
        ("template <int WIDTH>", True),
        ("template <typename T, int WIDTH = 4>", True),
        ("template <template <class> class C, int N, bool WIDTH>", True),
        ("template<\n    int N = (1 > 2 ? 3 : 4),\n    int WIDTH>", True),
        ("template <int... WIDTH>", True),
        ("template <int BOTH>", True),
        ("template <int ROWS>", False),  # a number of the module alone, which no flag carries into the source
        ("template <int width>", False),
        ("template <int N = WIDTH>", False),
        ("template <int N, int M = f<WIDTH>()>", False),
        ("// template <int WIDTH>", False),
        ("template <> struct S<WIDTH> {};  template <int N>", False),
        ("template <template <class WIDTH> class C>", True),
        ("template <int N = a[b[0]], int WIDTH>", True),
        ("template <int N, bool B = N < 4> int f(int); static const int A = 1, WIDTH = 2;", False),
        ("template <int N, bool B = N < 4> int f(int); template <int WIDTH>", True),
    ],
)
def test_a_flag_that_a_template_has_as_a_parameter_is_refused(template: str, parameter: bool) -> None:
    source = CANDIDATE.replace('extern "C"', f'{template}\nstatic inline int twice() {{ return 2; }}\nextern "C"')
    if not parameter:
        assert read(source) is not None
        return
    name = "BOTH" if "BOTH" in template else "WIDTH"
    with pytest.raises(BadTunables) as caught:
        read(source)
    assert f"TUNE['{name}']: found a template parameter '{name}' in the source beside the flag" in str(caught.value)
    assert caught.value.problem in check(source, "cpp", (), ("x", "y"))


def test_template_parameters_are_read_once_whatever_the_text_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def count(text: str) -> list[str]:
        texts.append(text)
        return tokens(text)

    monkeypatch.setattr(tunables, "tokens", count)
    source = (
        'TUNE = {"WIDTH": [1, 2]}\nFLAGS = ['
        + '"-DWIDTH=1", ' * 2000
        + ']\nSOURCE = """'
        + "template<" * 8000
        + '"""\n'
    )
    assert read(source) is not None
    assert len(texts) == 1, "one reading serves every flag"
