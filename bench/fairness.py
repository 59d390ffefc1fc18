"""What one principal's flood costs another one: the latency of single calls beside it, and without it.

    python -m bench.fairness [--quick] [--json]

One principal, anonymous over TCP, has many connections in processes of their own: most publish batch after
batch, some list all topics again and again. Another one, known by its certificate over TLS, publishes single
messages and sends single ones to a queue, one of each every 20 ms, whether the one before is answered or not.
Told is how long each took from when it was due, with the time without the flood as the peer, measured in the
same run on the same node.

Behind that: what the scheduler of turns among principals (`core/access/principal_turns.py`) costs each turn.
"""

import asyncio
import contextlib
import multiprocessing
import multiprocessing.connection
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import trustme
import uvloop

from bench.node import BenchNode
from bench.report import Report, run_bench, tell
from moorline.client.connecting import connect
from moorline.client.moor import Moor
from moorline.client.topic import record
from moorline.core.access.principal_turns import PrincipalTurns
from moorline.limits import TOPICS_PER_PAGE_MAX

FLAGS = [
    "--set=streams.sync=process",
    "--set=queues.sync=process",
    "--set=queues.max_queue_messages=1000000",
    "--set=queues.max_file_messages=2000000",
    "--listen=tls://127.0.0.1:0",
]
BATCH = 200
PAUSE_S = 0.02
"""Time between two single calls of a kind: so few that they are no load themselves."""
LISTS_OF = 10
"""One connection of so many lists topics; the others publish."""
TURNS, REPEATS = 50_000, 7
WITHOUT = "without the flood"

Ends: TypeAlias = "multiprocessing.connection.Connection[Any, Any]"


class Plan(NamedTuple):
    """How much is done; `--quick` does the same with less."""

    seconds: float
    topics: int
    connections: tuple[int, ...]
    processes: int


FULL = Plan(8.0, 20_000, (1, 100, 1_000), 2)
QUICK = Plan(1.0, 2_000, (1, 100), 1)


class Papers(NamedTuple):
    """Files of certificates."""

    ca: Path
    client: Path


# --- in processes of their own --------------------------------------------------------------------


def flood(address: str, connections: int, ends: Ends) -> None:
    """Opens all connections and floods until it is told to stop; says when all of them do, gives how much."""

    async def run() -> None:
        done = {"messages": 0, "lists": 0}
        is_over = False

        async def one(number: int, moor: Moor) -> None:
            batch = [record(f"flood/{number % 64}/{at % 8}", b"x" * 100) for at in range(BATCH)]
            while not is_over:
                if number % LISTS_OF == LISTS_OF - 1:
                    await moor.topics("#", "", TOPICS_PER_PAGE_MAX)
                    done["lists"] += 1
                else:
                    await moor.publish_all(batch)
                    done["messages"] += BATCH
                flows.release()

        # All before the first floods: a node that is kept busy takes connections slowly.
        moors = [await connect(address) for _ in range(connections)]
        flows = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(one(*each)) for each in enumerate(moors)]
        for _ in range(connections):  # about as many calls as there are connections
            await flows.acquire()
        done.update(dict.fromkeys(done, 0))
        begun = time.perf_counter()
        ends.send("ready")
        await asyncio.to_thread(ends.recv)
        took = time.perf_counter() - begun
        ends.send({kind: count / took for kind, count in done.items()})
        is_over = True
        await asyncio.gather(*tasks)

    with contextlib.suppress(EOFError, KeyboardInterrupt):
        uvloop.run(run())


def single_calls(address: str, papers: Papers, ends: Ends) -> None:
    """Told for how long, it makes a call of each kind every PAUSE_S; gives how long each took, by kind."""

    async def run() -> None:
        async with connect(
            address, ca=papers.ca, certificate=papers.client, key=papers.client
        ) as moor:
            queue = await moor.create_queue()

            async def publish() -> None:
                await moor.publish("single/a", b"x" * 100)

            async def send() -> None:
                await moor.send(queue.id, b"x" * 100)

            async def timed(kind: str, due: float, took: dict[str, list[float]]) -> None:
                await calls[kind]()
                took[kind].append(time.perf_counter() - due)

            calls: dict[str, Callable[[], Awaitable[None]]] = {"publish": publish, "send": send}
            ends.send("ready")
            while True:
                seconds: float = await asyncio.to_thread(ends.recv)
                took: dict[str, list[float]] = {kind: [] for kind in calls}
                begun = time.perf_counter()

                asked: list[asyncio.Task[None]] = []
                for number in range(round(seconds / PAUSE_S)):
                    due = begun + number * PAUSE_S
                    await asyncio.sleep(max(0.0, due - time.perf_counter()))
                    asked += [asyncio.create_task(timed(kind, due, took)) for kind in calls]
                await asyncio.gather(*asked)
                ends.send(took)

    with contextlib.suppress(EOFError, KeyboardInterrupt):
        uvloop.run(run())


class Peer:
    """A process, and our end of the pipe to it."""

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        self._ends, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=target, args=(*arguments, there), daemon=True)
        self._process.start()

    def say(self, what: object) -> None:
        self._ends.send(what)

    async def heard(self) -> Any:
        return await asyncio.to_thread(self._ends.recv)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


# --- the measurements -----------------------------------------------------------------------------


class Figures(NamedTuple):
    p50_ms: float
    p99_ms: float
    longest_ms: float


def figures(took_s: list[float]) -> Figures:
    cuts = statistics.quantiles([*took_s, *took_s], n=100)  # twice: there may be only one
    return Figures(cuts[49] * 1_000, cuts[98] * 1_000, max(took_s) * 1_000)


async def measured(caller: Peer, seconds: float) -> dict[str, Figures]:
    caller.say(seconds)
    took: dict[str, list[float]] = await caller.heard()
    return {kind: figures(times) for kind, times in took.items()}


async def beside_flood(
    caller: Peer, address: str, connections: int, plan: Plan
) -> tuple[dict[str, Figures], dict[str, float]]:
    """(latency of the single calls, what the flood did in a second)."""
    processes = min(plan.processes, connections)
    shares = [connections // processes + (at < connections % processes) for at in range(processes)]
    peers = [Peer(flood, address, share) for share in shares]
    try:
        for peer in peers:
            await peer.heard()
        found = await measured(caller, plan.seconds)
        for peer in peers:
            peer.say("stop")
        done = [await peer.heard() for peer in peers]
    finally:
        for peer in peers:
            peer.stop()
    return found, {kind: sum(one[kind] for one in done) for kind in done[0]}


def best_ns(work: Callable[[], None]) -> float:
    """Of one of the TURNS that it makes: the best of several times, since others work on this machine too."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - begun)
    return min(times) / TURNS


def turn_ns(principals: int, connections: int) -> float:
    """What a turn costs in the scheduler, where all connections always have more to do."""
    turns = PrincipalTurns()
    for number in range(connections):
        turns.wait(f"p{number % principals}", number)

    def work() -> None:
        for _ in range(TURNS):
            found = turns.next()
            assert found is not None
            turns.wait(*found)
            turns.spent(5_000)

    return best_ns(work)


class Crowd:
    """What a session would look at before it works: whether more than one principal is there."""

    __slots__ = ("is_crowded",)

    def __init__(self) -> None:
        self.is_crowded = False


def look_ns() -> float:
    """What a connection pays on a node with one principal: it looks, and goes on as today."""
    crowd = Crowd()

    def nothing() -> None:
        for _ in range(TURNS):
            pass

    def look() -> None:
        for _ in range(TURNS):
            if crowd.is_crowded:
                raise AssertionError

    return max(0.0, best_ns(look) - best_ns(nothing))


def certificates(folder: Path) -> tuple[list[str], Papers]:
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    client = authority.issue_cert("single@example.org", common_name="single")
    papers = Papers(folder / "ca.pem", folder / "client.pem")
    authority.cert_pem.write_to_path(str(papers.ca))
    server.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    client.private_key_and_cert_chain_pem.write_to_path(str(papers.client))
    return [
        f"--tls-certificate={folder / 'server.pem'}",
        f"--tls-key={folder / 'server.pem'}",
        f"--tls-client-ca={papers.ca}",
    ], papers


async def fill(address: str, topics: int) -> None:
    async with connect(address) as moor:
        for start in range(0, topics, 2_000):
            numbers = range(start, min(start + 2_000, topics))
            await moor.publish_all([record(f"many/{number}", b"x") for number in numbers])


async def run(report: Report, folder: Path, quick: bool) -> None:
    plan = QUICK if quick else FULL
    flags, papers = certificates(folder)
    with BenchNode(folder, [*FLAGS, *flags]) as node:
        await fill(node.address, plan.topics)
        caller = Peer(single_calls, node.tls_address, papers)
        try:
            await caller.heard()
            await measured(caller, plan.seconds / 4)  # what is first meets cold caches
            quiet = await measured(caller, plan.seconds)
            for connections in plan.connections:
                tell(f"a flood of {connections} connections")
                found, rates = await beside_flood(caller, node.address, connections, plan)
                case = f"beside {connections}"
                for kind, one in found.items():
                    for metric, value, peer_value in zip(
                        Figures._fields, one, quiet[kind], strict=True
                    ):
                        name = f"{kind}_{metric}"
                        report.row(case, name, value, "ms", peer=WITHOUT, peer_value=peer_value)
                report.row(case, "flood_messages_per_s", rates["messages"], "1/s")
                report.row(case, "flood_lists_per_s", rates["lists"], "1/s")
        finally:
            caller.stop()
    report.row("turns, one principal on the node", "look", look_ns(), "ns")
    for principals, connections in ((1, 1_000), (2, 1_000), (100, 1_000)):
        case = f"turns, {connections} connections of {principals}"
        report.row(case, "turn", turn_ns(principals, connections), "ns")


def main() -> None:
    run_bench("fairness", __doc__, run)


if __name__ == "__main__":
    main()
