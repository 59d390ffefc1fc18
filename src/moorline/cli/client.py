"""Room: cli. `moor client`: the clients of MQTT of a node."""

import asyncio
from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.confirming import Yes, confirm
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.node import span
from moorline.wire.mqtt_client import MqttClientFacts

app = typer.Typer(
    no_args_is_help=True,
    help="See the clients of MQTT of a node, and end one.",
    epilog="Example: moor client list",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]
ClientId = Annotated[str, typer.Argument(metavar="CLIENT", help="Its client id.")]
COLUMNS = (
    "client",
    "principal",
    "connected",
    "address",
    "version",
    "filters",
    "in flight",
    "received",
    "sent",
    "dropped",
)


@app.callback()
def client() -> None:
    """See the clients of MQTT of a node, and end one."""


@app.command("list", epilog="Example: moor client list --json")
@with_node
def list_(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """List the clients that are connected to the node, and the sessions that the catalog keeps."""
    found = asyncio.run(_list(endpoint))
    if as_json:
        for one in found:
            output.emit_json(msgspec.structs.asdict(one))
        return
    output.table(COLUMNS, [_row(one) for one in found])


@app.command(epilog="Example: moor client show thermometer-7")
@with_node
def show(endpoint: Endpoint, client_id: ClientId, as_json: AsJson = False) -> None:
    """Show one client: its session, its filters, and what was dropped for it and why."""
    found, filters = asyncio.run(_show(endpoint, client_id))
    facts = {
        **msgspec.structs.asdict(found),
        "subscriptions": [{"filter": text, "qos": qos} for text, qos in filters],
    }
    if as_json:
        output.emit_json(facts)
        return
    output.table(COLUMNS, [_row(one) for one in (found,)])
    output.line("")
    for cause, count in found.dropped.items():
        output.line(f"dropped: {count:,} {cause.replace('_', ' ')}")
    output.table(("filter", "qos"), filters)


@app.command(epilog="Example: moor client kick thermometer-7 --session --yes")
@with_node
def kick(
    endpoint: Endpoint,
    client_id: ClientId,
    session: Annotated[
        bool,
        typer.Option("--session", help="End what is kept of it too: filters, place, exchanges."),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End the connection of a client. It may come back: take its rights away if it must not."""
    if session:
        confirm(f"End {client_id} and forget what is kept of its session?", yes=yes)
    asyncio.run(_kick(endpoint, client_id, ends_session=session))
    told = {"client": client_id, "state": "forgotten" if session else "ended"}
    output.emit(as_json, told, lambda: output.line(f"{client_id}: ended"))


async def _list(endpoint: Endpoint) -> list[MqttClientFacts]:
    async with endpoint.connect() as moor:
        return await moor.mqtt_clients()


async def _show(
    endpoint: Endpoint, client_id: str
) -> tuple[MqttClientFacts, list[tuple[str, int]]]:
    async with endpoint.connect() as moor:
        return await moor.mqtt_client(client_id)


async def _kick(endpoint: Endpoint, client_id: str, *, ends_session: bool) -> None:
    async with endpoint.connect() as moor:
        await moor.kick_mqtt_client(client_id, ends_session=ends_session)


def _row(one: MqttClientFacts) -> tuple[object, ...]:
    return (
        one.client_id,
        one.principal,
        span(one.connected_ms) if one.is_connected else "no",
        one.address or None,
        one.version or None,
        one.filters,
        one.in_flight,
        one.received,
        one.sent,
        sum(one.dropped.values()),
    )
