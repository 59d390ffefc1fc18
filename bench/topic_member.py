"""Members of the topic benchmark, each in a process of its own, and the crew of them as the bench sees it.

A member says `ready`, joins its group when it hears a line, and counts in a file that both sides have
mapped: how many, when the first and the last came, and the newest stamp of each topic.
"""

import asyncio
import mmap
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

from bench.topic_client import TOPICS, Ears, TopicSide, batch_member, now_ns, single_member
from bench.topic_peers import NatsMember, RedisMember

ROOT = Path(__file__).parents[1]
WORDS = 3 + TOPICS
"""Of 64 bits, for each member."""

MEMBERS_MAX = 16
LOOK_S = 0.002
HANG_S = 60


def member(kind: str, address: str, group: str, name: str, ears: Ears) -> Coroutine[Any, Any, None]:
    match kind:
        case "node":
            return batch_member(address, group, name, ears)
        case "node single":
            return single_member(address, group, name, ears)
        case "redis":
            return RedisMember(int(address), group, name, ears).run()
        case "nats":
            return NatsMember(int(address), group, name, ears).run()
    raise ValueError(f"there is no member of kind {kind}")


class Counters:
    """The file; written by members, each its own part, and read by the bench."""

    def __init__(self, path: Path) -> None:
        size = struct.calcsize("Q") * WORDS * MEMBERS_MAX
        with path.open("a+b") as file:
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        self.words = memoryview(self._map).cast("Q")


class Crew:
    """The members of one group."""

    def __init__(self, side: TopicSide, group: str, folder: Path, kind: str = "") -> None:
        self._side = side
        self._group = group
        self._kind = kind or side.kind
        self._path = folder / f"counters-{side.pid}-{group}"
        self._words = Counters(self._path).words
        self.processes: list[subprocess.Popen[bytes]] = []

    def add(self, count: int = 1) -> None:
        """Starts so many; they are ready, and have not joined."""
        fresh = []
        for slot in range(len(self.processes), len(self.processes) + count):
            place = [self._kind, self._side.address, self._group, f"m{slot}", str(slot)]
            command = [sys.executable, "-m", "bench.topic_member", *place, str(self._path)]
            fresh.append(
                subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
        for process in fresh:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise SystemExit("bench: a member did not start")
        self.processes += fresh

    def join(self, *slots: int) -> None:
        """These join now; without a number all do."""
        for slot in slots or range(len(self.processes)):
            pipe = self.processes[slot].stdin
            assert pipe is not None
            pipe.write(b"join\n")
            pipe.flush()

    def counts(self) -> list[int]:
        return [self._words[slot * WORDS] for slot in range(len(self.processes))]

    def first_ns(self) -> int:
        """When the first message came to any of them."""
        return min(f for s in range(len(self.processes)) if (f := self._words[s * WORDS + 1]))

    def oldest_ns(self) -> int:
        """Of all topics' newest stamps the oldest: what was published before it has come through."""
        return min(
            max(self._words[slot * WORDS + 3 + topic] for slot in range(len(self.processes)))
            for topic in range(TOPICS)
        )

    async def until_counted(self, messages: int) -> None:
        """Until all of them together have acknowledged so many."""
        await self.until(lambda: sum(self.counts()) >= messages)

    async def until_newer(self, stamp_ns: int) -> None:
        """Until each topic has brought a message that was published after that."""
        await self.until(lambda: self.oldest_ns() > stamp_ns)

    async def until_first(self, slot: int) -> int:
        """When that member got its first message."""
        await self.until(lambda: self._words[slot * WORDS + 1] > 0)
        return self._words[slot * WORDS + 1]

    async def until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + HANG_S
        while not is_so():
            if time.monotonic() > end:
                raise TimeoutError(f"members of {self._side.name} stand still at {self.counts()}")
            await asyncio.sleep(LOOK_S)

    def kill(self, slot: int) -> None:
        self.processes[slot].send_signal(signal.SIGKILL)
        self.processes[slot].wait()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()


def main() -> None:
    kind, address, group, name, slot, path = sys.argv[1:]
    words, base = Counters(Path(path)).words, int(slot) * WORDS

    def count(messages: int) -> None:
        words[base] += messages
        if not words[base + 1]:
            words[base + 1] = now_ns()
        words[base + 2] = now_ns()

    def see(topic: int, stamp: int) -> None:
        words[base + 3 + topic] = stamp

    # Who wants stamps names its group so: to read them costs a member more than to acknowledge.
    ears = Ears(count, see if group.startswith("stamps") else None)
    print("ready", flush=True)
    if sys.stdin.readline():
        uvloop.run(member(kind, address, group, name, ears))


if __name__ == "__main__":
    main()
