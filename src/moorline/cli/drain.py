"""Room: cli. `moor drain`: a node sends away whoever can be elsewhere, before it is stopped."""

import asyncio
from typing import Annotated

import msgspec
import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.progress import progress
from moorline.limits import DRAIN_LOOK_MS, DRAIN_PER_S, DRAIN_PER_S_MAX
from moorline.wire.cluster import NodeDrained


@with_node
def drain(
    endpoint: Endpoint,
    home: Annotated[
        str, typer.Argument(show_default=False, help="The home of the node; or the one reached.")
    ] = "",
    per_s: Annotated[
        int,
        typer.Option(
            "--rate", min=1, max=DRAIN_PER_S_MAX, help="So many clients and groups a second."
        ),
    ] = DRAIN_PER_S,
    undo: Annotated[bool, typer.Option("--undo", help="The node is as before.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Send the clients and groups of a node to others, at a bounded rate, before it is stopped.

    Clients that know several addresses, or resolvers, go; with them go the streams that they have leases of,
    and then the groups that the node leads. Clients that know this node only stay until it stops, and so do
    those that read its queues or publish at its home: they come back when it has started again. New clients
    are sent on until the node stops, or --undo. Interrupted, the node goes on by itself.
    """
    done = asyncio.run(_drained(endpoint, home, per_s=per_s, is_over=undo))
    facts = {name: value for name, value in msgspec.structs.asdict(done).items() if name != "call"}
    if undo:
        output.emit(as_json, facts, lambda: output.line(f"{done.home} takes clients again"))
        return
    text = (
        f"{done.home} is drained: {output.counted(done.moved, 'client or group')} went; "
        f"{output.counted(done.staying, 'client')} stay until it stops"
    )
    output.emit(as_json, facts, lambda: output.line(text))


async def _drained(endpoint: Endpoint, home: str, *, per_s: int, is_over: bool) -> NodeDrained:
    async with endpoint.connect() as moor:
        with progress("draining") as seen:
            told = await moor.cluster.drain(home, per_s=per_s, is_over=is_over)
            while True:
                left = told.clients + told.groups_led
                seen(told.moved, told.moved + left)
                if is_over or not left:
                    return told
                await asyncio.sleep(DRAIN_LOOK_MS / 1_000)
                # It begins once: another operator may end it, and a node that has started again serves.
                told = await moor.cluster.drain(home, is_look=True)
