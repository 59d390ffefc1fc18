"""The native protocol on loopback: echo calls a second, one at a time, pipelined, and in batches of 100.

    python -m bench.wire [--quick] [--json]

A node runs in a process of its own, without catalog or disk: what is measured is frames, decoding,
dispatch and sockets. One client, one connection.
"""

import argparse
import asyncio
import multiprocessing
import multiprocessing.connection
import time

import uvloop

from bench.report import Report
from moorline.client.moor import Moor, connect
from moorline.config.addresses import Address
from moorline.limits import HELLO_TIMEOUT_MS, KEEPALIVE_MS
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.wire.link import Welcome
from moorline.wire.node import Echo, Echoed

BODY = bytes(100)


def node(port_out: "multiprocessing.connection.Connection[int, None]") -> None:
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
        (address,) = await listeners.open(Address("tcp", "127.0.0.1", 0), None, protocol)
        port_out.send(address.port)
        await asyncio.Event().wait()

    uvloop.run(run())


async def one_at_a_time(moor: Moor, seconds: float) -> float:
    done, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        await moor.echo(BODY)
        done += 1
    return done / seconds


async def in_batches(moor: Moor, seconds: float, size: int, at_once: int) -> float:
    bodies = [BODY] * size
    done, started = 0, time.perf_counter()
    end = started + seconds

    async def worker() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await moor.echo_all(bodies)
            done += size

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return done / (time.perf_counter() - started)


async def measure(port: int, seconds: float, report: Report) -> None:
    async with connect(f"tcp://127.0.0.1:{port}") as moor:
        single = await one_at_a_time(moor, seconds)
        pipelined = await in_batches(moor, seconds, size=1, at_once=64)
        batched = await in_batches(moor, seconds, size=100, at_once=16)
    report.row("single", "messages_per_s", single, "1/s")
    report.row("single pipelined 64", "messages_per_s", pipelined, "1/s")
    report.row("batched 100", "messages_per_s", batched, "1/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="done within 50 s")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=node, args=(there,), daemon=True)
    process.start()
    try:
        with Report("wire", as_json=options.json) as report:
            uvloop.run(measure(here.recv(), 2.0 if options.quick else 8.0, report))
    finally:
        process.kill()
        process.join()


if __name__ == "__main__":
    main()
