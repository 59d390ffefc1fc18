"""The native protocol on loopback: echo calls a second, one at a time, pipelined, and in batches of 100.

    python -m bench.wire [--quick] [--json]

A node runs in a process of its own, without catalog or disk: what is measured is frames, decoding,
dispatch and sockets. One client, one connection.

The same in batches over TLS and over Kerberos, with the CPU time of both ends for a message; Kerberos has a
real KDC, and is left out where there is none.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import ssl
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import trustme
import uvloop

from bench.report import Report
from moorline import KerberosCredentials
from moorline.client.connecting import connect
from moorline.client.moor import Moor
from moorline.config.addresses import Address
from moorline.limits import HELLO_TIMEOUT_MS, KEEPALIVE_MS
from moorline.net.authentication import Authentication, Exchange, Peer
from moorline.net.kerberos import KerberosExchange, KerberosService
from moorline.net.listener import OPEN_TO_TRANSPORT, Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.net.tls import server_context
from moorline.wire.link import Welcome
from moorline.wire.node import Echo, Echoed

BODY = bytes(100)
LARGE = bytes(16_384)
SERVICE = "moorline/127.0.0.1@MOOR.TEST"


class Way(msgspec.Struct, frozen=True):
    """How the bytes travel: in clear, by TLS, or wrapped by Kerberos."""

    name: str
    files: str = ""
    """The folder with the certificate, or with the keytabs."""


class Tickets:
    """The node's side of Kerberos."""

    def __init__(self, keytab: Path) -> None:
        self._service = KerberosService(keytab, SERVICE)

    def begin(self, mechanism: str, peer: Peer, /) -> Exchange:  # noqa: ARG002
        return KerberosExchange(self._service, lambda name: name)


def node(way: Way, port_out: "multiprocessing.connection.Connection[int, None]") -> None:
    async def run() -> None:
        def echo(session: Session, calls: list[Echo]) -> list[Echoed]:  # noqa: ARG001
            return [Echoed(call.call, call.body) for call in calls]

        protocol = NativeProtocol(
            {Echo: echo},
            lambda version, keepalive_ms: Welcome(version, "bench", keepalive_ms=keepalive_ms),
        )
        listeners = Listeners(
            Admission("loopback", 100, HELLO_TIMEOUT_MS, KEEPALIVE_MS),
        )
        tls: ssl.SSLContext | None = None
        demanded = OPEN_TO_TRANSPORT
        if way.name == "tls":
            tls = server_context(f"{way.files}/node.pem", f"{way.files}/node.pem", "")
        if way.name == "kerberos":
            tickets = Tickets(Path(way.files, "moorline_127.0.0.1.keytab"))
            demanded = Authentication(("gssapi",), tickets)
        wanted = Address("tls" if tls else "tcp", "127.0.0.1", 0)
        (address,) = await listeners.open(wanted, tls, protocol, demanded)
        port_out.send(address.port)
        await asyncio.Event().wait()

    uvloop.run(run())


@contextlib.contextmanager
def running(way: Way) -> Iterator[tuple[str, int]]:
    """The address of a node, and the number of its process."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=node, args=(way, there), daemon=True
    )
    process.start()
    try:
        scheme = "tls" if way.name == "tls" else "tcp"
        assert process.pid is not None
        yield f"{scheme}://127.0.0.1:{here.recv()}", process.pid
    finally:
        process.kill()
        process.join()


async def one_at_a_time(moor: Moor, seconds: float) -> float:
    done, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        await moor.echo(BODY)
        done += 1
    return done / seconds


async def in_batches(
    moor: Moor, seconds: float, size: int, at_once: int, body: bytes = BODY
) -> float:
    bodies = [body] * size
    done, started = 0, time.perf_counter()
    end = started + seconds

    async def worker() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await moor.echo_all(bodies)
            done += size

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return done / (time.perf_counter() - started)


def cpu_s(process: int) -> float:
    """What a process and this one have used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + time.process_time()


async def measure(address: str, seconds: float, report: Report) -> None:
    async with connect(address) as moor:
        single = await one_at_a_time(moor, seconds)
        pipelined = await in_batches(moor, seconds, size=1, at_once=64)
        batched = await in_batches(moor, seconds, size=100, at_once=16)
    report.row("single", "messages_per_s", single, "1/s")
    report.row("single pipelined 64", "messages_per_s", pipelined, "1/s")
    report.row("batched 100", "messages_per_s", batched, "1/s")


Costs = dict[str, float]
"""Microseconds of CPU of both ends, by what was sent."""


async def cost(way: Way, address: str, process: int, seconds: float) -> tuple[float, Costs]:
    """Messages a second in batches, and what one costs."""
    ca = Path(way.files, "ca.pem") if way.name == "tls" else None
    credentials = None
    if way.name == "kerberos":
        keytab = Path(way.files, "bench.keytab")
        credentials = KerberosCredentials(keytab=keytab, service=SERVICE)
    costs: Costs = {}
    per_s = 0.0
    async with connect(address, ca=ca, credentials=credentials) as moor:
        for name, body, size in (("100 B", BODY, 100), ("16 KiB", LARGE, 16)):
            await in_batches(moor, 0.2, size, 4, body)
            before_s, started = cpu_s(process), time.perf_counter()
            found = await in_batches(moor, seconds, size, 16 if body is BODY else 4, body)
            messages = found * (time.perf_counter() - started)
            costs[name] = (cpu_s(process) - before_s) / messages * 1e6
            per_s = found if body is BODY else per_s
    return per_s, costs


def compare(seconds: float, folder: Path, report: Report) -> None:
    """The ways beside each other, each against the one in clear."""
    clear: Costs = {}
    with contextlib.ExitStack() as stack:
        for way in ways(folder, stack):
            with running(way) as (address, process):
                per_s, costs = uvloop.run(cost(way, address, process, seconds))
            clear = clear or costs
            report.row(f"batched 100 {way.name}", "messages_per_s", per_s, "1/s")
            for name, microseconds in costs.items():
                peer = {"peer": "tcp", "peer_value": clear[name]} if way.name != "tcp" else {}
                report.row(f"{name} {way.name}", "cpu_of_both_us", microseconds, "us", **peer)  # type: ignore[arg-type]


def ways(folder: Path, stack: contextlib.ExitStack) -> Iterator[Way]:
    yield Way("tcp")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        folder / "node.pem"
    )
    yield Way("tls", str(folder))
    from tests.kerberos.realm import Realm, missing

    if why := missing():
        print(f"without Kerberos: {why}", flush=True)
        return
    realm = stack.enter_context(Realm(folder / "realm"))
    realm.keytab("moorline/127.0.0.1")
    realm.keytab("bench")
    os.environ.update(realm.environment)
    yield Way("kerberos", str(realm.folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="done within 50 s")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    seconds = 2.0 if options.quick else 8.0
    with Report("wire", as_json=options.json) as report:
        with running(Way("tcp")) as (address, _):
            uvloop.run(measure(address, seconds, report))
        with tempfile.TemporaryDirectory() as folder:
            compare(seconds / 2, Path(folder), report)


if __name__ == "__main__":
    main()
