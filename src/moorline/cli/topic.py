"""Room: cli. `moor topic`: messages published and followed, and the streams that a node keeps them in."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer
import xxhash

from moorline.cli import output
from moorline.cli.bodies import TextCommand, bodies, text_of, time_of
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.publishing import (
    Template,
    bytes_of,
    headers_of,
    publish_lines,
    show_stored,
)
from moorline.cli.start import HELP, start_of
from moorline.client.moor import Moor
from moorline.client.topic import Subscription, TopicMessage
from moorline.core.topic import check_filter, check_topic, shared_name
from moorline.limits import (
    LOSSES_LOOK_MS,
    PRODUCER_LENGTH_MAX,
    SEQUENCE_FIRST_MAX,
    TOPIC_KEY_BYTES_MAX,
    TOPIC_WINDOW,
    TOPICS_PER_PAGE_MAX,
    TTL_S_MAX,
)
from moorline.wire.topic import StreamFacts

app = typer.Typer(
    no_args_is_help=True,
    help="Publish to topics, follow them, and see the streams that a node keeps them in.",
    epilog="Example: moor topic publish orders/eu 'ahoy'",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]
KeyText = Annotated[
    str | None,
    typer.Option(
        "--message-key",
        "-k",
        help="Messages of one key stay in order; without it, those of one topic.",
        show_default=False,
    ),
]
HeaderTexts = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="May be given again and again."),
]
Producer = Annotated[
    str,
    typer.Option(
        help="A name for this publisher; what it tries again is stored once.", show_default=False
    ),
]
Sequence = Annotated[
    int | None,
    typer.Option(
        min=0, max=SEQUENCE_FIRST_MAX, help="Number of the first message.", show_default=False
    ),
]


@app.command(
    cls=TextCommand,
    epilog="Example: seq 100000 | moor topic publish orders/eu - --lines --message-key 42",
)
@with_node
def publish(
    endpoint: Endpoint,
    topic: Annotated[str, typer.Argument(show_default=False, help="Topic, as orders/eu.")],
    text: Annotated[
        str | None, typer.Argument(help="The message; - is all of stdin.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Publish what this file holds.", show_default=False),
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a message.")] = False,
    key_text: KeyText = None,
    header: HeaderTexts = None,
    ttl_s: Annotated[
        int, typer.Option("--ttl", min=0, max=TTL_S_MAX, help="Seconds to live; 0 is for ever.")
    ] = 0,
    retain: Annotated[
        bool, typer.Option("--retain", help="New subscribers get it as the topic's last message.")
    ] = False,
    tombstone: Annotated[
        bool,
        typer.Option("--tombstone", help="Say that nothing is under the key any more: no message."),
    ] = False,
    producer: Producer = "",
    sequence: Sequence = None,
    as_json: AsJson = False,
) -> None:
    """Store messages and print where: the shard, and the offset in it.

    With --lines the number of messages is printed at the end. It ends when they are as safe as the node
    promises (`streams.sync`). Give --producer and --sequence together: a command that is repeated with both
    stores nothing twice. A TEXT that looks like an option goes behind two dashes.
    """
    if tombstone and (lines or text is not None or file is not None):
        raise typer.BadParameter("a tombstone has no message: leave TEXT, --file and --lines out")
    if not tombstone and (text is None) == (file is None):
        raise typer.BadParameter("give the message as TEXT, as --file FILE, or - for stdin")
    if bool(producer) != (sequence is not None) or len(producer) > PRODUCER_LENGTH_MAX:
        raise typer.BadParameter(
            f"--producer, a name of at most {PRODUCER_LENGTH_MAX} characters, and --sequence go together"
        )
    check_topic(topic)
    key = None if key_text is None else bytes_of(key_text)
    if key is not None and len(key) > TOPIC_KEY_BYTES_MAX:
        raise typer.BadParameter(f"a key has at most {TOPIC_KEY_BYTES_MAX} bytes")
    template = Template(topic, key, headers_of(header or []), ttl_s, retain)

    async def one(moor: Moor, body: bytes | None) -> None:
        records = [template.record(body)]
        (stored,) = await moor.publish_all(records, producer=producer, sequence=sequence or 0)
        show_stored(stored, as_json=as_json)

    async def work(moor: Moor) -> None:
        if tombstone:
            await one(moor, None)
            return
        source = bodies(text, file, in_lines=lines)
        if lines:
            await publish_lines(moor, source, template, producer, sequence or 0, as_json=as_json)
            return
        async for (body,) in source:
            await one(moor, body)

    run(endpoint, work)


@app.command(epilog="Example: moor topic tail 'orders/#' --start beginning --count 10")
@with_node
def tail(
    endpoint: Endpoint,
    filter_text: Annotated[
        str,
        typer.Argument(
            metavar="FILTER", show_default=False, help="+ is one level, # is all that follow."
        ),
    ],
    start: Annotated[str, typer.Option(help=HELP)] = "now",
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop after that many.", show_default=False)
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Take part in this group in place of reading alone; it moves on.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print messages as they come, until Ctrl-C: time, topic, key and body.

    Nobody else misses what is read here, unless it is read with --group: then a message is done with for the
    group when it is printed. A name as '$shared/GROUP/FILTER' may stand in place of FILTER too; without the
    single quotes the shell takes $shared for a variable. Messages that were lost are told on stderr.
    """
    begin = start_of(start)
    if group is not None and "/" in group:
        raise typer.BadParameter("--group is a name without /, as billing")
    wanted = filter_text if group is None else f"$shared/{group}/{filter_text}"
    if shared_name(wanted) is None:
        check_filter(wanted)

    async def work(moor: Moor) -> None:
        window = TOPIC_WINDOW if count is None else min(count, TOPIC_WINDOW)
        subscription = await moor.subscribe(wanted, start=begin, window=window)
        losses = _Losses(subscription)
        watching = asyncio.create_task(losses.watch())
        try:
            done = 0
            async for message in subscription:
                _show(message, as_json=as_json)
                await message.ack()
                done += 1
                if done == count:
                    return
        finally:
            watching.cancel()
            losses.tell()  # those of the last moment

    run(endpoint, work)


class _Losses:
    """Tells of each range that was lost, once."""

    def __init__(self, subscription: Subscription) -> None:
        self._lost = subscription.lost
        self._told = 0

    async def watch(self) -> None:
        while True:
            self.tell()
            await asyncio.sleep(LOSSES_LOOK_MS / 1_000)

    def tell(self) -> None:
        news, self._told = self._lost[self._told :], len(self._lost)
        for lost in news:
            many = f"{lost.count:,}" if lost.is_exact else f"at most {lost.count:,}"
            where = f"{lost.shard}, from {lost.first} on"
            output.error(f"messages lost: {many} of {where}: {lost.reason}")


def _show(message: TopicMessage, *, as_json: bool) -> None:
    text = "(tombstone)" if message.is_tombstone else text_of(message.body)
    key = None if message.key is None else text_of(message.key) or message.key.hex()
    if not as_json:
        body = f"({len(message.body)} bytes: --json shows them)" if text is None else text
        output.line(f"{time_of(message.time_us)}  {message.topic}  {key or '-'}  {body}")
        return
    stream = message.stream
    facts: dict[str, object] = {
        "topic": message.topic,
        "time_us": message.time_us,
        "stream": None if stream is None else str(stream),
        "offset": message.offset,
        "deliveries": message.deliveries,
        "is_retained": message.is_retained,
        "key": message.key,
        "headers": message.headers,
        "body": None if message.is_tombstone else message.body,
    }
    has_text = text is not None and not message.is_tombstone
    output.emit_json({**facts, "text": text} if has_text else facts)


@app.command("list", epilog="Example: moor topic list 'orders/#' --limit 10")
@with_node
def list_(
    endpoint: Endpoint,
    filter_text: Annotated[
        str, typer.Argument(metavar="[FILTER]", show_default=False, help="Only those that match.")
    ] = "#",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Stop after that many.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the topics that the node has messages of, with their number.

    Without a FILTER those that begin with $ are left out: '$dead/#' lists the dead letters.
    """

    check_filter(filter_text)

    async def work(moor: Moor) -> None:
        if not as_json:
            output.line("messages  topic")
        after, left = "", limit or sys.maxsize
        while left:
            page = await moor.topics(filter_text, after, min(left, TOPICS_PER_PAGE_MAX))
            for topic, messages in page:
                if as_json:
                    output.emit_json({"topic": topic, "messages": messages})
                else:
                    output.line(f"{messages:>8}  {topic}")
            if not page:
                return
            after, left = page[-1][0], left - len(page)

    run(endpoint, work)


@app.command(epilog="Example: moor topic show orders/eu --json")
@with_node
def show(
    endpoint: Endpoint,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", show_default=False, help="Only this topic's shard."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the streams of the node: their messages, bytes and times, and the digests of the sealed ones.

    With a TOPIC: how many messages it has, and the streams of the shard that it goes to without a key.
    """

    if topic is not None:
        check_topic(topic)

    async def work(moor: Moor) -> None:
        told = await moor.streams()
        streams = told.streams
        facts: dict[str, Any] = {}
        if topic is not None:
            shard = _shard_of(topic, streams)
            streams = [one for one in streams if one.shard == shard]
            found = await moor.topics(topic, count=1)
            facts = {"topic": topic, "topic_messages": found[0][1] if found else 0, "shard": shard}
        rows = [_stream_facts(one) for one in streams]
        facts |= {
            "messages": sum(row["messages"] for row in rows),
            "bytes": sum(row["bytes"] for row in rows),
        }
        if topic is None:
            facts |= {"dropped": told.dropped_messages, "lost": told.lost_messages}
        output.emit(as_json, facts | {"streams": rows}, lambda: _show_streams(facts, rows))

    run(endpoint, work)


def _shard_of(topic: str, streams: list[StreamFacts]) -> int:
    """Where its messages without a key go now: every shard in use has a stream that grows."""
    shards = len({one.shard for one in streams if not one.is_sealed})
    return xxhash.xxh3_64_intdigest(topic.encode()) % max(1, shards)


def _stream_facts(one: StreamFacts) -> dict[str, Any]:
    return {
        "stream": f"{one.node}/{one.shard}/{one.generation}",
        "first": one.first,
        "end": one.end,
        "messages": one.end - one.first,
        "bytes": one.size_bytes,
        "first_time_us": one.first_time_us if one.end > one.first else None,
        "last_time_us": one.last_time_us if one.end > one.first else None,
        "is_sealed": one.is_sealed,
        "digest": one.digest.hex() or None,
    }


def _show_streams(facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    if rows:
        shown = [
            [
                time_of(value) if name.endswith("time_us") and value is not None else value
                for name, value in row.items()
            ]
            for row in rows
        ]
        output.table([_worded(name) for name in rows[0]], shown)
        output.line("")
    output.table(("what", "value"), [(_worded(name), value) for name, value in facts.items()])


def _worded(name: str) -> str:
    return name.removeprefix("is_").removesuffix("_us").replace("_", " ")


def run(endpoint: Endpoint, work: Callable[[Moor], Coroutine[Any, Any, None]]) -> None:
    async def connected() -> None:
        async with endpoint.connect() as moor:
            await work(moor)

    asyncio.run(connected())
