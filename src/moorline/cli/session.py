"""Room: cli. `moor session`: the durable sessions of a cluster."""

import asyncio
from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.node import span
from moorline.wire.session_list import SessionFacts

app = typer.Typer(
    no_args_is_help=True,
    help="See the durable sessions of a cluster.",
    epilog="Example: moor session list",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]
COLUMNS = ("session", "owner", "node", "filters", "silent", "expires behind")


@app.callback()
def session() -> None:
    """See the durable sessions of a cluster."""


@app.command("list", epilog="Example: moor session list --json")
@with_node
def list_(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """List all durable sessions, those of clients of MQTT included, as any node of the cluster knows them.

    One that is in use was seen a moment ago; one that is silent for longer than it expires behind is removed,
    with its places. The operator's: it needs `l` at /sessions.
    """
    found = asyncio.run(_sessions(endpoint))
    if as_json:
        for one in found:
            output.emit_json(msgspec.structs.asdict(one))
        return
    output.table(COLUMNS, [_row(one) for one in found])


async def _sessions(endpoint: Endpoint) -> list[SessionFacts]:
    async with endpoint.connect() as moor:
        return await moor.sessions()


def _row(one: SessionFacts) -> tuple[object, ...]:
    silent, expiry = span(one.silent_ms), span(one.expiry_s * 1_000)
    return (one.name, one.owner or None, one.node, one.filters, silent, expiry)
