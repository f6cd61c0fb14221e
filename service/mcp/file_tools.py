"""Tools for files: write a kernel's package, and show the files that prompts are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from warpsmith import prompts
from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.service.client.archive import unpack
from warpsmith.service.client.errors import misuse
from warpsmith.service.client.kernels import choose_best_kernel, describe_drift
from warpsmith.service.mcp.context import Desk
from warpsmith.service.mcp.results import Exported, PromptFile, PromptFiles

FILES = Path(prompts.__file__).parent
KINDS = (".md", ".j2", ".py")


class Packing:
    """Tools that write kernels' packages and read the files of the prompts."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def export_kernel(
        self,
        kernel: Annotated[
            str, Field(min_length=1, description="A kernel's id, `kn_...`, or an op's name or id for its best")
        ],
        directory: Annotated[
            str, Field(min_length=1, description="Directory on the machine of this server that receives the package")
        ],
        target: Annotated[str | None, Field(description="With an op's name: only kernels for this target")] = None,
        name: Annotated[
            str | None,
            Field(
                max_length=80,
                description="Import name in place of one with a hash, such as `warpsmith_gelu_tanh`; a later kernel is "
                "a later version of it",
            ),
        ] = None,
    ) -> Exported:
        """Write a kernel as a Python package.

        It is a PyTorch op with its guards, its PyTorch fallback and its evidence, and needs no Warpsmith. Files that
        exist with another content are never replaced, but for an unchanged package of the same name and another
        version: name another directory then."""
        into = self._desk.check_export_directory(directory)
        with self._desk.client() as client:
            chosen = kernel if kernel.startswith("kn_") else choose_best_kernel(client, kernel, target, "kernel").id
            drifted = describe_drift(client, chosen)
            content = client.export(chosen, name=name)
        written = unpack(content, into)
        project = into / written[0].relative_to(into).parts[0]
        return Exported(
            kernel_id=chosen,
            project=str(project),
            package=project.name,
            files=[str(path) for path in written],
            note=drifted,
            next=f"pip install {project}, or put it on sys.path; then `import {project.name}`. Its README says how to "
            "call it, and explain() says whether a call takes the kernel or the fallback. On that machine "
            f"`warpsmith verify-export {project}` checks it in fresh processes.",
        )

    def fetch_prompts(
        self, name: Annotated[str | None, Field(description="One of `files`; without it they are listed")] = None
    ) -> PromptFiles:
        """Fetch the files that prompts are made of.

        They are the templates of every request, the playbook of optimisation techniques (by memory access, fusion,
        parallelism ...), the rules of each language, and one minimal candidate for each. Asks come with all of it
        filled in; read these to know the rules beforehand."""
        files = list_prompt_files()
        if name is None:
            return PromptFiles(files=[PromptFile(name=key, title=title(key)) for key in files], name=None, text=None)
        if name not in files:
            misuse("name", name, one_of(name, files))
        return PromptFiles(files=[], name=name, text=files[name].read_text(encoding="utf-8"))


def list_prompt_files() -> dict[str, Path]:
    """List the files that prompts are made of, by name."""
    found = (path for path in sorted(FILES.rglob("*")) if path.suffix in KINDS and path.name != "__init__.py")
    return {str(path.relative_to(FILES)): path for path in found}


def title(name: str) -> str:
    """Describe a file's purpose in a few words."""
    kind, _, file = name.rpartition("/")
    words = {"playbook": "techniques", "languages": "rules of the language", "examples": "a minimal candidate"}
    return f"{words.get(kind, 'template')}: {file.partition('.')[0].strip('_').replace('_', ' ')}"
