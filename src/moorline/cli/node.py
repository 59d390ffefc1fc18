"""Room: cli. `moor node`: the nodes of a cluster."""

import asyncio
from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.wire.node import NodeFacts

app = typer.Typer(
    no_args_is_help=True,
    help="See the nodes of a cluster, and remove one.",
    epilog="Example: moor node list",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]
COLUMNS = ("node", "alive", "silent", "version", "roles", "addresses")


@app.callback()
def node() -> None:
    """See the nodes of a cluster, and remove one."""


@app.command("list", epilog="Example: moor node list --json")
@with_node
def list_(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """List all nodes of the cluster, those that are away included, as any node of it knows them."""
    nodes = asyncio.run(_nodes(endpoint))
    if as_json:
        for one in nodes:
            output.emit_json(msgspec.structs.asdict(one))
        return
    output.table(COLUMNS, [_row(one) for one in nodes])


@app.command(epilog="Example: moor node remove node-3")
@with_node
def remove(
    endpoint: Endpoint,
    home: Annotated[str, typer.Argument(show_default=False, help="The home of the node.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also if it lives: its process ends then.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a node from the cluster: other nodes cut it within access.revocation_ms (2 s by default).

    Its home stays, with what is in it. Whoever has its data folder and a way into the catalog can start it
    again: of a node that was taken over change the password of the catalog and the secret too
    (docs/security.md).
    """

    async def run() -> str:
        async with endpoint.connect() as moor:
            return await moor.access.remove_node(home, is_forced=force)

    name = asyncio.run(run())
    facts = {"home": home, "name": name}
    output.emit(as_json, facts, lambda: output.line(f"{name} is not of the cluster any more"))


async def _nodes(endpoint: Endpoint) -> list[NodeFacts]:
    async with endpoint.connect() as moor:
        return await moor.nodes()


def _row(one: NodeFacts) -> tuple[object, ...]:
    return (
        label(one),
        "yes" if one.is_alive else "no",
        span(one.silent_ms),
        one.version or None,
        ", ".join(one.roles) or None,
        ", ".join(one.addresses) or None,
    )


def label(one: NodeFacts) -> str:
    """Its name; with its home where that is another, since groups and streams are known by it."""
    return one.name if one.name == one.home else f"{one.name} (home {one.home})"


def span(time_ms: int | None) -> str:
    """How long ago, as people say it."""
    if time_ms is None:
        return "never served"
    if time_ms < 10_000:
        return f"{time_ms / 1_000:.1f} s"
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if time_ms >= 2 * unit_ms:
            return f"{time_ms // unit_ms} {unit}"
    return f"{time_ms // 1_000} s"
