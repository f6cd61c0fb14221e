"""Makes the runtime importable as `kernels_db.runtime`, the name that candidates use.

Only in processes that load candidates. Candidates, shipped kernels, pools and prompts say `from
kernels_db.runtime import cpp`. The installed package is `warpsmith.kernels_db.runtime`, so that Warpsmith
takes no short name in site-packages; a loader of candidates calls `provide_runtime` first. Standard library
only: the judge calls it, too.
"""

from __future__ import annotations

import sys
from types import ModuleType

from warpsmith.kernels_db import runtime
from warpsmith.kernels_db.runtime import cpp, cuda

NAME = "kernels_db"


def provide_runtime() -> None:
    """Let this process import the runtime as candidates do.

    The modules are the same objects under both names. A package of that name which was imported before makes way:
    candidates mean the runtime.
    """
    package = ModuleType(NAME, "The runtime, by the name that candidates use.")
    package.__path__ = []  # a package, of which nothing else is found
    package.runtime = runtime  # type: ignore[attr-defined]
    sys.modules |= {
        NAME: package,
        f"{NAME}.runtime": runtime,
        f"{NAME}.runtime.cpp": cpp,
        f"{NAME}.runtime.cuda": cuda,
    }
