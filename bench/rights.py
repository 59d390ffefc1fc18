"""What rights and quotas cost a node: CPU for each message that a principal publishes or sends.

    python -m bench.rights [--quick] [--json]

Users of one node publish the same messages to the same topics, batched and one by one, and send them to
queues, over the same kind of link. The peer of all is the first:

    unchecked    nobody asks what it may, and nothing is counted for it: as before there were rights
    unchecked-2  the same once more: how far apart two are between which there is no difference
    everything   one row at /topics
    single       a row for each of the topics, and none above; and a denial at some queue
    subtree      the row `/topics/%u`
    default      as `everything`, with the bound of topics that the settings have by themselves
    bounded      as `everything`, with bounds of topics, messages and bytes a second that it does not meet

In each round they take short turns, in many orders, so that what the machine does meanwhile falls upon all of
them. Told of a user is the median of the rounds, and of a round the median of its turns.
"""

import asyncio
import random
import statistics
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from bench.node import BenchNode
from bench.report import Report, run_bench, tell
from bench.unchecked_node import UNCHECKED
from moorline.client.connecting import connect
from moorline.client.moor import Moor
from moorline.client.topic import record
from moorline.errors import MoorlineError
from moorline.net.credentials import TokenCredentials

FLAGS = ["--set=streams.sync=process", "--set=queues.sync=process", "--set=access.quotas="]
TOPICS = 64
BATCH = 200
SIDE_BY_SIDE = 8
SUBTREE = "subtree"
"""Whose own topics all publish to: the shards of others would be shared out otherwise."""


QUEUES = 256
"""So many that what a round sends fits into them: a queue holds 128 messages that nobody has read."""


class Plan(NamedTuple):
    rounds: int
    turns: int
    """Of each user, in a round: an even number, since every other goes the other way."""
    batched: int
    batched_sends: int
    single: int


FULL = Plan(7, 16, 32_000, 16_000, 2_400)
QUICK = Plan(1, 2, 8_000, 8_000, 800)


class User(NamedTuple):
    name: str
    rows: tuple[str, ...] = ()
    bounds: tuple[tuple[str, int], ...] = ()
    denied: tuple[str, ...] = ()


USERS = (
    User(UNCHECKED),
    User(f"{UNCHECKED}-2"),
    User("everything", ("/topics",)),
    User(
        "single",
        tuple(f"/topics/{SUBTREE}/{number}" for number in range(TOPICS)),
        denied=("/queues/" + "0" * 48,),
    ),
    User(SUBTREE, ("/topics/%u",)),
    User("default", ("/topics",), (("topics", 100_000),)),
    User(
        "bounded",
        ("/topics",),
        (("topics", 1_000_000), ("messages_per_s", 100_000_000), ("bytes_per_s", 10**12)),
    ),
)


async def batched(moor: Moor, messages: int) -> None:
    records = [record(f"{SUBTREE}/{at % TOPICS}", b"x" * 100) for at in range(BATCH)]

    async def some() -> None:
        for _ in range(messages // BATCH // SIDE_BY_SIDE):
            await moor.publish_all(records)

    await asyncio.gather(*(some() for _ in range(SIDE_BY_SIDE)))


async def single(moor: Moor, messages: int) -> None:
    async def some(first: int) -> None:
        for at in range(messages // SIDE_BY_SIDE):
            await moor.publish(f"{SUBTREE}/{(first + at) % TOPICS}", b"x" * 100)

    await asyncio.gather(*(some(number) for number in range(SIDE_BY_SIDE)))


class Sending:
    """To queues that are nobody's: whoever knows an id may send there. They are new for each round."""

    def __init__(self, node: BenchNode) -> None:
        self._node = node
        self._ids: list[bytes] = []

    async def prepare(self) -> None:
        async with connect(self._node.address) as operator:
            self._ids = [queue.id for queue in await operator.create_queues(QUEUES)]

    async def renew(self) -> None:
        """What waits in a queue is not a part of what a send costs."""
        async with connect(self._node.address) as operator:
            await asyncio.gather(*(operator.queue(one).delete() for one in self._ids))
        await self.prepare()

    async def batched(self, moor: Moor, messages: int) -> None:
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

    async def single(self, moor: Moor, messages: int) -> None:
        async def send(first: int) -> None:
            for at in range(messages // SIDE_BY_SIDE):
                await moor.send(
                    self._ids[(first * QUEUES // SIDE_BY_SIDE + at) % QUEUES], b"x" * 100
                )

        await asyncio.gather(*(send(number) for number in range(SIDE_BY_SIDE)))


async def prepare(address: str) -> dict[str, TokenCredentials]:
    """By what each of them comes."""
    found = {}
    async with connect(address) as operator:
        access = operator.access
        for user in USERS:
            await access.add_user(user.name, b"x")
            for path in user.rows:
                await access.add_grant(path, user.name, "w")
            for path in user.denied:
                await access.add_grant(path, user.name, denies="w")
            for quota, bound in user.bounds:
                await access.set_quota(user.name, quota, bound)
            token = await access.add_token(user.name, "bench")
            found[user.name] = TokenCredentials(token.token)
    return found


def cpu_s(pid: int) -> float:
    """Of the node's threads, to the nanosecond: a turn is too short for the ticks of `cpu_seconds`."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


Work = Callable[[Moor, int], Awaitable[None]]


async def turn_of(
    node: BenchNode, credentials: TokenCredentials, work: Work, messages: int
) -> float:
    """Microseconds of the node's CPU for each message."""
    async with connect(node.address, credentials=credentials) as moor:
        await work(moor, messages // 10)  # what is first meets cold caches
        before = cpu_s(node.pid)
        await work(moor, messages)
        return (cpu_s(node.pid) - before) / messages * 1e6


async def run(report: Report, folder: Path, quick: bool) -> None:
    plan = QUICK if quick else FULL
    with BenchNode(folder, FLAGS, "bench.unchecked_node") as node:
        credentials = await prepare(node.address)
        sending = Sending(node)
        await sending.prepare()
        for kind, work, messages, renew in (
            ("batched", batched, plan.batched, None),
            ("single messages", single, plan.single, None),
            ("batched sends", sending.batched, plan.batched_sends, sending.renew),
            ("single sends", sending.single, plan.single, sending.renew),
        ):
            tell(kind)
            rounds: dict[str, list[float]] = {user.name: [] for user in USERS}
            for number in range(plan.rounds):
                chance = random.Random(number)
                users = list(USERS)
                turns: dict[str, list[float]] = {user.name: [] for user in USERS}
                for at in range(plan.turns):
                    # There and back, and then in another order: what comes back with a period of its own,
                    # such as a checkpoint, must not meet the same user each time.
                    if at % 2:
                        users.reverse()
                    else:
                        chance.shuffle(users)
                    for user in users:
                        found = await turn_of(node, credentials[user.name], work, messages)
                        turns[user.name].append(found)
                        if renew is not None:
                            await renew()
                for name, times in turns.items():
                    rounds[name].append(statistics.median(times))
            tell_of(report, kind, rounds)


def tell_of(report: Report, kind: str, rounds: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(times) for name, times in rounds.items()}
    peer = medians[UNCHECKED]
    for name, median in medians.items():
        case = f"{kind}, {name}"
        if name == UNCHECKED:
            report.row(case, "node_cpu", median, "us")
        else:
            report.row(case, "node_cpu", median, "us", peer=UNCHECKED, peer_value=peer)


def main() -> None:
    run_bench("rights", __doc__, run)


if __name__ == "__main__":
    main()
