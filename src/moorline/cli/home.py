"""Room: cli. `moor home`: homes, with all that is in them, and their moves from node to node."""

import asyncio
from typing import Annotated, Any

import msgspec
import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.progress import progress
from moorline.client.moor import Moor
from moorline.errors import CannotMove, ConfigError, ConnectionLost, Refused
from moorline.limits import HOME_MOVE_COMMAND_MS, HOME_MOVE_SILENT_MS_MAX
from moorline.net.clock import monotonic_ms
from moorline.wire.home_move import HomeFacts

app = typer.Typer(
    no_args_is_help=True,
    help="See homes: what the queues and streams of a node are known by. Move one to another node.",
    epilog="Example: moor home list",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]
COLUMNS = ("home", "number", "node", "alive", "moves", "last move", "addresses")


@app.callback()
def home() -> None:
    """See homes: what the queues and streams of a node are known by. Move one to another node."""


@app.command("list", epilog="Example: moor home list --json")
@with_node
def list_(endpoint: Endpoint, as_json: AsJson = False) -> None:
    """List all homes, each with the node that has it now and its last move."""

    async def run() -> list[HomeFacts]:
        async with endpoint.connect() as moor:
            return await moor.cluster.homes()

    found = asyncio.run(run())
    if as_json:
        for one in found:
            output.emit_json(_facts(one))
        return
    output.table(COLUMNS, [_row(one) for one in found])


@app.command(epilog="Example: moor home move node-1 --to node-2")
@with_node
def move(
    endpoint: Endpoint,
    home: Annotated[str, typer.Argument(show_default=False, help="The home that is to move.")],
    to: Annotated[
        str, typer.Option("--to", metavar="NODE", help="The node that is to have it.")
    ] = "",
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Give a move up: the home stays where it is.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Move a home to another node, with its queues, streams and all else that is in it.

    The home serves while it is copied. Then it is closed, the rest is copied, both nodes compare a digest of
    all files, and the other node serves it: clients follow by themselves. The node that had it stays in the
    cluster, empty, and sends on whoever comes; its old files are set aside there. Interrupted, the move goes
    on by itself, and the same command watches it again.
    """
    if bool(to) == cancel:
        raise ConfigError("say where the home is to go (--to NODE), or give its move up (--cancel)")
    if cancel:
        asyncio.run(_given_up(endpoint, home))
        output.emit(
            as_json,
            {"home": home, "move_state": "cancelled"},
            lambda: output.line(f"{home} stays where it is"),
        )
        return
    done = asyncio.run(_moved(endpoint, home, to))
    text = (
        f"{home} is at {done.node}: {output.counted(done.move_files, 'file')}, {done.move_bytes} bytes, "
        f"digest {done.move_hash.hex()} at both nodes; nobody was served for "
        f"{done.standstill_ms / 1_000:.1f} s"
    )
    output.emit(as_json, _facts(done), lambda: output.line(text))


async def _given_up(endpoint: Endpoint, home: str) -> None:
    async with endpoint.connect() as moor:
        await moor.cluster.move_home(home, is_over=True)


async def _moved(endpoint: Endpoint, home: str, to: str) -> HomeFacts:
    """Asks, and watches to the end: the node that is asked may be the one whose home moves."""
    is_asked, heard_ms, said = False, monotonic_ms(), ""
    with progress(f"moving {home}") as seen:
        while True:
            try:
                async with endpoint.connect() as moor:
                    if not is_asked:
                        await moor.cluster.move_home(home, to)
                        is_asked = True
                    while True:
                        found = await _found(moor, home)
                        heard_ms = monotonic_ms()
                        seen(found.move_bytes_copied, found.move_bytes)
                        text = found.move_text
                        if found.move_state == "asked" and not found.is_alive:
                            text = "its node does not answer: the move begins when it does"
                        if text and text != said:
                            said = text
                            output.error(f"{home}: {said}")
                        if found.move_state == "done" and found.is_alive:
                            return found
                        if found.move_state in ("failed", "cancelled"):
                            why = found.move_text or found.move_state
                            raise CannotMove(f"{home} was not moved, and is where it was: {why}")
                        await asyncio.sleep(HOME_MOVE_COMMAND_MS / 1_000)
            except (ConnectionLost, Refused):
                # It serves nobody for a moment; the move goes on without us.
                if not is_asked or monotonic_ms() - heard_ms > HOME_MOVE_SILENT_MS_MAX:
                    raise
            await asyncio.sleep(HOME_MOVE_COMMAND_MS / 1_000)


async def _found(moor: Moor, home: str) -> HomeFacts:
    for one in await moor.cluster.homes():
        if one.name == home:
            return one
    raise ConfigError(f"the home {home!r} is not in the list of homes any more")


def _facts(one: HomeFacts) -> dict[str, Any]:
    facts = msgspec.structs.asdict(one)
    facts["move_hash"] = one.move_hash.hex()
    return facts


def _row(one: HomeFacts) -> tuple[object, ...]:
    last = f"{one.move_state} to {one.move_to}" if one.move_state else None
    return (
        one.name,
        one.number,
        one.node or None,
        "yes" if one.is_alive else "no",
        one.moves,
        last,
        ", ".join(one.addresses) or None,
    )
