"""Live values and their directory, beside NATS core, nats-py and NATS' key-value store.

    python -m bench.values [--quick] [--json]

    updates      one publisher, one subscriber or a hundred: batches of 1,000 values of 16 bytes, in clear, by
                 TLS and by Kerberos; and commits of one, a thousand a second
    publish      so many paths by the library, until the resolver has them; and what each takes there
    resolve      all of them, by the library and by a raw client
    recovery     one of two resolvers has restarted empty, both have, or one has lost 10 paths

Publisher, subscriber, node and peers are processes of their own on loopback, fresh, and take turns; a figure
is the median of all turns. An update counts when the subscriber's program was given it, and none may be lost.
"""

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import trustme

from bench.node import BenchNode
from bench.peers import free_port, installed
from bench.queue_client import cpu_s, rss_mib
from bench.report import Report, run_bench, tell
from bench.value_peers import (
    KeyValueRole,
    NatsPublisherRole,
    NatsPyPublisherRole,
    NatsPySubscriberRole,
    NatsServer,
    NatsSubscriberRole,
    nats_py_folder,
)
from bench.value_roles import AskerRole, PublisherRole, SubscriberRole, Way, now_ns, value_of
from bench.worker import Worker
from moorline.limits import MIB

PATHS = 1_000
"""That are followed; a batch has an update of each."""

MANY = 100
LOST = 10
PER_S = 1_000
NODE_SERVICE = "moorline/127.0.0.1"
PUBLISHER_SERVICE = "publisher/127.0.0.1"
REALM = "MOOR.TEST"


class Plan(msgspec.Struct, frozen=True):
    """How much is done; `--quick` does the same with less."""

    rounds: int
    seconds: float
    singles: int
    paths: int
    ttl_ms: int


FULL = Plan(3, 2.0, 2_000, 1_000_000, 40_000)
QUICK = Plan(1, 0.5, 300, 50_000, 2_000)


class Figures(dict[tuple[str, str], list[float]]):
    """What each case did, turn by turn."""

    def note(self, case: str, metric: str, value: float) -> None:
        self.setdefault((case, metric), []).append(value)
        tell(f"  {case}: {value:,.4g} {metric}")

    def median(self, case: str, metric: str) -> float:
        return statistics.median(self[case, metric])


class Bench:
    """One run."""

    def __init__(self, plan: Plan, report: Report, folder: Path) -> None:
        self.plan = plan
        self.report = report
        self.folder = folder
        self.figures = Figures()

    async def run(self) -> None:
        has_nats = installed("nats-server")
        with contextlib.ExitStack() as stack:
            nodes = await self._nodes(stack)
            ways = dict(self._ways(stack, nodes[0]))
            nats_py = nats_py_folder(self.folder) if has_nats else ""
            for _ in range(self.plan.rounds):
                for way, address in ways.items():
                    await self._updates(way, address, 1)
                if has_nats:
                    await self._nats(1)
                if nats_py:
                    await self._nats_py(nats_py)
                await self._updates(next(iter(ways)), nodes[0].address, MANY)
                if has_nats:
                    await self._nats(MANY)
            self._report_updates([way.name for way in ways], nats=has_nats, nats_py=bool(nats_py))
            await self._directory(nodes, nats=has_nats)

    async def _nodes(self, stack: contextlib.ExitStack) -> list["Restarted"]:
        """Two that know nothing of each other: resolvers never do."""
        nodes = [Restarted(self.folder / f"node-{n}", self.plan.ttl_ms) for n in (1, 2)]
        for node in nodes:
            stack.callback(node.stop)
        await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes))
        return nodes

    def _ways(self, stack: contextlib.ExitStack, node: "Restarted") -> Iterator[tuple[Way, str]]:
        """Each with the address of its resolver."""
        yield Way("clear"), node.address
        authority = trustme.CA()
        ca, shown = self.folder / "ca.pem", self.folder / "publisher.pem"
        authority.cert_pem.write_to_path(str(ca))
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(str(shown))
        yield Way("tls", ca=ca, certificate=shown), node.address
        from tests.kerberos.realm import Realm, missing

        if why := missing():
            tell(f"bench: without Kerberos: {why}")
            return
        realm = stack.enter_context(Realm(self.folder / "realm"))
        os.environ.update(realm.environment)
        address = f"tcp://127.0.0.1:{free_port()}"
        flags = [
            f"--listen={address}",
            f"--set=access.mechanisms=anonymous,gssapi@{address}",
            f"--set=kerberos.keytab={realm.keytab(NODE_SERVICE)}",
            f"--set=kerberos.service={NODE_SERVICE}@{REALM}",
        ]
        with_tickets = stack.enter_context(BenchNode(self.folder / "node-3", flags))
        # Whoever comes from this machine without a proof may do everything there; a ticket nothing yet.
        moor = [sys.executable, "-m", "moorline.cli.main", "grant", "add", "/", f"bench@{REALM}"]
        told = [*moor, "slwpd", f"--address={with_tickets.address}"]
        subprocess.run(told, check=True, stdout=subprocess.DEVNULL)
        way = Way(
            "kerberos",
            service_keytab=realm.keytab(PUBLISHER_SERVICE),
            service=f"{PUBLISHER_SERVICE}@{REALM}",
            keytab=realm.keytab("bench"),
            node_service=f"{NODE_SERVICE}@{REALM}",
        )
        yield way, address

    # --- updates ----------------------------------------------------------------------------------

    async def _updates(self, way: Way, address: str, subscribers: int) -> None:
        case = f"updates 1:{subscribers} {way.name}"
        with Worker(PublisherRole) as publisher, Worker(SubscriberRole) as subscriber:
            await publisher.ask("open", [address], way)
            await publisher.ask("publish", 0, PATHS)
            await subscriber.ask("open", [address], way, PATHS, subscribers)
            await self._flow(case, publisher, subscriber, subscribers)
            if await subscriber.ask("last") != [value_of(2)]:
                raise SystemExit(f"bench: {case}: the last values are not those of the last batch")
            if subscribers == 1:
                await self._singles(case, publisher, subscriber)
            await publisher.ask("close")

    async def _nats(self, subscribers: int) -> None:
        case = f"nats raw 1:{subscribers}"
        server = NatsServer(self.folder)
        try:
            with Worker(NatsPublisherRole) as publisher, Worker(NatsSubscriberRole) as subscriber:
                await publisher.ask("open", server.port)
                await subscriber.ask("open", server.port, subscribers)
                before = cpu_s(server.process.pid)
                updates = await self._flow(case, publisher, subscriber, subscribers)
                used = cpu_s(server.process.pid) - before
                self.figures.note(case, "server_cpu_us", used / updates * 1e6)
                if subscribers == 1:
                    await self._singles(case, publisher, subscriber)
        finally:
            server.kill()

    async def _nats_py(self, where: str) -> None:
        server = NatsServer(self.folder)
        try:
            with (
                Worker(NatsPyPublisherRole) as publisher,
                Worker(NatsPySubscriberRole) as subscriber,
            ):
                await publisher.ask("open", server.port, where)
                await subscriber.ask("open", server.port, where)
                await self._flow("nats-py 1:1", publisher, subscriber, 1)
        finally:
            server.kill()

    async def _flow(
        self, case: str, publisher: Worker, subscriber: Worker, subscribers: int
    ) -> int:
        """Once to warm up, and once that counts; from the first update to the last delivery."""
        _, updates = await publisher.ask("flood", self.plan.seconds / 10, PATHS)
        await subscriber.ask("until", updates * subscribers)
        before = cpu_s(publisher.pid), cpu_s(subscriber.pid)
        began_ns, updates = await publisher.ask("flood", self.plan.seconds, PATHS)
        delivered: int = updates * subscribers
        took_s = (await subscriber.ask("until", delivered) - began_ns) / 1e9
        after = cpu_s(publisher.pid), cpu_s(subscriber.pid)
        self.figures.note(case, "updates_per_s", delivered / took_s)
        for name, was, now in zip(("publisher", "subscriber"), before, after, strict=True):
            self.figures.note(case, f"{name}_cpu_us", (now - was) / delivered * 1e6)
        return delivered

    async def _singles(self, case: str, publisher: Worker, subscriber: Worker) -> None:
        await subscriber.ask("times")
        await publisher.ask("tick", self.plan.singles, PER_S)
        await subscriber.ask("until", self.plan.singles)
        cuts = statistics.quantiles(await subscriber.ask("times"), n=100)
        for metric, place in (("p50_ms", 49), ("p99_ms", 98)):
            self.figures.note(case, metric, cuts[place] / 1e6)

    def _report_updates(self, ways: list[str], *, nats: bool, nats_py: bool) -> None:
        cases = [(f"updates 1:1 {way}", "nats raw 1:1") for way in ways]
        cases.append((f"updates 1:{MANY} clear", f"nats raw 1:{MANY}"))
        compared = {"updates_per_s": "1/s", "p50_ms": "ms", "p99_ms": "ms"}
        for case, peer in cases:
            for metric, unit in compared.items():
                if (case, metric) in self.figures:
                    name = f"single {case}" if unit == "ms" else case
                    self._row(name, case, metric, unit, peer if nats else "", "nats raw")
        for case in [*(case for case, _ in cases), *(peer for _, peer in cases[-2:] if nats)]:
            for metric in ("publisher_cpu_us", "subscriber_cpu_us", "server_cpu_us"):
                if (case, metric) in self.figures:
                    self._row(case, case, metric, "us", "", "")
        if nats_py:
            clear = "updates 1:1 clear"
            self._row(f"{clear} nats-py", clear, "updates_per_s", "1/s", "nats-py 1:1", "nats-py")

    def _row(self, name: str, case: str, metric: str, unit: str, peer: str, shown: str) -> None:
        value = self.figures.median(case, metric)
        if not peer:
            self.report.row(name, metric, value, unit)
            return
        theirs = self.figures.median(peer, metric)
        self.report.row(name, metric, value, unit, peer=shown, peer_value=theirs)

    # --- the directory ----------------------------------------------------------------------------

    async def _directory(self, nodes: list["Restarted"], *, nats: bool) -> None:
        count = self.plan.paths
        peer = await self._key_value() if nats else {}

        def row(case: str, metric: str, value: float, unit: str, found: str) -> None:
            theirs = peer.get(found, 0.0)
            name = "nats kv raw" if theirs else ""
            self.report.row(case, metric, value, unit, peer=name, peer_value=theirs)

        with Worker(PublisherRole) as publisher, Worker(AskerRole) as asker:
            before = rss_mib(nodes[0].pid)
            await publisher.ask("open", [nodes[0].address], Way("clear"))
            took = await publisher.ask("publish", 0, count)
            row("publish", "paths_per_s", count / took, "1/s", "put")
            each = (rss_mib(nodes[0].pid) - before) / count * MIB
            row("publish", "bytes_per_path", each, "B", "memory")
            await asker.ask("open", nodes[0].address)
            cpu = cpu_s(nodes[0].pid)
            took = await asker.ask("resolve_raw", count)
            row("resolve", "paths_per_s", count / took, "1/s", "get")
            used = (cpu_s(nodes[0].pid) - cpu) / count * 1e6
            row("resolve", "node_cpu_us_per_path", used, "us", "get_cpu")
            took = await asker.ask("resolve", count)
            row("resolve library", "paths_per_s", count / took, "1/s", "")
            await publisher.ask("close")
        await self._recovery(nodes)

    async def _key_value(self) -> dict[str, float]:
        """What NATS' key-value store in memory does with as many keys."""
        count = self.plan.paths
        with Worker(KeyValueRole) as store:
            pid = await store.ask("open", str(self.folder / "kv"))
            try:
                before = rss_mib(pid)
                put = count / await store.ask("put", count)
                memory = (rss_mib(pid) - before) / count * MIB
                cpu = cpu_s(pid)
                get = count / await store.ask("get", count)
                get_cpu = (cpu_s(pid) - cpu) / count * 1e6
            finally:
                await store.ask("close")
        return {"put": put, "get": get, "memory": memory, "get_cpu": get_cpu}

    async def _recovery(self, nodes: list["Restarted"]) -> None:
        """Until all is found again behind the moment when a resolver was ready, empty."""
        count = self.plan.paths
        ends = [0, count // 2, count - 1]
        with (
            Worker(PublisherRole) as publisher,
            Worker(AskerRole) as asker,
        ):
            await publisher.ask("open", [node.address for node in nodes], Way("clear"))
            await publisher.ask("publish", 0, count)
            for case, restarted in (("one", nodes[:1]), ("all", nodes)):
                tell(f"recovery: {case}")
                await asyncio.gather(*(asyncio.to_thread(node.stop) for node in restarted))
                before = await publisher.ask("bytes")
                await asyncio.gather(*(asyncio.to_thread(node.start) for node in restarted))
                began_ns = now_ns()
                ended_ns = await publisher.ask("current")
                await asker.ask("open", nodes[0].address)
                if not await asker.ask("are_found", ends):
                    raise SystemExit("bench: a resolver was current and did not have all paths")
                told = await publisher.ask("bytes") - before
                name = f"recovery {case} n={count}"
                self.report.row(name, "recovery_s", (ended_ns - began_ns) / 1e9, "s")
                self.report.row(name, "bytes_per_path", told / len(restarted) / count, "B")
            await self._lost(publisher, asker)

    async def _lost(self, publisher: Worker, asker: Worker) -> None:
        count = self.plan.paths
        lost = [place * (count // LOST) for place in range(LOST)]
        await publisher.ask("lose", lost)
        if await asker.ask("are_found", lost):
            raise SystemExit("bench: nothing was lost")
        before = await publisher.ask("bytes")
        began_ns = now_ns()
        ended_ns = await asker.ask("found_again", lost)
        await publisher.ask("current")
        used = await publisher.ask("bytes") - before
        name = f"lost n={count} d={LOST}"
        self.report.row(name, "bytes", used, "B")
        self.report.row(name, "repair_s", (ended_ns - began_ns) / 1e9, "s")


class Restarted:
    """A node that comes back at its address, with an empty directory."""

    def __init__(self, folder: Path, ttl_ms: int) -> None:
        folder.mkdir()
        self.address = f"tcp://127.0.0.1:{free_port()}"
        flags = [f"--listen={self.address}", f"--set=resolver.ttl_ms={ttl_ms}"]
        self._node = BenchNode(folder, flags)
        self._is_running = False

    @property
    def pid(self) -> int:
        return self._node.pid

    def start(self) -> None:
        self._node.__enter__()
        self._is_running = True

    def stop(self) -> None:
        if self._is_running:
            self._is_running = False
            self._node.__exit__(None, None, None)


async def run(report: Report, folder: Path, quick: bool) -> None:
    await Bench(QUICK if quick else FULL, report, folder).run()


if __name__ == "__main__":
    run_bench("values", __doc__, run)
