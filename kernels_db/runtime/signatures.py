"""What the kernels of a C++ or CUDA source take: parameters read from the `extern "C"` definitions in its text.

The text is read as it stands, without preprocessing: a kernel whose head comes out of a macro is not seen. Simple
`typedef`, `using` and `#define` names of a scalar type are followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .ctext import directives, tokens
from .errors import CompileError

ParameterKind = Literal["pointer", "integer", "floating", "boolean", "tensor_map"]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    type: as declared, qualifiers dropped ("float*", "int64_t"). scalar: its value or pointed-to type by torch's name
        ("float32", "int64"; "void").
    dtypes: torch dtypes that a pointer takes; None takes any. bits: width of an integer or floating value.
    """

    name: str
    type: str
    kind: ParameterKind
    scalar: str
    dtypes: frozenset[str] | None = None
    bits: int = 0
    signed: bool = False


_Scalar = tuple[str, frozenset[str] | None]


def _scalar(name: str, *others: str) -> _Scalar:
    return name, frozenset({name, *others})


_BYTE = ("int8", "uint8", "bool")
_SCALARS: dict[str, _Scalar] = {
    "void": ("void", None),
    "bool": _scalar("bool", "uint8"),
    "char": _scalar("int8", *_BYTE),
    "signed char": _scalar("int8", *_BYTE),
    "unsigned char": _scalar("uint8", *_BYTE, "float8_e4m3fn", "float8_e5m2"),
    "int8_t": _scalar("int8", *_BYTE),
    "uint8_t": _scalar("uint8", *_BYTE, "float8_e4m3fn", "float8_e5m2"),
    "std::byte": ("uint8", None),
    "short": _scalar("int16"),
    "int16_t": _scalar("int16"),
    # Half precision has no portable C++ type, so kernels take its bits.
    "unsigned short": _scalar("uint16", "bfloat16", "float16"),
    "uint16_t": _scalar("uint16", "bfloat16", "float16"),
    "int": _scalar("int32"),
    "int32_t": _scalar("int32"),
    "unsigned int": _scalar("uint32"),
    "uint32_t": _scalar("uint32"),
    "long": _scalar("int64"),
    "long long": _scalar("int64"),
    "int64_t": _scalar("int64"),
    "ptrdiff_t": _scalar("int64"),
    "ssize_t": _scalar("int64"),
    "intptr_t": _scalar("int64"),
    "unsigned long": _scalar("uint64"),
    "unsigned long long": _scalar("uint64"),
    "uint64_t": _scalar("uint64"),
    "size_t": _scalar("uint64"),
    "uintptr_t": _scalar("uint64"),
    "float": _scalar("float32"),
    "double": _scalar("float64"),
    "_Float16": _scalar("float16"),
    "__bf16": _scalar("bfloat16"),
    "complex<float>": _scalar("complex64"),
    "complex<double>": _scalar("complex128"),
}
_CUDA_SCALARS: dict[str, _Scalar] = {
    **{name: _scalar("float16") for name in ("__half", "half", "__half2", "half2")},
    **{name: _scalar("bfloat16") for name in ("__nv_bfloat16", "nv_bfloat16", "__nv_bfloat162", "nv_bfloat162")},
    "__nv_fp8_e4m3": _scalar("float8_e4m3fn"),
    "__nv_fp8_e5m2": _scalar("float8_e5m2"),
    **{f"float{n}": _scalar("float32") for n in (2, 3, 4)},
    **{f"double{n}": _scalar("float64") for n in (2, 3, 4)},
    # Wide integer vectors are how kernels move bytes of any type.
    **{
        f"{base}{n}": (scalar, None)
        for base, scalar in (("int", "int32"), ("uint", "uint32"), ("longlong", "int64"))
        for n in (2, 3, 4)
    },
}
_BITS = {
    "int8": 8,
    "int16": 16,
    "int32": 32,
    "int64": 64,
    "uint8": 8,
    "uint16": 16,
    "uint32": 32,
    "uint64": 64,
    "float32": 32,
    "float64": 64,
}
_QUALIFIERS = frozenset(
    {
        "const",
        "volatile",
        "restrict",
        "__restrict",
        "__restrict__",
        "__grid_constant__",
        "struct",
        "register",
        "constexpr",
    }
)
_INTEGER_WORDS = frozenset({"signed", "unsigned", "short", "long", "int", "char"})
_ATTRIBUTE_CALLS = frozenset(
    {"__attribute__", "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__", "alignas", "__declspec"}
)
_CLOSING = {"(": ")", "[": "]", "{": "}", "[[": "]]"}


def signatures(source: str, *, cuda: bool = False) -> dict[str, list[Parameter]]:
    """The parameters of each `extern "C"` function that `source` defines, by its name; for CUDA, of each `__global__`
    function.

    Raises:
        CompileError: there is none, one returns something, or a parameter has a type that no argument fits.
    """
    stream = tokens(source)
    scalars = {**_SCALARS, **_CUDA_SCALARS} if cuda else dict(_SCALARS)
    aliases = _aliases(source, stream)
    found: dict[str, list[Parameter]] = {}
    for declaration in _extern_c(stream):
        head = _head(declaration)
        if head is None or "static" in head[0] or (cuda and "__global__" not in head[0]):
            continue
        returns, name, arguments = head
        kept = [
            lexeme
            for lexeme in returns
            if lexeme not in ("inline", "extern", "__global__", "__inline__", "__host__", "__forceinline__")
        ]
        if kept != ["void"]:
            raise CompileError(
                f"function {name!r} returns {' '.join(kept)!r}: a kernel returns void; make helpers static"
            )
        found[name] = [_parameter(name, i, argument, scalars, aliases) for i, argument in enumerate(_split(arguments))]
    if not found:
        kind = 'extern "C" __global__ void' if cuda else 'extern "C" void'
        raise CompileError(f"the source defines no kernel: expected at least one `{kind} name(...) {{ ... }}`")
    return found


def _extern_c(stream: Sequence[str]) -> list[list[str]]:
    """The declarations under `extern "C"`, each up to its `;` or the `{` that opens its body (which is kept as last
    lexeme).
    """
    found = []
    i = 0
    while i < len(stream) - 2:
        if stream[i] != "extern" or stream[i + 1] != '"C"':
            i += 1
        elif stream[i + 2] != "{":
            declaration, i = _declaration(stream, i + 2)
            found.append(declaration)
        else:
            i += 3
            while i < len(stream) and stream[i] != "}":
                start = i + 2 if stream[i : i + 2] == ["extern", '"C"'] else i
                declaration, i = _declaration(stream, start)
                found.append(declaration)
            i += 1
    return found


def _declaration(stream: Sequence[str], start: int) -> tuple[list[str], int]:
    """The tokens from `start` to the end of the declaration's head, and the index after the whole declaration."""
    i = start
    while i < len(stream):
        lexeme = stream[i]
        if lexeme == ";":
            return list(stream[start:i]), i + 1
        if lexeme == "{":
            return list(stream[start : i + 1]), _skip(stream, i)
        i = _skip(stream, i) if lexeme in _CLOSING else i + 1
    return list(stream[start:]), len(stream)


def _skip(stream: Sequence[str], start: int) -> int:
    """The index after the bracket that closes the one at `start`."""
    opening, closing = stream[start], _CLOSING[stream[start]]
    depth = 0
    for i in range(start, len(stream)):
        if stream[i] == opening:
            depth += 1
        elif stream[i] == closing:
            depth -= 1
            if depth == 0:
                return i + 1
    return len(stream)


def _head(declaration: list[str]) -> tuple[list[str], str, list[str]] | None:
    """(return type and specifiers, name, parameter tokens) of a function definition; None for anything else."""
    if not declaration or declaration[-1] != "{":
        return None
    returns: list[str] = []
    i = 0
    while i < len(declaration) - 1:
        lexeme = declaration[i]
        if lexeme in _ATTRIBUTE_CALLS and declaration[i + 1] == "(":
            i = _skip(declaration, i + 1)
        elif lexeme == "[[":
            i = _skip(declaration, i)
        elif lexeme == "(":
            if not returns or not (returns[-1][0].isalpha() or returns[-1][0] == "_"):
                return None
            return returns[:-1], returns[-1], declaration[i + 1 : _skip(declaration, i) - 1]
        else:
            returns.append(lexeme)
            i += 1
    return None


def _split(arguments: Sequence[str]) -> list[list[str]]:
    """The parameter list cut at its own commas; `()` and `(void)` are empty."""
    parts: list[list[str]] = [[]]
    depth = 0
    for lexeme in arguments:
        if lexeme == "," and depth == 0:
            parts.append([])
            continue
        depth += (lexeme in "(<[{") - (lexeme in ")>]}")
        parts[-1].append(lexeme)
    return [] if parts in ([[]], [["void"]]) else parts


def _aliases(source: str, stream: Sequence[str]) -> dict[str, list[str]]:
    """Names that a `typedef`, `using` or `#define` gives to other type tokens."""
    found: dict[str, list[str]] = {}
    for directive in directives(source):
        words = tokens(directive.text)
        if directive.name == "define" and len(words) > 1 and "(" not in words:
            found[words[0]] = words[1:]
    for i, lexeme in enumerate(stream):
        if lexeme not in ("typedef", "using"):
            continue
        end = next((j for j in range(i, min(i + 24, len(stream))) if stream[j] == ";"), i)
        words = list(stream[i + 1 : end])
        if lexeme == "typedef" and len(words) > 1 and "(" not in words:
            found[words[-1]] = words[:-1]
        elif lexeme == "using" and len(words) > 2 and words[1] == "=":
            found[words[0]] = words[2:]
    return found


def _parameter(
    function: str, index: int, argument: list[str], scalars: Mapping[str, _Scalar], aliases: Mapping[str, list[str]]
) -> Parameter:
    """The parameter that `argument`'s tokens declare; a default value is dropped, since every argument is passed."""
    words = argument[: argument.index("=")] if "=" in argument else list(argument)
    arrays = 0
    while words and words[-1] == "]":
        words = words[: len(words) - 1 - words[::-1].index("[")]
        arrays += 1
    name, words = _declarator(words, index)
    spelled = " ".join(argument)
    for _ in range(8):  # an alias of an alias of ...; a cycle ends here
        expanded = [part for word in words for part in aliases.get(word, [word])]
        if expanded == words:
            break
        words = expanded
    words = [word for word in words if word not in _QUALIFIERS]
    stars = words.count("*") + arrays
    base = _base(words)
    if base.endswith("CUtensorMap") and stars == 0:
        return Parameter(name, "CUtensorMap", "tensor_map", "void")
    if base in scalars and "&" not in words:
        scalar, dtypes = scalars[base]
        if stars == 1:
            return Parameter(name, f"{base}*", "pointer", scalar, dtypes)
        if stars == 0 and scalar == "bool":
            return Parameter(name, base, "boolean", scalar)
        if stars == 0 and scalar in _BITS and base not in _CUDA_SCALARS and base != "std::byte":
            kind: ParameterKind = "floating" if scalar.startswith("float") else "integer"
            return Parameter(name, base, kind, scalar, bits=_BITS[scalar], signed=scalar.startswith("int"))
    raise CompileError(
        f"parameter {name!r} of {function!r}: found `{spelled}`, expected a pointer to an arithmetic type (a tensor) "
        "or an integer, float, double or bool"
    )


def _declarator(words: list[str], index: int) -> tuple[str, list[str]]:
    """(name, type tokens); a parameter without a name is called by its position."""
    last = words[-1] if words else ""
    types = [word for word in words[:-1] if word not in _QUALIFIERS]
    named = (last[:1].isalpha() or last[:1] == "_") and bool(types) and types[-1] != "::" and last not in _QUALIFIERS
    if named and last in _INTEGER_WORDS:
        named = False
    return (last, words[:-1]) if named else (f"argument {index + 1}", words)


def _base(words: Sequence[str]) -> str:
    """The type without pointers, in the spelling of the tables: `unsigned const long int` is `unsigned long`."""
    plain = [word for word in words if word not in ("*", "&")]
    if plain[:2] == ["std", "::"] and plain[2:] != ["byte"]:
        plain = plain[2:]
    if plain and all(word in _INTEGER_WORDS for word in plain):
        longs = plain.count("long")
        sign = "unsigned " if "unsigned" in plain else "signed " if "char" in plain and "signed" in plain else ""
        size = "char" if "char" in plain else "short" if "short" in plain else "long " * longs if longs else "int"
        return (sign + size).strip()
    return "".join(plain)
