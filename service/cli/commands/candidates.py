"""Import of kernels of other formats as candidates: `warpsmith import FILE --op OP`."""

from __future__ import annotations

from pathlib import Path

from warpsmith.kernels_db.formats import kernel_import
from warpsmith.kernels_db.job.documents import tier_of
from warpsmith.kernels_db.spec.names import identifier
from warpsmith.service.cli.files import make_directory, read_text
from warpsmith.service.cli.op_argument import load_named_op
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.client.errors import CommandError, misuse
from warpsmith.workers.judging.candidates import raw_file


def import_candidate(
    files: list[Path],
    op: str,
    format_name: str | None,
    output: Path | None,
    force: bool,
    url: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Rewrite a ModelNew, a Solution or a submission as a candidate for the named op."""
    if len(files) != 1:
        misuse("FILE", ", ".join(map(str, files)), "one file: a ModelNew, a Solution or a submission")
    if format_name is not None and format_name not in kernel_import.FORMATS:
        misuse("--format", format_name, f"one of {', '.join(kernel_import.FORMATS)} for a candidate")
    spec = load_named_op(op, url, key, "--op")
    found = kernel_import.adapt(raw_file(files[0], read_text("FILE", files[0])), spec, format_name)
    path = output or Path(f"{spec.name}_{identifier(files[0].stem, 'candidate')}.py")
    data = found.source.encode("utf-8")
    if path.exists() and not force and (not path.is_file() or path.read_bytes() != data):
        raise CommandError(f"--output: found {path} with another content, expected a new file; --force replaces it")
    make_directory("--output", path.parent)
    path.write_bytes(data)
    for note in found.notes:
        say(f"note: {note}")
    tier = tier_of(kernel_import.LANGUAGE)
    if as_json:
        said = {"op": spec.name, "format": found.format, "language": kernel_import.LANGUAGE, "tier": tier}
        print_json(said | {"output": str(path), "notes": list(found.notes)})
        return
    tell(f"a candidate for {spec.name} from {found.format} in {path}: free Python, of the {tier} tier")
    say(f"next: warpsmith judge {op} {path} --language {kernel_import.LANGUAGE}")
