"""Candidates from files: their language, and kernels of other formats rewritten."""

from __future__ import annotations

import ast
import os
from pathlib import Path

from warpsmith.kernels_db.formats import kernel_import
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.files import MOST_BYTES, RawFile
from warpsmith.kernels_db.job.languages import GATED, LANGUAGES, imported_languages
from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.kernels_db.spec.op import Op, SpecError, SpecErrors
from warpsmith.workers.judging.submission import Candidate


def read_candidate(op: Op, source: str, language: str | None = None, file: Path | None = None) -> Candidate:
    """Read a candidate for `op`; its language from its imports where `language` is None.

    A KernelBench ModelNew, a FlashInfer-Bench Solution and a GPU MODE submission become free Python. `file`: where
    the source comes from, for messages; its ending tells JSON from Python.

    Raises SpecError for a language that there is not, for imports that name none or several, and for a source that is
    no text; SpecErrors for a kernel of another format that does not fit the op.
    """
    if language is not None and language not in LANGUAGES:
        raise SpecError("language", language, one_of(language, LANGUAGES))
    if not isinstance(source, str):
        raise SpecError("source", f"a {type(source).__name__}", "the text of a candidate")
    path = file or Path("source.json" if source.lstrip().startswith("{") else "source.py")
    if language in (None, kernel_import.LANGUAGE) and (rewritten := _adapt(path, source, op)) is not None:
        return rewritten
    return Candidate(language or language_of(source, str(file or "source")), source)


def read_candidate_file(op: Op, source: str | os.PathLike[str], language: str | None = None) -> Candidate:
    """Read a candidate from a Path, or from its text; otherwise as `read_candidate`."""
    if isinstance(source, os.PathLike):
        path = Path(source)
        try:
            return read_candidate(op, path.read_text(encoding="utf-8"), language, path)
        except UnicodeDecodeError as error:
            raise SpecError("source", f"{path}, byte {error.start} of which is not UTF-8", "a text file") from None
    return read_candidate(op, source, language)


def language_of(source: str, name: str) -> str:
    """Read the language of a candidate from its imports; SpecError where they name none or several."""
    try:
        tree = parse_module(source, name)
    except (SyntaxError, ValueError) as error:
        raise SpecError(name, str(error), "a Python file") from None
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module or ''}.{alias.name}" for alias in node.names}
    found = imported_languages(imported)
    if len(found) != 1:
        expected = f"an import of exactly one: {', '.join(GATED)}; or the language named, python for PyTorch alone"
        raise SpecError(f"{name}: imports", ", ".join(found) or "no kernel language", expected)
    return found[0]


def raw_file(path: Path, text: str) -> RawFile:
    """Name a text as the file of a format; SpecError where it is too large."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MOST_BYTES:
        raise SpecError("source", f"{path} of {len(data)} bytes", f"a file of at most {MOST_BYTES} bytes")
    return RawFile(path.name, data)


def _adapt(path: Path, source: str, op: Op) -> Candidate | None:
    """Rewrite a file of another format; None where it defines `run` itself or has no known format."""
    file = raw_file(path, source)
    if path.suffix == ".py" and _defines_run(file):
        return None
    if kernel_import.recognise(file) is None:
        if path.suffix == ".json":
            expected = f"a candidate, or {kernel_import.FORMATS['flashinfer-bench'].expected}"
            raise SpecError("source", str(path), expected)
        return None
    found = kernel_import.adapt(file, op)
    return Candidate(kernel_import.LANGUAGE, found.source, found.format, tuple(found.notes))


def _defines_run(file: RawFile) -> bool:
    try:
        return "run" in python_source.defined(python_source.parse(file))
    except SpecErrors:  # the judge reports it, as for any candidate
        return False
