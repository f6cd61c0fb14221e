"""Commands for the user's own models: `profile MODEL.py`, `apply` and `ablate`.

A separate process runs the model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.service.cli.commands.kernels import VERIFIED
from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.files import make_directory
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, print_wide, say, tell
from warpsmith.service.client.archive import ArchiveError, unpack
from warpsmith.service.client.errors import DONE, FAILED, MISUSE, CommandError, misuse
from warpsmith.service.documents.escaping import clean_line
from warpsmith.service.documents.kernels import KernelSummary
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judging import machine
from warpsmith.workers.optimize.client import Died, Refused, ask

DEVICES = ("cpu", "cuda")
LONGEST = 200
LONGEST_NOTE = 500

Model = Annotated[
    Path, typer.Argument(metavar="MODEL.py", help="A file with model() and example_inputs().", show_default=False)
]
Device = Annotated[str, typer.Option(help="Where the model runs: cpu or cuda.")]
Packages = Annotated[
    list[Path] | None, typer.Option("--package", help="An exported package's project directory; may be given again.")
]
Kernels = Annotated[
    list[str] | None,
    typer.Option("--kernel", help="A stored kernel's id; may be given again. By default the best of every op."),
]
Mode = Annotated[
    str | None, typer.Option(help="Inductor's mode, as torch.compile takes it (reduce-overhead, max-autotune, ...).")
]
Keep = Annotated[
    str,
    typer.Option(help="Kernels that stay where they are right: those surely faster than Inductor's code, or right."),
]


def profile_model(model: Path, device: str, output: Path, top: int, force: bool, as_json: bool) -> None:
    """Print the time that kernels for a model's parts would save; write `top` op specs."""
    check_model_file(model, device)
    make_directory("--output", output)
    cache = ServiceSettings().judge_cache_dir.expanduser().resolve()
    request = {"command": "profile", "model": str(model), "device": device, "output": str(output)}
    found = _ask(request | {"cache": str(cache), "top": top, "force": force})
    if as_json:
        print_json(found)
        return
    print_wide(_build_opportunities_table(found))
    written = [one["file"] for one in found["opportunities"] if one["file"] is not None]
    for one in found["opportunities"]:
        if one["reason"] is not None:
            say(f"no spec for {clean_line(one['operators'], LONGEST)}: {clean_line(one['reason'], LONGEST)}")
    for note in found["notes"]:
        tell(f"note: {clean_line(note, LONGEST_NOTE)}")
    total = found["total"]
    left = "" if total["model_speedup"] is None else f", {total['model_speedup']:.2f}x"
    tell(f"at the limit, without overlap: {total['saving_us']:.1f} us less of {found['compiled_us']:.1f}{left}")
    tell(f"{len(written)} op specs in {output}")
    if written:
        say(f"next: warpsmith search {written[0]} --target {found['target']} --model agent")


def apply(
    model: Model,
    package: Packages = None,
    kernel: Kernels = None,
    device: Device = "cpu",
    mode: Mode = None,
    keep: Keep = "faster",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Directory below which MODEL_kernels is made: optimize() for your code."),
    ] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Compile a model with kernels wherever they fit and pay, and compare its results.

    Prints every place with the kernel that is there now, or the reason why none is. Exit code 0: a kernel has a place,
    and the results agree; 1: not; 2: misuse.
    """
    check_model_file(model, device)
    with _open_projects(package, kernel, device, url, key) as projects:
        request = {"command": "apply", "model": str(model), "device": device, "mode": mode, "keep": keep}
        found = _ask(request | {"packages": projects, "output": None if output is None else str(output)})
    if as_json:
        print_json(found)
    else:
        print_wide(_build_places_table(found))
        _print_unusable(found)
        tell(_describe_comparison(found))
        weights = "untouched" if found["weights_untouched"] else "CHANGED"
        tell(f"weights {weights}, the model itself {'un' if found['unchanged'] else ''}changed")
        if found["package"] is not None:
            tell(f"from {Path(found['package']).name} import optimize   # {found['package']}")
    replaced = any(place["replaced"] for place in found["places"])
    good = replaced and found["agrees"] and found["weights_untouched"] and found["unchanged"]
    raise typer.Exit(DONE if good else FAILED)


def ablate(
    model: Model,
    package: Packages = None,
    kernel: Kernels = None,
    device: Device = "cpu",
    mode: Mode = None,
    keep: Keep = "faster",
    time_s: Annotated[float, typer.Option("--time", min=0.1, help="Seconds of timing, all variants together.")] = 20.0,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Time a model as it is, compiled, with rewrites, with all kernels, each alone and all but each.

    The variants run in turns, and their results are compared. Exit code 0: the results agree; 1: they do not, or no
    kernel fits; 2: misuse.
    """
    check_model_file(model, device)
    with _open_projects(package, kernel, device, url, key) as projects:
        request = {"command": "ablate", "model": str(model), "device": device, "mode": mode, "keep": keep}
        found = _ask(request | {"packages": projects, "time_s": time_s})
    if as_json:
        print_json(found)
    else:
        print_wide(_build_variants_table(found))
        for one in found["brings"]:
            tell(
                f"{one['kernel']}: {_format_ratio(one['alone'])} alone, "
                f"{_format_ratio(one['beside'])} beside the others"
            )
        if not found["kernels"]:
            print_wide(_build_places_table(found))
        _print_unusable(found)
    good = bool(found["kernels"]) and all(row["agrees"] for row in found["variants"])
    raise typer.Exit(DONE if good else FAILED)


def check_model_file(model: Path, device: str) -> None:
    """End with misuse where a model cannot be run: no such file or device, or no torch."""
    if device not in DEVICES:
        misuse("--device", device, one_of(device, DEVICES))
    if not model.is_file():
        misuse("MODEL.py", str(model), "a file that exists")
    if not machine.installed("torch"):
        raise CommandError(f"torch is not installed: {machine.install_extra('judge')}", MISUSE)


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    with convert_refusals():
        return ask(request)


@contextmanager
def convert_refusals() -> Iterator[None]:
    """Convert what the process that runs a model says to an error of a command."""
    try:
        yield
    except Refused as error:
        named = {name: error.document[name] for name in ("field", "found", "expected") if error.document.get(name)}
        more = {name: error.document[name] for name in ("part", "where") if name in error.document}
        raise CommandError(str(error), MISUSE if named else FAILED, {"errors": [named | more]}) from None
    except Died as error:
        raise CommandError(str(error)) from None


@contextmanager
def _open_projects(
    packages: list[Path] | None, kernels: list[str] | None, device: str, url: str | None, key: str | None
) -> Iterator[list[str]]:
    """Yield the project directories: those given, and exports of stored kernels to scratch."""
    given = [str(path.resolve()) for path in packages or []]
    if given and not kernels:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="warpsmith-apply-") as scratch, connected(url, key) as client:
        chosen = kernels or _choose_best(client.kernels(target=choose_target(device)))
        if not chosen:
            misuse("--package", None, f"an exported package: no kernel for {choose_target(device)} is stored")
        for number, each in enumerate(chosen):
            try:
                written = unpack(client.export(each, VERIFIED), Path(scratch) / str(number))
            except ArchiveError as error:
                raise CommandError(str(error)) from None
            root = Path(scratch) / str(number)
            given.append(str(root / written[0].relative_to(root).parts[0]))
        yield given


def _choose_best(stored: list[KernelSummary]) -> list[str]:
    """Choose the id of each op's best kernel that has not drifted, the highest score first."""
    best: dict[str, KernelSummary] = {}
    for each in sorted(stored, key=lambda each: -each.score):
        if each.reverification is None or not each.reverification.drifted:
            best.setdefault(each.op_name, each)
    return [each.id for each in best.values()]


def choose_target(device: str) -> str:
    """Return the target of a device of this machine."""
    if device == "cpu":
        return machine.cpu_target()
    found = machine.gpus()
    if not found:
        misuse("--device", device, "cpu: this machine lists no CUDA GPU")
    return found[0].target


def _build_opportunities_table(found: dict[str, Any]) -> Table:
    times = f"{found['model_us'] / 1e3:.3f} ms a call, {found['compiled_us'] / 1e3:.3f} compiled"
    table = Table(title=f"{found['model']} on {found['device']}: {times}")
    for heading in ("operators", "places"):
        table.add_column(heading)
    for heading in ("us", "share", "limit us", "by", "saves us", "model", "joins", "in total"):
        table.add_column(heading, justify="right")
    table.add_column("spec")
    for one in found["opportunities"]:
        limit = "-" if one["limit_us"] is None else f"{one['limit_us']:.1f}"
        gain = "-" if one["model_speedup"] is None or one["limit_us"] is None else f"{one['model_speedup']:.2f}x"
        table.add_row(
            clean_line(one["operators"], LONGEST),
            clean_line(_shorten_places(one["places"]), LONGEST),
            f"{one['time_us']:.1f}",
            "-" if one["share"] is None else f"{one['share']:.1%}",
            limit,
            one["limit_by"] or "-",
            f"{one['saving_us']:.1f}",
            gain,
            "-" if one["joins"] == 1 else str(one["joins"]),
            "-" if one["counted"] == 0 else str(one["counted"]),
            "-" if one["file"] is None else Path(one["file"]).name,
        )
    return table


def _shorten_places(places: list[str]) -> str:
    return places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"


def _build_places_table(found: dict[str, Any]) -> Table:
    table = Table("op", "place", "inputs", "", "package", box=None, pad_edge=False)
    for place in found["places"]:
        outcome = _describe_gain(place) if place["replaced"] else f"not: {place['reason']}"
        where, shapes = clean_line(place["where"], LONGEST), clean_line(place["shapes"], LONGEST)
        table.add_row(place["op"], where, shapes, clean_line(outcome, LONGEST), place["kernel"])
    return table


def _describe_gain(place: dict[str, Any]) -> str:
    return f"{place['us']:.1f} us for {place['inductor_us']:.1f} [{_format_interval(place['ci95'])}]"


def _build_variants_table(found: dict[str, Any]) -> Table:
    table = Table(title=f"{found['model']} on {found['device']}, {found['rounds']} rounds")
    table.add_column("variant")
    for heading in ("ms", "95 %", "over model", "over compiled", "95 %", "largest difference", "argmax", "agrees"):
        table.add_column(heading, justify="right")
    for row in found["variants"]:
        table.add_row(
            clean_line(row["variant"], LONGEST),
            f"{row['ms']:.3f}",
            _format_interval(row["ms_ci95"]),
            f"{row['speedup']:.3f}x",
            f"{row['over_compiled']:.3f}x",
            _format_interval(row["over_compiled_ci95"]),
            _format_difference(row),
            "-" if row["argmax_agreement"] is None else f"{row['argmax_agreement']:.2%}",
            "yes" if row["agrees"] else "NO",
        )
    return table


def _describe_comparison(found: dict[str, Any]) -> str:
    argmax = "" if found["argmax_agreement"] is None else f", argmax agreement {found['argmax_agreement']:.2%}"
    word = "agree" if found["agrees"] else "do NOT agree"
    alone = "" if found["reference"] == "float64" else ", reference: none (the model does not run in float64)"
    return f"results {word}: largest difference {_format_difference(found)}{argmax}{alone}"


def _format_difference(one: dict[str, Any]) -> str:
    found = one["largest_difference"]
    return "not finite" if found is None else f"{found:.2e}"


def _format_interval(found: list[float] | None) -> str:
    return "-" if found is None else f"{found[0]:.3f} to {found[1]:.3f}"


def _format_ratio(one: dict[str, Any]) -> str:
    return f"{one['speedup']:.3f}x [{_format_interval(one['ci95'])}]"


def _print_unusable(found: dict[str, Any]) -> None:
    for name, reason in found["unusable"].items():
        tell(f"{name} is used nowhere: {clean_line(reason, LONGEST)}")
