"""What is said where the database cannot be used by a command, or by a service that starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from warpsmith.kernels_db.library import BrokenEntry
from warpsmith.kernels_db.store.db import Database, NewerSchema, StorageFull


@contextmanager
def explaining(database: Database, where: str, expected: str, failed: Callable[[str], Exception]) -> Iterator[None]:
    """Close the database at the end; raise its errors, and those of the library of kernels, as one sentence.

    `where`: what names the database, and `expected`: what it should be, both as the sentence has them. `failed` makes
    the exception.
    """
    try:
        yield
    except BrokenEntry as error:
        raise failed(f"the library of kernels: {error}; install Warpsmith again") from None
    except NewerSchema as error:
        raise failed(str(error)) from None
    except (SQLAlchemyError, StorageFull) as error:
        original = getattr(error, "orig", None) or error
        cause = str(original).strip() or type(original).__name__  # a TimeoutError has no words
        found = f"found {database.url.render_as_string()}, which cannot be used ({cause.splitlines()[0]})"
        raise failed(f"{where}: {found}; expected {expected}") from None
    finally:
        database.dispose()
