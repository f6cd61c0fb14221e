"""Commands for campaigns: work on a model until its kernels pay, list campaigns, show one."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from warpsmith.kernels_db.job.languages import NAMED
from warpsmith.service.cli import arguments
from warpsmith.service.cli.commands.models import (
    LONGEST,
    Device,
    Mode,
    Model,
    check_model_file,
    choose_target,
    convert_refusals,
)
from warpsmith.service.cli.connection import connected, connected_or_embedded
from warpsmith.service.cli.files import make_directory
from warpsmith.service.cli.import_progress import ImportProgress
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, print_wide, say, tell
from warpsmith.service.client.campaign import RECORDED, CampaignRun, Here
from warpsmith.service.client.errors import FAILED, CommandError, misuse
from warpsmith.service.client.http import Client
from warpsmith.service.documents.campaigns import CampaignDocument, CampaignRegion, CampaignSummary, KernelGain
from warpsmith.service.documents.escaping import clean_line
from warpsmith.service.documents.figures import format_ratio, format_share
from warpsmith.service.settings import ServiceSettings

MODES = {"cpu": None, "cuda": "reduce-overhead"}
"""Inductor's mode where none is given, by device: that in which `warpsmith profile` times a model."""


def campaign(
    model: Model,
    budget: Annotated[
        str, typer.Option(help="Of all searches together: candidates=60,cost=5,time=1h,tokens=2000000,calls=300")
    ] = "",
    answers: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Who answers the searches: openai or openai:MODEL, agent, a JSON document; replay: stored pools, "
            "replay:FILE or replay:DIR: those there. By default openai.",
        ),
    ] = None,
    model_file: Annotated[Path | None, typer.Option(help="The same as a JSON document in a file.")] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Endpoint of an openai model, where not the service's own.")
    ] = None,
    device: Device = "cpu",
    language: Annotated[str | None, typer.Option(help=f"{NAMED}; by default the target's own.")] = None,
    policy: Annotated[str, typer.Option(help="beam=2,ideas=3 ...; name=... chooses another policy.")] = "",
    top: Annotated[int, typer.Option(min=1, max=64, help="How many regions to search, the best first.")] = 4,
    mode: Mode = None,
    time_s: Annotated[float, typer.Option("--time", min=0.1, help="Seconds of one measurement in the model.")] = 20.0,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory below which CAMPAIGN/MODEL_kernels is made.")
    ] = Path("campaigns"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the latest campaign of this file, as it was begun.")
    ] = False,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Make a model faster: profile it, search its best regions, keep the kernels that pay in it.

    The state is kept by the service; after an end at any moment --resume goes on. Exit code 0: the model is surely
    faster with a kernel in it, and its results agree; 1: it is not; 2: misuse.
    """
    check_model_file(model, device)
    make_directory("--output", output)
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    settings: dict[str, Any] = {"device": device, "top": top, "mode": mode or MODES[device], "time_s": time_s}
    settings["budget"] = arguments.parse_budget(budget) if budget else {}
    settings["policy"] = arguments.parse_policy(policy) if policy else None
    settings["language"] = language
    with connected_or_embedded(url, key) as (client, _):
        if resume:
            found = _find(client, model, digest)
        else:
            settings |= {
                "target": choose_target(device),
                "model": _choose_answers(client, answers, model_file, base_url),
            }
            body = {"model_name": model.name, "model_digest": digest, "settings": settings}
            _mention_unfinished(client, digest)
            found = client.create_campaign(body, uuid.uuid4().hex)
        say(f"campaign {found.id}: {found.model_name} on {found.target}, {found.state}")
        cache = ServiceSettings().judge_cache_dir.expanduser().resolve()
        run = CampaignRun(client, found, Here(model, output, cache), say)
        try:
            with convert_refusals():
                final = run.run()
        except KeyboardInterrupt:
            raise CommandError(f"stopped; go on with it: warpsmith campaign {model} --resume") from None
    print_json(final) if as_json else print_campaign(final)
    if final.progress.package is not None and not as_json:
        made = Path(final.progress.package)
        tell(f"from {made.name} import optimize   # {output / final.id / made.name}")
    raise typer.Exit(0 if final.progress.package is not None else FAILED)


def campaigns(
    campaign_id: Annotated[
        str | None, typer.Argument(metavar="CAMPAIGN", help="A campaign's id: show it.", show_default=False)
    ] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List campaigns, newest first, or show one."""
    with connected(url, key) as client:
        if campaign_id is not None:
            found = client.campaign(campaign_id)
            print_json(found) if as_json else print_campaign(found)
            return
        listed = client.campaigns()
    if as_json:
        print_json(listed)
        return
    for item in listed:
        tell(f"{item.id}  {item.state:9}  {clean_line(item.model_name, LONGEST):24} {item.target:12} {_sum_up(item)}")
    if not listed:
        say("no campaigns yet: warpsmith campaign examples/models/transformer.py --budget candidates=40")


def _find(client: Client, model: Path, digest: str) -> CampaignDocument:
    """Find the latest campaign of this very file; ends with misuse where there is none."""
    found = client.campaigns(model_digest=digest, most=1)
    if found:
        return client.campaign(found[0].id)
    known = next((one.id for one in client.campaigns() if one.model_name == model.name), None)
    if known is not None:
        misuse("MODEL.py", f"{model.name}, changed since {known} began", "the file as it was, or no --resume")
    return misuse("--resume", model.name, "a file whose campaign was begun: begin it without --resume")


def _mention_unfinished(client: Client, digest: str) -> None:
    for one in client.campaigns(model_digest=digest, most=1):
        if one.state != "finished":
            say(f"{one.id} of the same file has not finished: --resume goes on with it; this is a new one")


def _choose_answers(client: Client, text: str | None, model_file: Path | None, base_url: str | None) -> dict[str, Any]:
    """Return the model document of the searches; pools in files are stored first."""
    provider, _, place = (text or "").partition(":")
    if provider != "replay":
        return arguments.choose_model(text, model_file, base_url) or {"provider": "openai"}
    for option, value in (("--model-file", model_file), ("--base-url", base_url)):
        if value is not None:
            misuse(option, str(value), "not both it and --model replay")
    files = sorted(Path(place).glob("*.jsonl")) if Path(place).is_dir() else [Path(place)]
    if place and (not files or not all(file.is_file() for file in files)):
        misuse("--model", text, "replay: with a pool file, or with a directory of pools (*.jsonl)")
    for file in files if place else ():
        client.import_pool(file.read_bytes(), ImportProgress())
    return RECORDED


def print_campaign(found: CampaignDocument) -> None:
    """Print a campaign: its regions as a table, and the model before and after."""
    table = Table(title=f"{found.id}: {clean_line(found.model_name, LONGEST)} on {found.target}, {found.state}")
    table.add_column("region")
    for heading in ("places", "us", "share", "limit us"):
        table.add_column(heading, justify="right")
    table.add_column("search")
    table.add_column("kernel")
    for heading in ("alone", "in the model", "saves us"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for region in found.progress.regions:
        table.add_row(*_build_row(region))
    print_wide(table)
    tell(_sum_up(found))
    if found.stopped is not None:
        tell(f"stopped: {clean_line(found.stopped, LONGEST)}")


def _build_row(region: CampaignRegion) -> tuple[str, ...]:
    """Build a region's row: what it takes, who searched it, what its kernel brings alone and in place."""
    return (
        clean_line(region.operators, LONGEST),
        str(region.count),
        f"{region.time_us:.1f}",
        format_share(region.share),
        "-" if region.limit_us is None else f"{region.limit_us:.1f}",
        region.search_id or "-",
        region.kernel_id or "-",
        "-" if region.score is None else format_ratio(region.score, region.score_ci95),
        _format_gain(region.beside),
        "-" if region.beside is None else f"{region.beside.saved_us:.1f}",
        "stays" if region.kept else clean_line(region.reason or region.search_state or "", LONGEST),
    )


def _format_gain(gain: KernelGain | None) -> str:
    return "-" if gain is None else format_ratio(gain.speedup, gain.ci95)


def _sum_up(found: CampaignSummary) -> str:
    """Say what the model took and takes, and how many kernels are in it."""
    times = [
        f"{name} {value:.3f} ms"
        for name, value in (("model", found.before_ms), ("compiled", found.compiled_ms), ("now", found.after_ms))
        if value is not None
    ]
    gained = "" if found.over_compiled is None else f", {format_ratio(found.over_compiled, found.over_compiled_ci95)}"
    kernels = f"{found.kept} of {found.searches} searches brought a kernel that stays"
    return f"{', '.join(times)}{gained} over compiled; {kernels}" if gained else ", ".join([*times, kernels])
