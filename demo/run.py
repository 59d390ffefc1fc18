"""`make demo`: starts a node, plays every act on it, stops it, and says what was done.

    python -m demo.run [--json]

Everything happens on loopback in a temporary folder, which is gone at the end.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.acts import mqtt, node, pipeline, queues, records, rights, services, topics, values
from demo.stage import Stage

ACTS = (node, queues, services, topics, mqtt, rights, values, records, pipeline)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="the summary as one JSON list")
    options = parser.parse_args()
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
