"""Room: cli. `moor cluster up`, `kill`, `pause`, `heal`, `ps`, `down`: a cluster on this machine, to play
with faults."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from moorline.cli import output
from moorline.cli.cluster import app
from moorline.cli.installed import need_server
from moorline.cli.local_cluster import LocalNode, State, found_in, kept
from moorline.errors import MoorlineError, StartError
from moorline.limits import LOCAL_NODE_READY_MS, LOCAL_NODES_MAX

FOLDER = Path("moorline-cluster")
COLUMNS = ("number", "node", "state", "address", "http", "mqtt", "pid")
POLL_S = 0.05

Data = Annotated[Path, typer.Option("--data", help="The folder of the cluster.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]
Number = Annotated[int, typer.Argument(min=1, help="Which node: 1, 2, …")]


@app.command(epilog="Example: moor cluster up --nodes 3")
def up(
    nodes: Annotated[int, typer.Option(min=1, max=LOCAL_NODES_MAX, help="How many nodes.")] = 3,
    data: Data = FOLDER,
    port: Annotated[
        int,
        typer.Option(
            min=1_024,
            max=65_000,
            help="Node N listens at this port + 10 N, its page at one more, MQTT at two more.",
        ),
    ] = 7_500,
    as_json: AsJson = False,
) -> None:
    """Start nodes on this machine that are one cluster, until Ctrl-C: to try out what they do.

    In a second terminal kill, pause and heal them, and watch the page of one that lives (moor console).
    """
    need_server("moor cluster up")
    asyncio.run(_up(data, nodes, port, as_json=as_json))


@app.command(epilog="Example: moor cluster kill 2")
def kill(number: Number, data: Data = FOLDER, as_json: AsJson = False) -> None:
    """End a node at once, as a crash does (SIGKILL)."""
    node = found_in(data).node(number)
    node.process.signal(signal.SIGKILL)
    _until(data, number, State.DEAD)
    _tell(found_in(data).node(number), as_json=as_json)


@app.command(epilog="Example: moor cluster pause 2")
def pause(number: Number, data: Data = FOLDER, as_json: AsJson = False) -> None:
    """Stop a node in the middle of whatever it does (SIGSTOP): it is silent, and its connections stay."""
    node = found_in(data).node(number)
    node.process.signal(signal.SIGSTOP)
    _until(data, number, State.PAUSED)
    _tell(found_in(data).node(number), as_json=as_json)


@app.command(epilog="Example: moor cluster heal")
def heal(data: Data = FOLDER, as_json: AsJson = False) -> None:
    """Start the dead nodes again, and let paused ones go on."""
    cluster = found_in(data)
    cluster.keeper.signal(signal.SIGHUP)
    for node in cluster.nodes:
        _until(data, node.number, State.UP)
    _show(found_in(data).nodes, as_json=as_json)


@app.command("ps", epilog="Example: moor cluster ps --json")
def processes(data: Data = FOLDER, as_json: AsJson = False) -> None:
    """List the processes of the cluster on this machine, and how each is."""
    _show(found_in(data).nodes, as_json=as_json)


@app.command(epilog="Example: moor cluster down")
def down(data: Data = FOLDER, as_json: AsJson = False) -> None:
    """Stop all nodes of the cluster on this machine; its folder stays."""
    cluster = found_in(data)
    cluster.keeper.signal(signal.SIGTERM)
    end = time.monotonic() + LOCAL_NODE_READY_MS / 1_000
    while cluster.keeper.is_alive:
        if time.monotonic() > end:
            raise StartError(f"process {cluster.keeper.pid} does not stop")
        time.sleep(POLL_S)
    if as_json:
        output.emit_json({"state": "down", "nodes": len(cluster.nodes)})


async def _up(folder: Path, count: int, port: int, *, as_json: bool) -> None:
    loop = asyncio.get_running_loop()
    stopping, healing = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, healing.set)
    async with kept(folder, count, port, output.error) as keeper:
        _show(keeper.nodes, as_json=as_json)
        if not as_json:
            one = keeper.nodes[0].address
            output.line(f"the page: moor console --address {one}")
            output.line("try: moor cluster kill 2 · pause 3 · heal · ps · down; Ctrl-C stops all")
        waiting = asyncio.create_task(stopping.wait())
        while not stopping.is_set():
            asked = asyncio.create_task(healing.wait())
            await asyncio.wait({waiting, asked}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if healing.is_set():
                healing.clear()
                try:
                    await keeper.heal()
                except (MoorlineError, OSError) as error:
                    # A node that ended in that moment, or did not start: the others go on.
                    output.error(str(error))


def _until(folder: Path, number: int, wanted: State) -> None:
    end = time.monotonic() + LOCAL_NODE_READY_MS / 1_000
    while found_in(folder).node(number).state is not wanted:
        if time.monotonic() > end:
            raise StartError(
                f"node {number} is not {wanted.value}: see the output of `moor cluster up`"
            )
        time.sleep(POLL_S)


def _tell(node: LocalNode, *, as_json: bool) -> None:
    output.emit(as_json, _facts(node), lambda: output.line(f"{node.name} is {node.state.value}"))


def _show(nodes: list[LocalNode], *, as_json: bool) -> None:
    if as_json:
        for node in nodes:
            output.emit_json(_facts(node))
        return
    output.table(COLUMNS, [tuple(_facts(node).values()) for node in nodes])


def _facts(node: LocalNode) -> dict[str, object]:
    return {
        "number": node.number,
        "node": node.name,
        "state": node.state.value,
        "address": node.address,
        "http": node.http,
        "mqtt": node.mqtt,
        "pid": node.process.pid,
    }
