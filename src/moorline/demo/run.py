"""Room: demo. `moor demo`: starts a node, plays every act on it, stops it, and says what was proven.

Everything happens on loopback in a temporary folder, which is gone at the end.
"""

import asyncio
import contextlib
import signal
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import msgspec
import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import moorline
from moorline.demo import traffic
from moorline.demo.acts import (
    fleet,
    mqtt,
    node,
    pipeline,
    queues,
    records,
    rights,
    services,
    together,
    topics,
    values,
)
from moorline.demo.stage import Claim, Done, Stage
from moorline.errors import ConfigError

ACTS = (node, queues, services, topics, fleet, values, rights, records, mqtt, pipeline)
ON_SPARK = (pipeline,)
OF_SPARK = (together.TITLE, pipeline.TITLE)
"""Left out, and named, where the packages of the pipeline or a Java are not there."""


class LeftOut(msgspec.Struct, frozen=True):
    """An act that cannot be played here."""

    act: str
    why: str


class Played(msgspec.Struct, frozen=True):
    """For programs."""

    claims: list[Claim]
    facts: list[Done]
    left_out: list[LeftOut]
    seconds: float


def acts() -> tuple[list[ModuleType], list[LeftOut]]:
    """Those that can be played here, and the others."""
    why = why_no_spark()
    if not why:
        return list(ACTS), []
    return [one for one in ACTS if one not in ON_SPARK], [LeftOut(title, why) for title in OF_SPARK]


def why_no_spark() -> str:
    """Why no job on Spark can run here; empty if it can."""
    if find_spec("pyspark") is None:
        return "it needs the extra `spark` (docs/start.md)"
    from moorline.spark.java import ensure_java

    try:
        ensure_java()
    except ConfigError as error:
        return str(error)
    return ""


async def play(stage: Stage, progress: Progress, played: list[ModuleType]) -> None:
    task = progress.add_task("starting a node", total=len(played) + 2)
    started = time.perf_counter()
    await stage.start()
    took = f"{time.perf_counter() - started:.1f} s"
    stage.tell("start", "a node with its own Postgres, ready in", took)
    stage.claim("start", "one command starts a node, its database with it", f"ready in {took}")
    progress.advance(task)
    try:
        for act in played:
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
        flowing = asyncio.create_task(traffic.flow(stage))
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


def play_all() -> Played:
    """On stderr what is played, and each claim when it is proven."""
    started = time.perf_counter()
    console = Console(stderr=True)
    played, left_out = acts()
    with tempfile.TemporaryDirectory(prefix="moorline-demo-") as folder:
        stage = Stage(Path(folder))
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console) as progress:
            stage.claimed = lambda one: progress.console.print(
                f"[green]proven[/] {one.claim}: [bold]{one.measured}[/]", highlight=False
            )
            uvloop.run(play(stage, progress, played))
    seconds = round(time.perf_counter() - started, 1)
    return Played(stage.claims, stage.done, left_out, seconds)


def show_claims(played: Played) -> None:
    table = Table("claim", "measured", title="What the demo has proven", title_justify="left")
    for one in played.claims:
        table.add_row(one.claim, one.measured)
    Console().print(table)
    for left in played.left_out:
        print(f"left out: {left.act}: {left.why}")
    print(f"demo: {len(played.claims)} claims proven in {played.seconds} s; nothing is left behind")
