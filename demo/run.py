"""`make demo`: starts a node, plays every act on it, stops it, and says what was done.

    python -m demo.run [--json | --serve]

Everything happens on loopback in a temporary folder, which is gone at the end.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import tempfile
import time
from pathlib import Path

import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import moorline
from demo import traffic
from demo.acts import fleet, mqtt, node, pipeline, queues, records, rights, services, topics, values
from demo.stage import Stage

ACTS = (node, queues, services, topics, fleet, mqtt, rights, values, records, pipeline)


async def play(stage: Stage, progress: Progress) -> None:
    task = progress.add_task("starting a node", total=len(ACTS) + 2)
    started = time.perf_counter()
    await stage.start()
    stage.tell(
        "start", "a node with its own Postgres, ready in", f"{time.perf_counter() - started:.1f} s"
    )
    progress.advance(task)
    try:
        for act in ACTS:
            progress.update(task, description=act.TITLE)
            await act.play(stage)
            progress.advance(task)
    finally:
        progress.update(task, description="stopping the node")
        started = time.perf_counter()
        await stage.stop()
    stage.tell("stop", "node and Postgres, gone in", f"{time.perf_counter() - started:.1f} s")
    progress.update(task, description="done", advance=1)


async def show(stage: Stage) -> None:
    """A node with traffic on it, and the address of its page."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with stage.node():
        async with moorline.connect(stage.address) as moor:
            made = await moor.access.make_pass()
        flowing = asyncio.create_task(traffic.flow(stage.address))
        waiting = asyncio.create_task(stopping.wait())
        print(f"the page: {stage.http}/console/#pass={made.text}")
        print(f"commands: moor group list --address {stage.address}")
        print("Ctrl-C ends it; nothing is left behind", flush=True)
        await asyncio.wait({flowing, waiting}, return_when=asyncio.FIRST_COMPLETED)
        flowing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await flowing


def serve() -> None:
    with tempfile.TemporaryDirectory(prefix="moorline-demo-") as folder:
        uvloop.run(show(Stage(Path(folder))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="the summary as one JSON list")
    parser.add_argument(
        "--serve",
        action="store_true",
        help="no acts: a node with traffic and its page, until Ctrl-C",
    )
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    started = time.perf_counter()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="moorline-demo-") as folder:
        stage = Stage(Path(folder))
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console) as progress:
            uvloop.run(play(stage, progress))
    if options.json:
        print(json.dumps([{"act": d.act, "what": d.what, "result": d.result} for d in stage.done]))
        return
    table = Table("act", "what", "result", title="What the demo did")
    shown = ""
    for done in stage.done:
        table.add_row("" if done.act == shown else done.act, done.what, done.result)
        shown = done.act
    Console().print(table)
    print(f"demo: all acts played in {time.perf_counter() - started:.1f} s; nothing is left behind")


if __name__ == "__main__":
    main()
