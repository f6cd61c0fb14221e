"""Commands on workers: list, drain, and invitations of other hosts."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from warpsmith.service.cli.arguments import parse_duration
from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.documents.system import WorkerDocument

workers_app = typer.Typer(no_args_is_help=True, help="Workers, and invitations of hosts to run some.")


@workers_app.command("list")
def list_workers(url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """List workers: state, target, device, version, what each has in hand, and what a judge compiles."""
    with connected(url, key) as client:
        found = client.workers()
    if as_json:
        print_json(found)
        return
    for worker in found:
        tell(describe_worker(worker, time.time()))
    if not found:
        say("no worker has reported in: warpsmith up, or warpsmith worker")


def describe_worker(worker: WorkerDocument, now: float) -> str:
    """Describe a worker in one line."""
    device = worker.device
    memory = "" if device is None or device.memory_bytes is None else f", {device.memory_bytes / 2**30:.0f} GiB"
    where = "-" if device is None else f"{device.name}{memory}"
    state = worker.state if worker.alive else f"{worker.state} for {max(0.0, now - worker.seen_at):.0f} s"
    steps = ", ".join(f"{step.kind} {step.search_id}" for step in worker.steps)
    hand = "" if worker.running == 0 else f"  {worker.running} in hand" + (f" ({steps})" if steps else "")
    target, version = worker.target or worker.role, worker.version or "-"
    compiles = "".join(
        f"  compiles for {device}: {', '.join(languages)}" for device, languages in worker.compiles.items() if languages
    )
    return f"{worker.name:28}  {state:9}  {target:12}  {version:8}  {where}{hand}{compiles}"


@workers_app.command()
def drain(
    name: Annotated[str, typer.Argument(metavar="HOST|WORKER", help="A worker, or a host: all of its workers.")],
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Have workers end what they have in hand, take nothing more, and end; needs the scope admin."""
    with connected(url, key) as client:
        found = client.drain(name)
    if as_json:
        print_json(found)
        return
    for each in found.names:
        tell(f"{each} drains")


@workers_app.command()
def invite(
    name: Annotated[str, typer.Argument(help="What it is for, such as a host's name.")],
    uses: Annotated[int, typer.Option(min=1, max=1000, help="Hosts that may join with it.")] = 1,
    expires: Annotated[str, typer.Option(help="How long it holds: 30m, 1h, at most 7 days (168h).")] = "1h",
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Make a token with which a host joins; it is shown this once. Needs the scope admin."""
    expires_in_s = parse_duration("--expires", expires)
    with connected(url, key) as client:
        made = client.invite(name, uses, expires_in_s)
        service = client.url
    if as_json:
        print_json(made)
        return
    tell(made.token)
    say(f"on the other host, with the token in the file TOKEN: warpsmith worker --join {service} --token-file TOKEN")


@workers_app.command()
def invites(url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """List invitations, without their tokens; needs the scope admin."""
    with connected(url, key) as client:
        found = client.invites()
    if as_json:
        print_json(found)
        return
    for each in found:
        state = "revoked" if each.revoked_at else "expired" if each.expires_at <= time.time() else "holds"
        tell(f"{each.id}  {state:7}  used {each.used} of {each.uses}  {each.name}")
    if not found:
        say("no invitations: warpsmith workers invite NAME")


@workers_app.command()
def revoke(
    invite_id: Annotated[str, typer.Argument(metavar="INVITE", help="Its id, as `workers invites` shows it.")],
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Make an invitation's token invalid at once; hosts that have joined stay. Needs the scope admin."""
    with connected(url, key) as client:
        revoked = client.revoke_invite(invite_id)
    print_json(revoked) if as_json else tell("revoked")
