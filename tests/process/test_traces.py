"""A collector hears of a message from its publish to its acknowledgement, and nobody waits for it."""

import asyncio
import contextlib
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.mqtt.wire_client import WireClient
from tests.process.nodes import NodeProcess
from tests.sessions.test_pull import Holder

import moorline
from moorline.config.addresses import listen_address
from moorline.net.caller import Caller, open_caller

pytestmark = pytest.mark.process

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP, as JSON."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.spans: list[dict[str, Any]] = []
        self.resources: list[dict[str, str]] = []
        self.came = threading.Condition()
        self.status = 200

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    def until(self, count: int, trace: str = "") -> list[dict[str, Any]]:
        """All spans of a trace, or of all, once there are so many."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.spans if trace in ("", one["traceId"])]

        with self.came:
            assert self.came.wait_for(lambda: len(found()) >= count, 20), self.spans
            return found()


class Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/json")
        with self.server.came:
            for resource in json.loads(body)["resourceSpans"]:
                told = resource["resource"]["attributes"]
                self.server.resources.append(
                    {one["key"]: one["value"]["stringValue"] for one in told}
                )
                self.server.spans += resource["scopeSpans"][0]["spans"]
            self.server.came.notify_all()
        self.send_response(self.server.status)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def running_collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with running_collector() as server:
        yield server


@pytest.fixture(scope="module")
def node(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    flags = (f"--set=trace.endpoint={collector.endpoint}", "--set=trace.one_in=0")
    folder = tmp_path_factory.mktemp("traced") / "data"
    with NodeProcess(folder, "--roles=broker", *flags) as running:
        yield running


def metrics_of(node: NodeProcess) -> str:
    with urllib.request.urlopen(f"{node.http}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


def chain(spans: list[dict[str, Any]], begins_at: str | None = SPAN) -> list[str]:
    """Their steps, from the first to the last; each is the child of the one before."""
    by_parent = {one.get("parentSpanId"): one for one in spans}
    found, parent = [], begins_at
    while (one := by_parent.get(parent)) is not None:
        found.append(one["name"].split()[0])
        assert int(one["startTimeUnixNano"]) <= int(one["endTimeUnixNano"])
        parent = one["spanId"]
    return found


async def test_a_message_is_followed_from_publish_to_ack(
    node: NodeProcess, collector: Collector
) -> None:
    async with moorline.connect(node.address, reconnect=False) as moor:
        subscription = await moor.subscribe("orders/#")
        await moor.publish("orders/eu", b"not traced")
        await moor.publish("orders/eu", b"traced", headers=[("traceparent", PARENT.encode())])
        async for message in subscription:
            await message.ack()
            if message.body == b"traced":
                break
    spans = await asyncio.to_thread(collector.until, 4, TRACE)
    assert chain(spans) == ["publish", "commit", "deliver", "ack"]
    assert {one["name"].split()[1] for one in spans} == {"orders/eu"}
    assert len(collector.spans) == 4
    attributes = {one["key"]: one["value"] for one in spans[0]["attributes"]}
    assert attributes["messaging.destination.name"] == {"stringValue": "orders/eu"}
    assert collector.resources[0]["service.name"] == "moorline"
    assert collector.resources[0]["service.instance.id"] == "node-1"


def test_a_user_property_of_mqtt_says_it_too(node: NodeProcess, collector: Collector) -> None:
    trace = TRACE[::-1]
    with WireClient(node.mqtt, name="traced") as client:
        client.connect()
        user = (("traceparent", PARENT.replace(TRACE, trace)),)
        client.publish("lamps/1", b"on", 1, user=user)
    spans = collector.until(2, trace)
    assert chain(spans) == ["publish", "commit"]


@pytest.fixture(scope="module")
def all_of() -> Iterator[Collector]:
    with running_collector() as server:
        yield server


@pytest.fixture(scope="module")
def telling(all_of: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that tells of every message."""
    flags = (f"--set=trace.endpoint={all_of.endpoint}", "--set=trace.one_in=1")
    with NodeProcess(tmp_path_factory.mktemp("telling") / "data", "--roles=broker", *flags) as one:
        yield one


def of_queue(collector: Collector, queue: str, count: int) -> dict[str, list[dict[str, Any]]]:
    """The spans that are of it, by their traces, once there are so many."""

    def found() -> list[dict[str, Any]]:
        return [one for one in collector.spans if one["name"].endswith(f" {queue[:8]}")]

    with collector.came:
        assert collector.came.wait_for(lambda: len(found()) >= count, 20), collector.spans
    traces: dict[str, list[dict[str, Any]]] = {}
    for one in found():
        traces.setdefault(one["traceId"], []).append(one)
    return traces


async def test_a_message_of_a_queue_is_followed_from_send_to_ack(
    telling: NodeProcess, all_of: Collector
) -> None:
    async with moorline.connect(telling.address, reconnect=False) as moor:
        queue = await moor.create_queue()
        for body in (b"one", b"two", b"three"):
            await moor.send(queue.id, body)
        async for message in queue:
            if await message.ack() == 0:
                break
        name = str(queue)
    traces = await asyncio.to_thread(of_queue, all_of, name, 12)
    assert [chain(spans, None) for spans in traces.values()] == [
        ["send", "commit", "deliver", "ack"]
    ] * 3
    attributes = {
        one["key"]: one["value"] for spans in traces.values() for one in spans[0]["attributes"]
    }
    assert attributes["messaging.destination.name"] == {"stringValue": name[:8]}
    assert name not in json.dumps(all_of.spans), "who knows it may send to it"


async def test_the_head_that_somebody_asks_for_is_delivered_too(
    telling: NodeProcess, all_of: Collector
) -> None:
    async with moorline.connect(telling.address, reconnect=False) as moor:
        queue = await moor.create_queue()
        await moor.send(queue.id, b"asked for")
        await moor.send(queue.id, b"behind it")
        first = await queue.get()
        assert first is not None
        await first.ack()
        second = await queue.get()
        assert second is not None
    traces = await asyncio.to_thread(of_queue, all_of, str(queue), 7)
    assert sorted(chain(spans, None) for spans in traces.values()) == [
        ["send", "commit", "deliver"],
        ["send", "commit", "deliver", "ack"],
    ]


async def test_what_a_member_takes_by_itself_is_delivered_when_it_is_taken(
    telling: NodeProcess, all_of: Collector
) -> None:
    async with moorline.connect(telling.address, reconnect=False) as moor:
        await moor.group("$shared/taking/taken/#").create(start="beginning")
        for number in range(3):
            await moor.publish(f"taken/{number}", b"by itself")
        await moor.publish("passed/over", b"not for this group")
        caller = await open_caller(
            listen_address(telling.address),
            lambda: Caller("test", hello_timeout_ms=5_000, keepalive_ms=60_000),
            timeout_ms=5_000,
        )
        holder = Holder(caller)
        await holder.subscribe("$shared/taking/taken/#")
        taken: set[int] = set()
        async with asyncio.timeout(20):
            while len(taken) < 8:
                ranges = await holder.take_all()
                holder.ack(ranges)
                taken |= holder.feeds.keys()
                await asyncio.sleep(0.01)
        holder.caller.close("DONE", "the test is over")
        await holder.caller.gone

    def ended() -> list[dict[str, Any]]:
        return [one for one in all_of.spans if one["name"].startswith("ack taken/")]

    with all_of.came:
        found = all_of.came.wait_for(lambda: len(ended()) >= 3, 20)
    assert found, all_of.spans
    for end in ended():
        spans = [one for one in all_of.spans if one["traceId"] == end["traceId"]]
        assert chain(spans, None) == ["publish", "commit", "deliver", "ack"]
    passed = [one["name"].split()[0] for one in all_of.spans if one["name"].endswith("passed/over")]
    assert sorted(passed) == ["commit", "publish"]


@pytest.mark.parametrize("how", ["nobody listens", "it hangs", "it refuses"])
async def test_a_dead_collector_slows_nobody_down_and_is_counted(how: str, tmp_path: Path) -> None:
    with running_collector() as collector, socket.create_server(("127.0.0.1", 0)) as hanging:
        place = {"it hangs": hanging.getsockname()[1], "it refuses": collector.server_port}
        port = place.get(how, 1)
        collector.status = 503
        flags = (f"--set=trace.endpoint=http://127.0.0.1:{port}/", "--set=trace.one_in=1")
        with NodeProcess(tmp_path / "data", *flags) as node:
            async with moorline.connect(node.address, reconnect=False) as moor:
                for _ in range(3):
                    await moor.publish("t", b"answered")
                wanted = "moorline_trace_posts_failed_total 1"
                async with asyncio.timeout(20):
                    while wanted not in await asyncio.to_thread(metrics_of, node):
                        await moor.publish("t", b"answered all the same")
                figures = await asyncio.to_thread(metrics_of, node)
    assert "moorline_trace_spans_sent_total 0" in figures
    assert "moorline_trace_spans_dropped_total 0\n" not in figures
