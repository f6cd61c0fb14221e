"""`python -m tests.images`: every container image that Warpsmith's files name, and whether its digest is pinned.

A release runs it with `--digests`: it exits with 1 where an image of another project's has none (CONTRIBUTING.md). A
tag alone may lead to another image tomorrow.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path

from tests import REPOSITORY

FILES = ("docker-compose.yml", "docker/*.Dockerfile", "kubernetes/**/*.yaml")
NAMED = re.compile(r"^\s*(?:FROM|-?\s*image:)\s+(\S+)", re.MULTILINE)
REFERENCE = re.compile(r"(?P<name>[\w./-]+):(?P<tag>v?\d+(?:\.\d+){1,2}[\w.-]*)(?P<digest>@sha256:[0-9a-f]{64})?")
OURS = ("warpsmith-service", "warpsmith-judge")
"""Built here: a release's digests of these are those of its own build."""


def list_references(repository: Path = REPOSITORY) -> dict[str, list[str]]:
    """List the references, each with the files that name it; those to stages of a build are none."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted({path for pattern in FILES for path in repository.glob(pattern)}):
        for reference in NAMED.findall(path.read_text(encoding="utf-8")):
            found[reference].append(str(path.relative_to(repository)))
    return dict(found)


def list_problems(references: dict[str, list[str]], *, digests: bool) -> list[str]:
    """Name what is wrong: a tag that may move, two digests of one tag, and with `digests` an image without any."""
    problems, pinned = [], {}
    for reference, files in references.items():
        where = f"{', '.join(dict.fromkeys(files))}: found {reference}"
        parts = REFERENCE.fullmatch(reference)
        if parts is None:
            problems.append(f"{where}, expected NAME:VERSION or NAME:VERSION@sha256:DIGEST")
            continue
        tagged, digest = f"{parts['name']}:{parts['tag']}", parts["digest"]
        if parts["name"] in OURS:
            continue
        if digest is None and digests:
            problems.append(f"{where}, expected a digest: docker buildx imagetools inspect {tagged}")
        if pinned.setdefault(tagged, digest) != digest:
            problems.append(f"{where}, expected the digest that other lines have for {tagged}")
    return problems


def main() -> int:
    """Print every reference and what is wrong; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.images", description="Container images and their digests.")
    parser.add_argument("--digests", action="store_true", help="an image of another project's needs its digest")
    arguments = parser.parse_args()
    references = list_references()
    problems = list_problems(references, digests=arguments.digests)
    print("\n".join([*references, *problems]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
