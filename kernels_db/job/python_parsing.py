"""Parse Python where other threads may parse: the one place of Warpsmith that makes trees of `ast`.

CPython before 3.11.8 counts the depth of the tree that it makes once for all threads of a process (gh-106905). Where
the garbage collector runs a finaliser meanwhile, and the finaliser parses or lets another thread parse, the tree that
is then finished is thrown away: `SystemError: AST constructor recursion depth mismatch`. Here it is made again. No lock
is held: a finaliser would wait for another's lock with this one held, and so would a fork. Compiling source or a tree
makes no tree of `ast`. A library that parses by itself has to see to it itself.
"""

import ast
from typing import Literal

MOST_TRIES = 20
"""How often a tree is made: each time another parse must have begun and ended meanwhile."""

_FAULT = "AST constructor recursion depth mismatch"


def parse_module(source: str, filename: str = "<unknown>") -> ast.Module:
    """Parse the source of a module.

    Raises SyntaxError, where it is nested more deeply than the parser goes too, and ValueError.
    """
    found = _parse(source, filename, "exec")
    assert isinstance(found, ast.Module)
    return found


def parse_expression(text: str) -> ast.expr:
    """Parse the text of one expression. Raises as `parse_module` does."""
    found = _parse(text, "<unknown>", "eval")
    assert isinstance(found, ast.Expression)
    return found.body


def _parse(source: str, filename: str, mode: Literal["exec", "eval"]) -> ast.AST:
    for tries in range(1, MOST_TRIES + 1):
        try:
            return ast.parse(source, filename, mode)
        except (RecursionError, MemoryError) as error:  # by the version of Python; neither says where
            raise SyntaxError("nested too deeply", (filename, 1, 1, None)) from error
        except SystemError as error:
            if _FAULT not in str(error) or tries == MOST_TRIES:
                raise
    raise AssertionError("the last try returns or raises")
