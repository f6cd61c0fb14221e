"""Parse Python where other threads may parse: the one place of Warpsmith that makes trees of `ast`.

CPython before 3.11.8 counts the depth of the tree that it makes once for all threads of a process (gh-106905). Where
the garbage collector runs a finaliser meanwhile, and the finaliser lets another thread parse, one of the two raises
`SystemError: AST constructor recursion depth mismatch`. There a lock lets one thread parse at a time. Compiling source
or a tree makes no tree: it needs no lock. A library that parses by itself is outside the lock.
"""

import ast
import contextlib
import os
import sys
import threading

_FAULTY = sys.version_info < (3, 11, 8)
# Reentrant: a finaliser that parses must not wait for its own thread.
_LOCK = threading.RLock()
_one_at_a_time: contextlib.AbstractContextManager[object] = _LOCK if _FAULTY else contextlib.nullcontext()

if _FAULTY:
    # A child that was forked while another thread parsed would wait for that thread, which it does not have.
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def parse_module(source: str, filename: str = "<unknown>") -> ast.Module:
    """Parse the source of a module. Raises SyntaxError, ValueError, RecursionError, MemoryError."""
    with _one_at_a_time:
        return ast.parse(source, filename)


def parse_expression(text: str) -> ast.expr:
    """Parse the text of one expression. Raises as `parse_module` does."""
    with _one_at_a_time:
        return ast.parse(text, mode="eval").body
