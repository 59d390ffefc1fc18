"""Programs of twenty lines that know three addresses and nothing of faults, through all kinds of them.

Each is a process of its own. At the end it has everything, and twice only what docs/client.md allows: what it
had in hand when a connection was lost, and of a group or a session what was acknowledged and not stored yet.
"""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import IO

import pytest
from chaos.proxy import LinkProxy
from tests.cluster.conftest import dsn as dsn
from tests.cluster.conftest import nodes as nodes
from tests.cluster.running import PATIENT, Nodes
from tests.process.nodes import clean_environment, run_moor
from tests.waiting import until

import moorline

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "programs"
NAMES = ("a", "b", "c")
TOPICS = 8
PER_STEP = 120
SENT = 100
"""Within the quota of a queue."""
WITHIN_S = 60
SETTINGS = PATIENT | {"groups.commit_ms": 20}
KEEPALIVE_MS = 1_500
"""Where a node hangs: two of them without a sign, and its clients go elsewhere."""
WINDOW = 256


class Program:
    """One of them, and what it has printed."""

    def __init__(self, name: str, out: IO[bytes], read: str, addresses: list[str]) -> None:
        self.name = name
        self._out = Path(out.name)
        self._errors = self._out.with_suffix(".errors")
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAMS / f"{name}.py"), read, *addresses],
                stdout=out,
                stderr=errors,
                env=clean_environment(),
            )

    @property
    def got(self) -> list[str]:
        assert self.process.poll() is None, f"{self.name} ended:\n{self._errors.read_text()}"
        return self.said

    @property
    def said(self) -> list[str]:
        """What it printed, whether it still runs or not."""
        # The last line may be half written.
        return self._out.read_text().rpartition("\n")[0].split()

    def has(self, wanted: set[str]) -> bool:
        return wanted <= set(self.got)


class Trial:
    """Three nodes behind proxies, and whoever publishes."""

    settings: Mapping[str, object] = SETTINGS

    def __init__(self, nodes: Nodes, proxies: dict[str, LinkProxy]) -> None:
        self.nodes = nodes
        self.proxies = proxies
        self.losses = 0
        """Connections that a program may have lost, at most."""

    @property
    def addresses(self) -> list[str]:
        return [f"tcp://127.0.0.1:{proxy.port}" for proxy in self.proxies.values()]

    async def start(self, *names: str) -> None:
        await self.nodes.start(*names, settings=self.settings)
        for name in names:
            self.proxies[name].target = int(self.nodes[name].address.rpartition(":")[2])

    async def harm(self, fault: str, name: str) -> None:
        match fault:
            case "cut":
                await self.cut(name)
            case "kill":
                await self.kill(name)
            case "restart":
                await self.restart(name)
            case "drain":
                asked = f"--address={self.nodes[name].address}"
                done = await asyncio.to_thread(run_moor, "drain", name, asked)
                assert done.returncode == 0, done.stderr
                self.losses += 1  # whoever could be elsewhere was sent there
            case "move":
                await self.move(name, "c")
            case "hang":
                await self.stop_for_a_while(name, 3 * KEEPALIVE_MS / 1_000)
                self.losses += 1
            case _:
                await self.stop_for_a_while(name, 1.0)

    async def kill(self, name: str) -> None:
        await asyncio.to_thread(self.nodes[name].kill)
        self.losses += 1
        await self.start(name)

    async def restart(self, name: str) -> None:
        assert await asyncio.to_thread(self.nodes[name].stop) == 0
        self.losses += 1
        await self.start(name)

    async def move(self, home: str, to: str) -> None:
        """The node of that home is empty behind it, and where it was."""
        asked = f"--address={self.nodes[to].address}"
        done = await asyncio.to_thread(run_moor, "home", "move", home, "--to", to, asked)
        assert done.returncode == 0, done.stderr
        self.losses += 1

    async def cut(self, name: str) -> None:
        self.proxies[name].drop()
        self.losses += 1
        await asyncio.sleep(0)
        self.proxies[name].heal()

    async def stop_for_a_while(self, name: str, seconds: float) -> None:
        self.nodes[name].signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.nodes[name].signal(signal.SIGCONT)


@pytest.fixture
async def trial(nodes: Nodes, faults: "Faults") -> AsyncIterator[Trial]:
    async with contextlib.AsyncExitStack() as stack:
        proxies = {name: await stack.enter_async_context(LinkProxy()) for name in NAMES}
        made = Trial(nodes, proxies)
        if faults == HUNG:
            made.settings = SETTINGS | {"keepalive_ms": KEEPALIVE_MS}
        await made.start(*NAMES)
        yield made


@pytest.fixture
def programs(tmp_path: Path) -> Iterator["Starter"]:
    with contextlib.ExitStack() as stack:
        yield Starter(tmp_path, stack)


class Starter:
    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._started = 0

    def start(self, name: str, read: str, addresses: list[str]) -> Program:
        self._started += 1
        out = self._stack.enter_context((self._folder / f"{name}-{self._started}").open("wb"))
        program = Program(name, out, read, addresses)
        self._stack.callback(_end, program.process)
        return program


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait(30)


Faults = tuple[tuple[str, str], ...]
FEW: Faults = (("cut", "a"), ("kill", "a"), ("stop", "b"))
ALL: Faults = (
    *(("cut", "a"), ("kill", "a"), ("stop", "b"), ("restart", "b")),
    *(("cut", "c"), ("restart", "c"), ("restart", "a"), ("kill", "c")),
)
ROLLING: Faults = tuple((step, name) for name in NAMES for step in ("drain", "restart"))
"""As an upgrade of a cluster: one node after the other, while everything is published and read."""
MOVED: Faults = (("move", "a"), ("restart", "a"), ("kill", "c"))
"""The home of the queue, at which everything is published too; then both nodes that had it."""
HUNG: Faults = (("hang", "a"), ("hang", "b"), ("hang", "a"))
"""Nodes that say nothing for so long that whoever is there goes elsewhere, and then go on."""


@pytest.mark.parametrize(
    "faults",
    [
        FEW,
        *(pytest.param(faults, marks=pytest.mark.long) for faults in (ALL, MOVED, ROLLING, HUNG)),
    ],
    ids=["few", "all", "moved", "rolling", "hung"],
)
async def test_every_kind_of_subscription_goes_on_through_faults(
    trial: Trial, programs: Starter, faults: Faults
) -> None:
    addresses = trial.addresses
    async with moorline.connect(addresses) as moor:
        queue = await moor.create_queue()
        plain = programs.start("plain", "trial/#", addresses)
        unacknowledged = programs.start("by_batches", "trial/#", addresses)
        session = programs.start("session", "trial/#", addresses)
        group = [programs.start("plain", "$shared/g/trial/#", addresses) for _ in range(2)]
        pool = [programs.start("plain", "$queue/q/trial/#", addresses) for _ in range(2)]
        reader = programs.start("inbox", str(queue), addresses)
        said: list[str] = []
        sent: list[str] = []

        async def more() -> None:
            """Half of it before a fault, and half while it lasts."""
            for _ in range(PER_STEP):
                number = len(said)
                one = moorline.record(f"trial/{number % TOPICS}", b"%d" % number)
                await moor.publish_all([one], producer="trial", sequence=number)
                said.append(str(number))

        async def send() -> None:
            some = [(queue.id, b"%d" % (len(sent) + place)) for place in range(SENT)]
            sent.extend(body.decode() for _, body in some)
            assert not [one for one in await moor.send_all(some) if not isinstance(one, int)]

        await more()
        await send()
        for fault, name in faults:
            publishing = asyncio.create_task(more())
            await trial.harm(fault, name)
            await publishing
        await until(lambda: reader.has(set(sent)), within_s=WITHIN_S, what="the first of the queue")
        await send()
        alone = (plain, unacknowledged, session)
        for one in alone:
            await until(lambda one=one: one.has(set(said)), within_s=WITHIN_S, what=one.name)  # type: ignore[misc]
        for several in (group, pool):
            await until(
                lambda several=several: set().union(*(one.got for one in several)) >= set(said),  # type: ignore[misc]
                within_s=WITHIN_S,
            )
        await until(lambda: reader.has(set(sent)), within_s=WITHIN_S, what="queue")
        await moor.close()

    assert twice(unacknowledged.got) == 0, "nobody acknowledges, and nothing comes again"
    assert twice(plain.got) <= trial.losses, "what was in hand comes again, and nothing else"
    assert twice(reader.got) <= 2 * trial.losses, "what was in hand, or on its way to be done"
    # Not stored yet: what was acknowledged within some 20 ms, and what was in hand.
    assert twice(session.got) <= WINDOW * trial.losses
    for several in (group, pool):
        got = [one for member in several for one in member.got]
        assert twice(got) <= 2 * WINDOW * trial.losses


def twice(got: list[str]) -> int:
    """How many came that had come before."""
    return sum(count - 1 for count in Counter(got).values())
