"""Run an export's checks, each where it belongs.

Files here, the kernel's build in a compiler's process, the op in fresh processes. Nothing of the export is run in this
process, nor before its files were found to be what they claim.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.spec.target import CPU_ARCHITECTURES
from warpsmith.workers.exports import location
from warpsmith.workers.exports.project import FILE_CHECKS, Kernel, Project, Refused, open_project
from warpsmith.workers.exports.report import Outcome, Report, Row
from warpsmith.workers.judge.languages import CompileError, CompileLimits, prepare

TIMEOUT_S = 900.0
"""Seconds of one process. Inductor on a busy machine takes most of them."""
KEPT = ("PATH", "LANG", "CXX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Variables that name the machine's own tools; every other stays outside."""
LONGEST_LOG = 2000
PACKAGE_CHECKS = (
    "import",
    "signature",
    "opcheck",
    "eager",
    "compile",
    "dynamic shapes",
    "CUDA graph",
    "fallback",
    "strided inputs",
    "gradients",
    "control",
    "dispatch overhead",
)
"""The checks of a package's own `verify`, each of which its document has to report."""
BUILDS = "build"
"""Where the kernel is built for its target, and where the package then finds it.

A confined process starts no compiler in a session of its own.
"""
_CHILD = "from warpsmith.workers.exports.child import main; main()"


class CannotVerify(Exception):  # noqa: N818 - named for what happened
    """This machine cannot check exports at all; the message says what is missing."""


def verify_export(directory: Path) -> Report:
    """Check the export in `directory` and leave the report there.

    Where the files are not what they claim, nothing is run. Raises NotAnExport, CannotVerify.
    """
    project = open_project(directory)
    if importlib.util.find_spec("torch") is None:
        raise CannotVerify("torch is not installed here")
    rows = [_row(name, lambda check=check: check(project)) for name, check in FILE_CHECKS.items()]  # type: ignore[misc]
    environment: dict[str, Any] = {}
    if all(row.outcome == "passed" for row in rows):
        with tempfile.TemporaryDirectory(prefix="warpsmith-verify-") as scratch:
            rows.append(_row("build for the target", lambda: build_for_target(project, Path(scratch) / BUILDS)))
            found, environment = _use(project, Path(scratch))
            rows += found
    else:
        rows.append(Row("op", "skipped", "the files are not what they claim: nothing of them is run"))
    report = Report(
        package=project.module,
        kernel=", ".join(each.kernel for each in project.kernels),
        target=", ".join(each.target for each in project.kernels),
        source_digest=", ".join(each.source_digest for each in project.kernels),
        verified_at=datetime.now(UTC).isoformat(timespec="seconds"),
        rows=rows,
        environment=environment,
    )
    report.write(directory)
    return report


class Skipped(Exception):  # noqa: N818 - an outcome
    """A check that this machine cannot do; the message says why."""


def _row(name: str, check: Callable[[], str]) -> Row:
    begun = time.perf_counter()
    outcome: Outcome = "passed"
    try:
        detail = check()
    except Skipped as reason:
        outcome, detail = "skipped", str(reason)
    except (Refused, CompileError) as error:
        outcome, detail = "failed", str(error)
    return Row(name, outcome, detail, round(time.perf_counter() - begun, 2))


def build_for_target(project: Project, scratch: Path) -> str:
    """Compile the kernels for their architectures. Returns what was built.

    A GPU's needs no GPU for that. Raises CompileError, and Skipped where this machine has no compiler for any of them.
    """
    scratch.mkdir(parents=True)
    built, skipped = [], []
    workloads = project.load("workloads.json")
    for kernel in project.kernels:
        reason = _not_built_here(kernel)
        if reason is not None:
            skipped.append(f"{kernel.language} for {kernel.target}: {reason}")
            continue
        prepared = prepare(
            project.source(kernel),
            kernel.language,
            target_arch=Target.parse(kernel.target).arch,
            cache_dir=scratch,
            limits=CompileLimits(),
            workloads=[each for each in workloads if each["kernel"] == kernel.name],
        )
        names = ", ".join(dict.fromkeys(each["name"] for each in prepared["kernels"])) or "no kernel of its own"
        built.append(f"{kernel.language} for {kernel.target}: {names}")
    if not built:
        raise Skipped("; ".join(skipped))
    return "; ".join([*built, *(f"not built: {each}" for each in skipped)])


def _not_built_here(kernel: Kernel) -> str | None:
    """Say why this machine has no compiler for a kernel; None where it has one."""
    target = Target.parse(kernel.target)
    here = CPU_ARCHITECTURES.get(platform.machine().lower(), platform.machine())
    if target.device == "cpu" and target.arch != here:
        return f"this machine is {here}, and its compiler builds for itself"
    known = LANGUAGES.get(kernel.language)
    needed = known.package if known else None
    return f"{needed} is not installed here" if needed is not None and not _importable(needed) else None


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package above it
        return False


def _use(project: Project, scratch: Path) -> tuple[list[Row], dict[str, Any]]:
    """Install the package, use it, remove it, and look for what is left."""
    site, home = scratch / "site", scratch / "home"
    shutil.copytree(project.package, site / project.module, ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()
    variables = _environment(project, scratch, home)
    done = _run("used", site, project.module, variables, scratch)
    layers, document = _documents(done)
    rows, environment = [_confined(layers)], {}
    if document is None:
        rows.append(Row("op", "failed", _death(done)))
    else:
        try:
            rows += package_rows(document)
            environment = document["environment"]
        except Refused as error:
            rows.append(Row("op", "failed", str(error)))
    shutil.rmtree(site)
    rows.append(_row("uninstall", lambda: _uninstalled(site, home, project.module, variables, scratch)))
    return rows, environment


def package_rows(document: dict[str, Any]) -> list[Row]:
    """Read the checks that a package's own `verify` reports, each once.

    Raises Refused for a document of another form.
    """
    checks, environment = document.get("checks"), document.get("environment")
    if not isinstance(checks, list) or not isinstance(environment, dict):
        raise Refused("the package's report: found another form, expected `checks` and `environment`")
    rows = []
    for number, row in enumerate(checks):
        texts = [row.get(name) for name in ("check", "outcome", "detail")] if isinstance(row, dict) else [None]
        seconds = row.get("seconds") if isinstance(row, dict) else None
        if not all(isinstance(text, str) for text in texts) or not isinstance(seconds, int | float):
            raise Refused(f"the package's report: checks[{number}]: expected check, outcome, detail and seconds")
        if row["outcome"] not in get_args(Outcome):
            expected = ", ".join(get_args(Outcome))
            raise Refused(f"the package's report: checks[{number}]: outcome {row['outcome']!r}, expected {expected}")
        rows.append(Row(row["check"], row["outcome"], row["detail"], float(seconds)))
    found = sorted(row.check for row in rows)
    if found != sorted(PACKAGE_CHECKS):
        raise Refused(
            f"the package's report: found the checks {', '.join(found)}, expected {', '.join(PACKAGE_CHECKS)}"
        )
    return rows


def _environment(project: Project, scratch: Path, home: Path) -> dict[str, str]:
    """Return the variables of a user who has none of his own.

    No cache holds anything but the kernel's build.
    """
    variables = {name: os.environ[name] for name in KEPT if name in os.environ}
    temporary = scratch / "tmp"
    temporary.mkdir()
    variables |= {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        CACHE_VARIABLE: str(scratch / BUILDS),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    root = location.checkout()
    if root is not None:
        variables["PYTHONPATH"] = str(root)  # for the child itself, which then forgets it
    if any(each.language == "triton" and each.target.startswith("cpu") for each in project.kernels):
        variables["TRITON_INTERPRET"] = "1"
    return variables


def _run(
    role: str, site: Path, module: str, variables: dict[str, str], directory: Path
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [sys.executable, "-P", "-c", _CHILD, role, str(site), module],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            cwd=directory,
            env=variables,
        )
    except subprocess.TimeoutExpired as error:
        said = error.stderr or b""
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        return subprocess.CompletedProcess(error.cmd, 124, "", f"{text}\nno end after {TIMEOUT_S:g} s")


def _documents(done: subprocess.CompletedProcess[str]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Read the first and the last line of a child's output; None for what is not there."""
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    parsed: list[dict[str, Any] | None] = []
    for line in (lines[:1], lines[1:][-1:]):
        try:
            parsed.append(json.loads(line[0]) if line else None)
        except (ValueError, RecursionError):
            parsed.append(None)
    return parsed[0], parsed[1]


def _death(done: subprocess.CompletedProcess[str]) -> str:
    """Describe how a process ended that gave no report.

    Its standard error names the check that it was at.
    """
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return f"the process ended with {how}: {done.stderr.strip()[-LONGEST_LOG:] or 'it said nothing'}"


def _confined(layers: dict[str, Any] | None) -> Row:
    """Report the confinement of the process in which the package was used."""
    if layers is None:
        return Row("offline", "failed", "the process did not come as far as leaving the network")
    beside = [name for name in ("files", "system calls") if layers[name]]
    confined = f"; confined in {' and '.join(beside)}" if beside else ""
    if not layers["network"]:
        return Row("offline", "skipped", f"this machine gives no network namespace to this user{confined}")
    return Row("offline", "passed", f"a network namespace of its own{confined}")


def _uninstalled(site: Path, home: Path, module: str, variables: dict[str, str], directory: Path) -> str:
    done = _run("uninstalled", site, module, variables, directory)
    _, document = _documents(done)
    if document is None:
        raise Refused(_death(done))
    kept = sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
    left = [*document["left"], *(f"~/{name}" for name in kept)]
    if left:
        raise Refused(f"left behind: {', '.join(left)}")
    return "nothing is left in PyTorch or in the home directory but the caches, which name no package"
