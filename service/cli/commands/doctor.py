"""`warpsmith doctor`: checks of this machine, each with its remedy."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict

import typer

from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.service.cli.options import Json
from warpsmith.service.cli.output import print_json, stdout
from warpsmith.service.client.errors import FAILED
from warpsmith.service.local import extra
from warpsmith.service.local.finding import Finding
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judge.nsight import access, metrics
from warpsmith.workers.judge.sandbox import sandbox
from warpsmith.workers.judging import machine

STYLES = {"ok": "green", "note": "yellow", "bad": "red"}


def doctor(as_json: Json = False) -> None:
    """Check Python, torch, compiler, broker, database, GPUs and languages.

    Exit code 1 where something is wrong.
    """
    findings = examine(ServiceSettings())
    if as_json:
        print_json(
            {"healthy": all(item.state != "bad" for item in findings), "checks": [asdict(item) for item in findings]}
        )
    else:
        for item in findings:
            stdout.print(f"[{STYLES[item.state]}]{item.state:4}[/] {item.name:10} ", end="")
            stdout.print(item.found, markup=False)
            if item.fix:
                stdout.print(f"                -> {item.fix}", markup=False)
    if any(item.state == "bad" for item in findings):
        raise typer.Exit(FAILED)


def examine(settings: ServiceSettings) -> list[Finding]:
    """Run every check, in the order in which a user should mend things."""
    checks: tuple[Callable[[ServiceSettings], Finding], ...] = (
        _check_python,
        _check_home,
        _check_torch,
        _check_compiler,
        _check_sandbox,
    )
    found = [check(settings) for check in checks] + _check_service(settings)
    return found + _check_gpus() + _check_nsight(settings) + _check_languages()


def _check_python(_: ServiceSettings) -> Finding:
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    fix = None if supported else "use Python 3.11, 3.12 or 3.13"
    return Finding("python", "ok" if supported else "bad", f"{platform.python_version()} at {sys.executable}", fix)


def _check_home(settings: ServiceSettings) -> Finding:
    home = settings.home.expanduser().resolve()
    existing = next(path for path in (home, *home.parents) if path.exists())
    if os.access(existing, os.W_OK):
        return Finding("home", "ok", str(home))
    return Finding("home", "bad", f"{existing} cannot be written", "set WARPSMITH_HOME to a directory of your own")


def _check_torch(_: ServiceSettings) -> Finding:
    if not machine.installed("torch"):
        return Finding("torch", "note", "not installed: this machine cannot judge", machine.install_extra("judge"))
    return Finding("torch", "ok", importlib.metadata.version("torch"))


def _check_compiler(_: ServiceSettings) -> Finding:
    found = machine.compiler()
    if found is None:
        return Finding(
            "compiler", "note", "no C++ compiler: `cpp` candidates cannot be built", "apt-get install g++, or set CXX"
        )
    return Finding("compiler", "ok", found)


def _check_sandbox(settings: ServiceSettings) -> Finding:
    ability = sandbox.detect()
    reached = sandbox.reachable(ability)
    how = f"Landlock ABI {ability.landlock}" if ability.landlock else "no Landlock"
    how += f", {'' if ability.seccomp else 'no '}seccomp, network namespace: {ability.network}"
    found = f"candidates run {reached} ({how})"
    minimum = settings.sandbox_minimum
    if minimum is not None and sandbox.LEVELS.index(reached) < sandbox.LEVELS.index(minimum):
        fix = f"WARPSMITH_SANDBOX_MINIMUM={minimum}: use a machine that reaches it, or ask for less"
        return Finding("sandbox", "bad", found, fix)
    if reached == sandbox.LEVELS[-1]:
        return Finding("sandbox", "ok", found)
    fix = "Linux 6.12 or later with Landlock, where unshare(2) is allowed, reaches `isolated`"
    return Finding("sandbox", "note", found, fix)


def _check_service(settings: ServiceSettings) -> list[Finding]:
    """Check what the service needs, where it is installed."""
    try:
        from warpsmith.service.local.service_checks import check_service  # noqa: PLC0415 - the judge does without
    except ModuleNotFoundError as error:
        if not extra.is_of_service(error):
            raise
        found = "not installed: this machine judges, and starts no searches"
        return [Finding("service", "note", found, machine.install_extra("service"))]
    return check_service(settings)


def _check_gpus() -> list[Finding]:
    found = machine.gpus()
    if not found:
        fault = machine.driver_fault()
        if fault is not None:
            return [Finding("gpu", "bad", fault, "mend the driver: until then this machine judges for its CPU alone")]
        rest = "GPU candidates are compiled, not timed"
        return [Finding("gpu", "note", f"no CUDA GPU: the target is {machine.cpu_target()}; {rest}")]
    if machine.installed("torch") and machine.torch_cuda() is None:
        names = ", ".join(gpu.name for gpu in found)
        return [Finding("gpu", "bad", f"{names}: torch is built without CUDA", "install torch's build for CUDA")]
    return [Finding("gpu", "ok", f"{gpu.index}: {gpu.name}, target {gpu.target}") for gpu in found]


def _check_nsight(settings: ServiceSettings) -> list[Finding]:
    """Check Nsight Compute, where there is a GPU."""
    if not machine.gpus():
        return []
    ncu = access.find(settings.ncu)
    if ncu is None:
        off = settings.ncu == access.OFF
        found = (
            "switched off (WARPSMITH_NCU)" if off else f"no {settings.ncu or 'ncu'}: the model is told no GPU metrics"
        )
        fix = None if off else "install Nsight Compute (it comes with CUDA's toolkit), or set WARPSMITH_NCU to its ncu"
        return [Finding("nsight", "note", found, fix)]
    if access.permission() == "refused":
        found = f"{ncu}: the driver keeps its performance counters to administrators (ERR_NVGPUCTRPERM)"
        return [Finding("nsight", "note", found, metrics.REMEDY)]
    return [Finding("nsight", "ok", ncu)]


def _check_languages() -> list[Finding]:
    found = []
    checked = "; without a GPU compiled, and checked under the interpreter on small workloads, not timed"
    for language, known in LANGUAGES.items():
        if known.compiler is None:
            continue
        missing = machine.missing_for_judge(language)
        if missing:
            lacking, _, fix = missing[0].partition(": ")
            found.append(Finding(language, "note", lacking, fix))
        elif "cpu" in known.devices:
            found.append(Finding(language, "ok", "compiles, checks and times"))
        else:
            without_gpu = checked if known.interpreted else "; without a GPU compiled, not run"
            found.append(Finding(language, "ok", "installed" + ("" if machine.gpus() else without_gpu)))
    return found
