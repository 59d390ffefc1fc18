"""What the check of rights and quotas costs a node: CPU for each message that a principal publishes or sends.

    python -m bench.rights [--quick] [--json]

Five users of one node publish the same messages, batched and one by one, and send them to queues, over the
same kind of link:

    everything   one row at /topics: a whole run of calls costs one look
    single       a row for each of its topics, and none above: each topic is looked up; and a denial at some
                 queue, so that each queue is too
    subtree      by the row `/topics/%u`
    default      as `everything`, with the bound of topics that the settings have by themselves
    bounded      as `everything`, with bounds of topics, messages and bytes a second that it does not meet

They take turns, round by round; told is the median of the rounds, with `everything` as the peer.
"""

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from bench.node import BenchNode
from bench.report import Report, run_bench, tell
from moorline.client.connecting import connect
from moorline.client.moor import Moor
from moorline.client.topic import record
from moorline.errors import MoorlineError
from moorline.net.credentials import PasswordCredentials

FLAGS = ["--set=streams.sync=process", "--set=queues.sync=process", "--set=access.quotas="]
TOPICS = 64
BATCH = 200
SIDE_BY_SIDE = 8
EVERYTHING = "everything"


QUEUES = 256
"""So many that what a round sends fits into them: a queue holds 128 messages that nobody has read."""


class Plan(NamedTuple):
    rounds: int
    batched: int
    batched_sends: int
    single: int


FULL = Plan(7, 160_000, 24_000, 12_000)
QUICK = Plan(1, 8_000, 8_000, 800)


class User(NamedTuple):
    name: str
    prefix: str
    rows: tuple[str, ...]
    bounds: tuple[tuple[str, int], ...] = ()
    denied: tuple[str, ...] = ()


USERS = (
    User("everything", "everything", ("/topics",)),
    User(
        "single",
        "single",
        tuple(f"/topics/single/{number}" for number in range(TOPICS)),
        denied=("/queues/" + "0" * 48,),
    ),
    User("subtree", "subtree", ("/topics/%u",)),
    User("default", "default", ("/topics",), (("topics", 100_000),)),
    User(
        "bounded",
        "bounded",
        ("/topics",),
        (("topics", 1_000_000), ("messages_per_s", 100_000_000), ("bytes_per_s", 10**12)),
    ),
)


async def batched(moor: Moor, user: User, messages: int) -> None:
    records = [record(f"{user.prefix}/{at % TOPICS}", b"x" * 100) for at in range(BATCH)]

    async def some() -> None:
        for _ in range(messages // BATCH // SIDE_BY_SIDE):
            await moor.publish_all(records)

    await asyncio.gather(*(some() for _ in range(SIDE_BY_SIDE)))


async def single(moor: Moor, user: User, messages: int) -> None:
    async def some(first: int) -> None:
        for at in range(messages // SIDE_BY_SIDE):
            await moor.publish(f"{user.prefix}/{(first + at) % TOPICS}", b"x" * 100)

    await asyncio.gather(*(some(number) for number in range(SIDE_BY_SIDE)))


class Sending:
    """To queues that are nobody's: whoever knows an id may send there. They are new for each round."""

    def __init__(self, node: BenchNode) -> None:
        self._node = node
        self._ids: list[bytes] = []

    async def prepare(self) -> None:
        async with connect(self._node.address) as operator:
            self._ids = [queue.id for queue in await operator.create_queues(QUEUES)]

    async def empty(self) -> None:
        """New ones: what waits in a queue is not a part of what a send costs."""
        async with connect(self._node.address) as operator:
            for one in self._ids:
                await operator.queue(one).delete()
        await self.prepare()

    async def batched(self, moor: Moor, _: User, messages: int) -> None:
        calls = [
            [(self._ids[(first + at) % QUEUES], b"x" * 100) for at in range(BATCH)]
            for first in range(0, messages, BATCH)
        ]

        async def send(some: list[list[tuple[bytes, bytes]]]) -> None:
            for call in some:
                refused = [
                    one for one in await moor.send_all(call) if isinstance(one, MoorlineError)
                ]
                assert not refused, refused[0]

        await asyncio.gather(*(send(calls[place::SIDE_BY_SIDE]) for place in range(SIDE_BY_SIDE)))

    async def single(self, moor: Moor, _: User, messages: int) -> None:
        async def send(first: int) -> None:
            for at in range(messages // SIDE_BY_SIDE):
                await moor.send(
                    self._ids[(first * QUEUES // SIDE_BY_SIDE + at) % QUEUES], b"x" * 100
                )

        await asyncio.gather(*(send(number) for number in range(SIDE_BY_SIDE)))


async def prepare(address: str) -> None:
    async with connect(address) as operator:
        for user in USERS:
            await operator.access.add_user(user.name, b"x")
            for path in user.rows:
                await operator.access.add_grant(path, user.name, "w")
            for path in user.denied:
                await operator.access.add_grant(path, user.name, denies="w")
            for quota, bound in user.bounds:
                await operator.access.set_quota(user.name, quota, bound)


def cpu_s(pid: int) -> float:
    """Of the node's threads, to the nanosecond: a round is too short for the ticks of `cpu_seconds`."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


async def round_of(
    node: BenchNode, user: User, work: Callable[[Moor, User, int], Awaitable[None]], messages: int
) -> float:
    """Microseconds of the node's CPU for each message."""
    credentials = PasswordCredentials(user.name, "x")
    async with connect(node.address, credentials=credentials) as moor:
        await work(moor, user, messages // 10)  # what is first meets cold caches
        before = cpu_s(node.pid)
        await work(moor, user, messages)
        return (cpu_s(node.pid) - before) / messages * 1e6


async def run(report: Report, folder: Path, quick: bool) -> None:
    plan = QUICK if quick else FULL
    with BenchNode(folder, FLAGS) as node:
        await prepare(node.address)
        sending = Sending(node)
        await sending.prepare()
        for kind, work, messages in (
            ("batched", batched, plan.batched),
            ("single messages", single, plan.single),
            ("batched sends", sending.batched, plan.batched_sends),
            ("single sends", sending.single, plan.single),
        ):
            tell(kind)
            found: dict[str, list[float]] = {user.name: [] for user in USERS}
            for number in range(plan.rounds):
                turned = USERS[number % len(USERS) :] + USERS[: number % len(USERS)]
                for user in turned:
                    found[user.name].append(await round_of(node, user, work, messages))
                    await sending.empty()
            medians = {name: statistics.median(times) for name, times in found.items()}
            for name, median in medians.items():
                if name == EVERYTHING:
                    report.row(f"{kind}, {name}", "node_cpu", median, "us")
                else:
                    peer = medians[EVERYTHING]
                    report.row(
                        f"{kind}, {name}",
                        "node_cpu",
                        median,
                        "us",
                        peer=EVERYTHING,
                        peer_value=peer,
                    )


def main() -> None:
    run_bench("rights", __doc__, run)


if __name__ == "__main__":
    main()
