"""The body of an op's import: files and their format as JSON. It is written by the API and read by a worker."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from warpsmith.kernels_db.formats.shared.files import RawFile


def encode_files(files: Sequence[RawFile], format_name: str | None) -> bytes:
    """Return the body that keeps these files."""
    kept = [{"path": file.path, "base64": base64.b64encode(file.data).decode("ascii")} for file in files]
    return json.dumps({"format": format_name, "files": kept}).encode("utf-8")


def decode_files(body: bytes) -> tuple[list[RawFile], str | None]:
    """Return the files of a body, and the name of their format; None: it is to be recognised."""
    document = json.loads(body)
    files = [RawFile(file["path"], base64.b64decode(file["base64"])) for file in document["files"]]
    return files, document["format"]
