"""Tools that refuse unknown arguments and report every error that a caller can mend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import ConfigDict, ValidationError

from warpsmith.kernels_db.spec.op import SpecError, SpecErrors
from warpsmith.service.client.archive import ArchiveError
from warpsmith.service.client.errors import CommandError, ProblemError, ServiceUnreachableError
from warpsmith.service.documents.problems import field_errors, sentence
from warpsmith.workers.judging.machine import CannotJudge

REPORTED = (
    ArchiveError,
    CannotJudge,
    CommandError,
    OSError,
    ProblemError,
    ServiceUnreachableError,
    SpecError,
    SpecErrors,
)
"""Errors with a text for the caller; any other is a fault of ours and stays in the log."""


class ServiceTool(Tool):
    """A tool of the SDK with errors as field, found and expected."""

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        """Run the tool; raises ToolError with a text that names field, found and expected."""
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            found = field_errors(error.errors(include_url=False), self.fn_metadata.arg_model, arguments)
            raise ToolError("\n".join(map(sentence, found))) from error
        try:
            return await super().run(arguments, context, convert_result)
        except UnexpectedToolError as error:
            if isinstance(error.__cause__, REPORTED):
                # The options of a command are the arguments of a tool: `--target` is `target` here.
                raise ToolError(str(error.__cause__).removeprefix("--")) from error.__cause__
            raise


def tool(function: Callable[..., Any], title: str, *, reads: bool = False, repeats: bool = True) -> ServiceTool:
    """Make a tool of `function`, with its docstring as description, its annotations as schemas.

    reads: it changes nothing. repeats: the same call again does no more than the first.
    """
    annotations = ToolAnnotations(
        title=title, read_only_hint=reads, destructive_hint=False, idempotent_hint=repeats, open_world_hint=False
    )
    made = ServiceTool.from_function(function, title=title, annotations=annotations, structured_output=True)
    assert isinstance(made, ServiceTool)
    known = made.fn_metadata.arg_model
    strict: Any = type(known.__name__, (known,), {"model_config": ConfigDict(extra="forbid")})
    made.fn_metadata.arg_model = strict
    made.parameters = strict.model_json_schema(by_alias=True)
    return made
