"""How many functions one message runs through in a node: from its publish to its committed acknowledgement.

    .venv/bin/python -m bench.walk            the counts, for a group and for a private subscription
    .venv/bin/python -m bench.walk --list     and every function, file by file

A node of its own runs in a process of its own, with a profile hook in all of its threads. It is warm: the
topic, the rights and the readers are known. A walk is recorded several times, and what ran in each of them
counts, so that whatever the node does from time to time does not. Callables of other packages, of the client
and of C are not counted.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

WARM_UP = 3
WALKS = 12
READY_S = 60
SETTLED_S = 0.05
"""Between two walks, and behind a commit: for what follows from it."""

COMMITTED_S = 10
LOOK_S = 0.02

FLAGS = (
    "--listen=tcp://127.0.0.1:0",
    "--set=http=off",
    "--set=groups.ping_ms=60000",
    "--set=groups.member_timeout_ms=600000",
)
COMMITTED = "groups/cursor_commits.py"
"""Where the catalog is told of an acknowledgement."""


# --- in the node's process ------------------------------------------------------------------------------


class Recorder:
    """Notes the functions of moorline that are called since a signal, and tells them at another."""

    def __init__(self, root: Path, into: Path) -> None:
        self._root = f"{root}/"
        self._into = into
        self._is_on = False
        self._seen: set[tuple[str, str]] = set()

    def install(self) -> None:
        signal.signal(signal.SIGUSR1, self._begin)
        signal.signal(signal.SIGUSR2, self._tell)
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _begin(self, *_: object) -> None:
        self._seen = set()
        self._is_on = True

    def _tell(self, *_: object) -> None:
        whole = self._into.with_suffix(".part")
        whole.write_text(json.dumps(sorted(self._seen)))
        whole.rename(self._into)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if self._is_on and event == "call":
            code = frame.f_code
            if code.co_filename.startswith(self._root):
                self._seen.add((code.co_filename.removeprefix(self._root), code.co_qualname))


def serve(data: str, into: str) -> int:
    import moorline
    from moorline.cli.main import run

    Recorder(Path(moorline.__file__).parent, Path(into)).install()
    return run(["serve", f"--data={data}", *FLAGS])


# --- beside it ------------------------------------------------------------------------------------------

Walk = set[tuple[str, str]]


class TracedNode:
    def __init__(self, process: asyncio.subprocess.Process, into: Path) -> None:
        self._process = process
        self._into = into

    @classmethod
    async def start(cls, folder: Path) -> tuple["TracedNode", str]:
        into = folder / "walk.json"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.walk",
            "--serve",
            str(folder / "data"),
            str(into),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "MOOR_LOG_LEVEL": "error"},
        )
        assert process.stdout is not None
        async with asyncio.timeout(READY_S):
            line = (await process.stdout.readline()).decode()
        assert " ready: " in line, f"the node did not start: {line!r}"
        return cls(process, into), line.partition(" ready: ")[2].split()[0]

    def begin(self) -> None:
        self._process.send_signal(signal.SIGUSR1)

    async def end(self) -> Walk:
        """When the acknowledgement is committed, and what follows from that is done."""
        async with asyncio.timeout(COMMITTED_S):
            while not any(file == COMMITTED for file, _ in await self._told()):
                await asyncio.sleep(LOOK_S)
        await asyncio.sleep(SETTLED_S)
        return await self._told()

    async def _told(self) -> Walk:
        self._into.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR2)
        while not self._into.exists():
            await asyncio.sleep(LOOK_S / 4)
        return {(file, name) for file, name in json.loads(self._into.read_text())}

    async def stop(self) -> None:
        self._process.terminate()
        await self._process.wait()


async def walk(node: TracedNode, address: str, *, is_shared: bool) -> Walk:
    """The functions that are called in each of several walks of one message."""
    import moorline

    walks: list[Walk] = []
    async with moorline.connect(address) as publisher, moorline.connect(address) as reader:
        if not is_shared:
            await reader.session("walker")
        topic = "shared" if is_shared else "private"
        subscription = await reader.subscribe(f"$share/walkers/{topic}" if is_shared else topic)
        for _ in range(WARM_UP + WALKS):
            await asyncio.sleep(SETTLED_S)
            node.begin()
            await publisher.publish(topic, b"body")
            message = await anext(subscription)
            await message.ack()
            walks.append(await node.end())
    return set.intersection(*walks[WARM_UP:])


async def walks() -> dict[str, Walk]:
    with tempfile.TemporaryDirectory(prefix="walk-") as folder:
        node, address = await TracedNode.start(Path(folder))
        try:
            return {
                "in a group": await walk(node, address, is_shared=True),
                "of a private subscription": await walk(node, address, is_shared=False),
            }
        finally:
            await node.stop()


def counts(found: Walk) -> tuple[int, int]:
    """Functions and files. What a comprehension or a lambda does is its function's."""
    named = {(file, name) for file, name in found if "<" not in name.replace("<locals>.", "")}
    return len(named), len({file for file, _ in found})


def _listed(found: Iterable[tuple[str, str]]) -> None:
    by_file = Counter(file for file, _ in found)
    for file in sorted(by_file):
        names = sorted(name for one, name in found if one == file)
        print(f"  {file}: {', '.join(names)}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Counts the functions that a message runs through."
    )
    parser.add_argument("--list", action="store_true", help="print every function")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(*given.serve)
    for name, found in asyncio.run(walks()).items():
        functions, files = counts(found)
        print(f"{name}: {functions} functions in {files} files")
        if given.list:
            _listed(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
