"""Harm to the files of a stopped node, one file at a time: cut, altered or gone.

What of it is a loss must be said: by `moor journal check`, by the node in its log, or to the readers.
"""

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import moorline
from chaos.history import History, LostQueueMessages
from chaos.world import Node, clean_environment
from moorline.errors import MoorlineError

EXHAUSTIVE = "tests.journal.queues.damage"


class EveryByte(NamedTuple):
    """What became of it: the line that it ends with, and what was not as it should be."""

    line: str
    failures: list[str]


Harm = Callable[[Path, random.Random], str]


def cut_end(path: Path, chance: random.Random) -> str:
    """The last bytes are gone, as after a copy that was not finished."""
    size = path.stat().st_size
    cut = min(size, chance.choice((1, 7, 40, 300)))
    with path.open("r+b") as file:
        file.truncate(size - cut)
    return f"the last {cut} bytes cut"


def flip_byte(path: Path, chance: random.Random) -> str:
    size = path.stat().st_size
    place = chance.randrange(size)
    with path.open("r+b") as file:
        file.seek(place)
        (old,) = file.read(1)
        file.seek(place)
        file.write(bytes([old ^ (1 << chance.randrange(8))]))
    return f"a bit of byte {place} of {size} flipped"


def remove(path: Path, _: random.Random) -> str:
    path.unlink()
    return "removed"


KINDS: dict[str, tuple[str, Harm]] = {
    "state line cut": ("queues/messages/**/queue.log", cut_end),
    "state line altered": ("queues/messages/**/queue.log", flip_byte),
    "queue's messages altered": ("queues/messages/**/messages.*.log", flip_byte),
    "queue's messages cut": ("queues/messages/**/messages.*.log", cut_end),
    "queue's messages lost": ("queues/messages/**/messages.*.log", remove),
    "segment cut": ("streams/*/*.seg", cut_end),
    "segment altered": ("streams/*/*.seg", flip_byte),
    "segment lost": ("streams/*/*.seg", remove),
    "index of a segment altered": ("streams/*/*.idx", flip_byte),
    "dense index altered": ("streams/*/*.dense", flip_byte),
    "seal altered": ("streams/*/*.seal", flip_byte),
    "snapshot lost": ("streams/*/*.snapshot", remove),
}
"""By name: which files it is about, and what is done to one of them."""


NEVER_HARMLESS = {
    "queue's messages cut",
    "queue's messages lost",
    "segment cut",
    "segment lost",
}
"""Of these `moor journal check` has something to say, whatever byte it was."""


def harm(node: Node, kind: str, chance: random.Random) -> str:
    """Harms one file; says which, or nothing if the node has no such file."""
    pattern, act = KINDS[kind]
    files = sorted(path for path in node.files.glob(pattern) if path.stat().st_size)
    if not files:
        return ""
    path = chance.choice(files)
    what = act(path, chance)
    return f"{path.relative_to(node.files)}: {what}"


async def check(node: Node, history: History, *, repair: bool) -> list[str]:
    """Asks `moor journal check`, and notes what it says to be lost; returns the problems."""
    given = ["--repair"] if repair else []
    done = await node.moor(
        "journal", "check", *given, f"--data={node.data}", f"--node={node.name}", "--json"
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return [f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"]
    for problem in report["problems"]:
        if repair and problem["lost"] and problem["queue"]:
            history.note(LostQueueMessages(problem["queue"], problem["lost"]))
    of_streams = report.get("streams", {"problems": []})["problems"]
    return [f"{one['kind']}: {one['text']}" for one in [*report["problems"], *of_streams]]


async def repair_queue(node: Node, queue: str, history: History) -> list[str]:
    """Mends one queue while its node runs, and notes what that says to be lost."""
    try:
        async with moorline.connect(node.address, reconnect=False) as moor:
            found = await moor.queue(queue).repair()
    except MoorlineError as error:
        return [f"{error.code}: {error}"]
    if found.lost:
        history.note(LostQueueMessages(queue, found.lost))
    return [f"{problem.kind}: {problem.text}" for problem in found.problems]


@contextlib.asynccontextmanager
async def at_every_byte(
    *, wanted: bool
) -> AsyncIterator[Callable[[], Awaitable[EveryByte | None]]]:
    """A journal of queues, in memory, harmed at every byte of every file: beside the campaign."""
    if not wanted:
        yield _nothing
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", EXHAUSTIVE, "--exhaustive"),
        cwd=Path(__file__).parent.parent,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=clean_environment(),
        start_new_session=True,
    )

    async def result() -> EveryByte:
        out, err = await process.communicate()
        failures = err.decode().splitlines() if process.returncode else []
        return EveryByte(out.decode().strip(), failures)

    try:
        yield result
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _nothing() -> None:
    return None
