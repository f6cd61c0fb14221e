"""The fresh process that checks an export: offline, confined, with Warpsmith out of reach.

A package holds a kernel and a reference by foreign authors, so the process is held as the judge holds its runners:
no network, no files but the toolchain's, the package's and its own directory, the system calls of a compiler. On
a GPU it is the network alone, because CUDA has to be set up before the rest, by code of the package's own.

`used` runs the package's own checks; `uninstalled` looks, after the package is gone, for its traces in PyTorch. The
first line on standard output names the confinement of the process, the last one is the JSON document of the checks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from warpsmith.workers.exports import location
from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.machine.garbage import imports_kept
from warpsmith.workers.judge.sandbox import network, sandbox

GPU = Path("/dev/nvidiactl")
OURS = frozenset({"warpsmith", "kernels_db"})


class Blocked:
    """An importer that refuses to import Warpsmith."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise for Warpsmith's packages; leave others to the finders that come after."""
        if name.partition(".")[0] in OURS:
            raise ModuleNotFoundError(f"{name} is Warpsmith's: an export must do without it", name=name)
        return None


def main() -> None:
    """Run `child used|uninstalled SITE MODULE`.

    SITE is the directory that the package was installed into.
    """
    role, site, module = sys.argv[1:]
    print(json.dumps(confine(site)), flush=True)
    forget_warpsmith()
    sys.path.insert(0, site)
    if role == "uninstalled":
        print(json.dumps({"left": left_behind(module)}))
        return
    sys.argv = [module, "--json"]
    runpy.run_module(f"{module}.verify", run_name="__main__")


def confine(site: str) -> dict[str, bool]:
    """Confine this process for good, as far as the machine allows; returns the layers."""
    ability = sandbox.detect()
    network.leave(ability.network)
    layers = {"network": ability.network != "none", "files": False, "system calls": False}
    if GPU.exists():
        return layers
    process_control.drop_privileges()
    chosen = sandbox.Profile(processes=True, gpu=False, tasks=0, readable=(site,), writable=(os.getcwd(),))
    reached = sandbox.confine(chosen, ability).layers
    return layers | {"files": sandbox.FILES in reached, "system calls": sandbox.SYSTEM_CALLS in reached}


def forget_warpsmith() -> None:
    """Remove every trace of Warpsmith from this process."""
    root = location.checkout()
    if root is not None:
        sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != root]
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    sys.meta_path.insert(0, Blocked())


def left_behind(module: str) -> list[str]:
    """List what a removed package left where Python and PyTorch would find it."""
    with imports_kept():
        import torch  # noqa: PLC0415 - only this process has it

    left = [f"{module} can still be imported"] if importlib.util.find_spec(module) is not None else []
    schemas = {schema.name for schema in torch._C._jit_get_all_schemas()}
    return left + sorted(f"the op {name}" for name in schemas if name.startswith(f"{module}::"))


if __name__ == "__main__":
    main()
