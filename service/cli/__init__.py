"""The `warpsmith` command: joins the modules of its commands and prints their errors."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version as installed_version
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError

from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors
from warpsmith.kernels_db.spec.field_errors import expected_of
from warpsmith.service.cli.output import print_json, say
from warpsmith.service.client.errors import FAILED, MISUSE, CommandError, ProblemError, ServiceUnreachableError
from warpsmith.service.local import extra
from warpsmith.workers.judge.machine.garbage import imports_kept
from warpsmith.workers.judging.machine import CannotJudge
from warpsmith.workers.settings_errors import describe

COMMANDS = {
    "up": "up.up",
    "worker": "worker.worker",
    "workers": "workers.workers_app",
    "search": "search.search",
    "searches": "search.searches",
    "tree": "search.tree",
    "pause": "search.pause",
    "resume": "search.resume",
    "cancel": "search.cancel",
    "compare": "compare.compare",
    "label": "labels.label",
    "archive": "labels.archive",
    "unarchive": "labels.unarchive",
    "delete": "labels.delete",
    "idea": "steer.idea",
    "pin": "steer.pin",
    "unpin": "steer.unpin",
    "ban": "steer.ban",
    "unban": "steer.unban",
    "budget": "steer.budget",
    "branch": "steer.branch",
    "node": "tries.node",
    "try": "tries.try_file",
    "profile": "profiles.profile",
    "apply": "models.apply",
    "ablate": "models.ablate",
    "campaign": "campaigns.campaign",
    "campaigns": "campaigns.campaigns",
    "workloads": "recordings.workloads",
    "calls": "recordings.calls",
    "judge": "judge.judge",
    "kernels": "kernels.kernels",
    "export": "kernels.export",
    "reverify": "reverify.reverify",
    "verify-export": "exports.verify_export",
    "ask": "asks.ask",
    "bundle": "bundles.bundle",
    "merge": "bundles.merge",
    "mcp": "mcp.mcp",
    "doctor": "doctor.doctor",
    "tell": "asks.tell_reply",
    "import": "imports.import_file",
    "ops": "ops.app",
    "pools": "pools.app",
    "imports": "uploads.imports",
    "keys": "admin.keys_app",
    "teams": "teams.teams_app",
    "audit": "audit.audit",
    "prune": "prune.prune",
    "db": "admin.db_app",
}
"""Every command: its module here, and the function, or the group of commands, in it."""


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"warpsmith {installed_version('warpsmith')}\n")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """LLM-driven kernel search: ideas in prose, kernels in code, verdicts from a judge that cannot be fooled."""


def make_app(arguments: list[str] | None = None) -> typer.Typer:
    """Make the command with all subcommands, or with the one that `arguments` name alone.

    Each module loads what it needs, which for some takes a second. One that lacks a package of the extra `service` is
    listed all the same, and says so when it is run.
    """
    app = typer.Typer(
        name="warpsmith",
        help="LLM-driven kernel search: ideas in prose, kernels in code, verdicts from a judge that cannot be fooled.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    named = arguments[0] if arguments and arguments[0] in COMMANDS else None
    for name in COMMANDS:
        if named in (None, name):
            try:
                found = _import_command(name)
            except ModuleNotFoundError as error:
                if not extra.is_of_service(error):
                    raise
                _add_missing(app, name, error)
                continue
            if isinstance(found, typer.Typer):
                for command in found.registered_commands:
                    command.short_help = _first_paragraph(command.callback)
                app.add_typer(found, name=name, short_help=found.info.help)
            else:
                app.command(name, short_help=_first_paragraph(found))(found)
    return app


def _import_command(name: str) -> Any:
    """Import a command's module; returns the function, or the group of commands. Raises ModuleNotFoundError."""
    module, _, attribute = COMMANDS[name].partition(".")
    return getattr(import_module(f"warpsmith.service.cli.commands.{module}"), attribute)


def _first_paragraph(command: Callable[..., Any] | None) -> str:
    """Return what a list of commands says of one: left to itself it cuts a sentence off at the end of the line."""
    return " ".join((inspect.getdoc(command) or "").split("\n\n")[0].split())


def _add_missing(app: typer.Typer, name: str, error: ModuleNotFoundError) -> None:
    """Add a command that takes any arguments and raises the error for which it is missing."""

    def command() -> None:
        raise error

    lenient = {"ignore_unknown_options": True, "allow_extra_args": True}
    told = f"N{extra.needs_service()[1:]}"
    app.command(name, help=told, context_settings=lenient)(command)


def main() -> NoReturn:
    """Run the `warpsmith` command."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in COMMANDS:
        with imports_kept(), suppress(ImportError, ValueError):  # what is missing, or wrong of settings, `run` tells
            _import_command(name)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:  # noqa: PLR0911, PLR0912 - one line for each kind of error
    """Run one command and return its exit code.

    An error that a user can mend is printed as a sentence; a traceback is a bug of ours.
    """
    try:
        make_app(arguments)(arguments, prog_name="warpsmith")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    except CommandError as error:
        return _fail(arguments, str(error), error.code, error.document)
    except CannotJudge as error:
        return _fail(arguments, str(error), MISUSE, {})
    except ModuleNotFoundError as error:
        if not extra.is_of_service(error):
            raise
        return _fail(arguments, f"{_name_command(arguments)}: {extra.needs_service()}", MISUSE, {})
    except SpecErrors as error:
        return _fail(arguments, str(error), MISUSE, {"errors": [error_document(item) for item in error.errors]})
    except SpecError as error:
        return _fail(arguments, str(error), MISUSE, {"errors": [error_document(error)]})
    except ProblemError as error:
        return _fail(arguments, str(error), MISUSE if error.status == 422 else FAILED, {"problem": error.document})
    except ServiceUnreachableError as error:
        return _fail(arguments, str(error), FAILED, {})
    except ValueError as error:
        if (said := describe(error)) is None and isinstance(error, ValidationError):
            said = describe_answer(error)
        if said is None:
            raise
        return _fail(arguments, said, MISUSE, {})
    except FileNotFoundError as error:
        return _fail(arguments, f"{error.filename}: found nothing there, expected a file", MISUSE, {})
    except OSError as error:
        return _fail(arguments, str(error), FAILED, {})
    except KeyboardInterrupt:
        return _fail(arguments, "interrupted", 130, {})
    return 0


def describe_answer(error: ValidationError) -> str:
    """Describe what is not understood of the answer of a service of another version."""
    lines = [
        f"{'.'.join(map(str, item['loc']))}: found {item['input']!r}, expected {expected_of(item)}"
        for item in error.errors(include_url=False)
    ]
    return "\n".join(["the service's answer is not understood; expected a service of this version:", *lines])


def _name_command(arguments: list[str]) -> str:
    """Return the command that was run, with its group where it has one: `warpsmith ops list`."""
    words = 2 if COMMANDS.get(arguments[0], "").endswith("app") else 1
    return " ".join(["warpsmith", *arguments[:words]])


def _fail(arguments: list[str], message: str, code: int, document: dict[str, Any]) -> int:
    if "--json" in arguments:
        print_json({"error": {"message": message, **document}})
    say(f"error: {message}" if "\n" not in message else f"error:\n{message}")
    return code


def error_document(error: SpecError) -> dict[str, object]:
    line = {} if error.line is None else {"line": error.line}
    return {"field": error.field, "found": error.found, "expected": error.expected, **line}
