"""Room: cli. `moor queue`: queues of a running node, made, sent to, read and looked at."""

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from moorline.cli import output
from moorline.cli.bodies import TextCommand, bodies, time_of
from moorline.cli.bodies import text_of as body_text
from moorline.cli.confirming import Yes, confirm
from moorline.cli.endpoint import Endpoint, with_node
from moorline.client.moor import Moor
from moorline.client.queue import Message, Queue
from moorline.errors import CallFailed, Elsewhere, Malformed, NotFound
from moorline.ids import id_of, text_of
from moorline.limits import QUEUE_WINDOW_MAX, QUEUES_PER_PAGE_MAX

app = typer.Typer(
    no_args_is_help=True,
    help="Make, read, write and manage the queues of a node.",
    epilog="Example: moor queue create",
)

SEND_BATCH = 256
"""Lines that are sent together: one commit of the node serves them all."""

READ_BATCH = 64
"""Messages that are printed and then acknowledged together."""

QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", show_default=False, help="Id of the queue.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


@app.command(epilog="Example: moor queue create --count 3")
@with_node
def create(
    endpoint: Endpoint,
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Make queues and print their ids, one a line. You own them."""

    async def work(moor: Moor) -> None:
        for start in range(0, count, SEND_BATCH):
            for queue in await moor.create_queues(min(SEND_BATCH, count - start)):
                name = str(queue)
                output.emit(as_json, {"queue": name}, functools.partial(output.line, name))

    run(endpoint, work)


@app.command(
    cls=TextCommand, epilog="Example: printf 'one\\ntwo\\n' | moor queue send QUEUE - --lines"
)
@with_node
def send(
    endpoint: Endpoint,
    queue: QueueName,
    text: Annotated[
        str | None, typer.Argument(help="The message; - is all of stdin.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Send what this file holds.", show_default=False)
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a message.")] = False,
    as_json: AsJson = False,
) -> None:
    """Store messages in a queue and print their ids, one a line.

    An id is printed when its message is as safe as the node promises (`queues.sync`). A TEXT that looks
    like an option goes behind two dashes: moor queue send QUEUE -- --text
    """
    queue_id = queue_id_of(queue)
    if (text is None) == (file is None):
        raise typer.BadParameter("give the message as TEXT, as --file FILE, or - for stdin")

    async def work(moor: Moor) -> None:
        done = 0
        async for some in bodies(text, file, in_lines=lines):
            for start in range(0, len(some), SEND_BATCH):
                batch = some[start : start + SEND_BATCH]
                done = await _send_batch(
                    moor, queue_id, batch, done, in_lines=lines, as_json=as_json
                )

    run(endpoint, work)


async def _send_batch(
    moor: Moor, queue_id: bytes, batch: list[bytes], done: int, *, in_lines: bool, as_json: bool
) -> int:
    """Sends and prints the ids; the first refusal is the error, when the rest is printed."""
    refusal: CallFailed | None = None
    answers = await moor.send_all([(queue_id, body) for body in batch])
    for place, answer in enumerate(answers, done + 1):
        if not isinstance(answer, CallFailed):
            output.emit(as_json, {"message": answer}, functools.partial(output.line, str(answer)))
        elif refusal is None:
            refusal = type(answer)(f"line {place}: {answer}") if in_lines else answer
    if refusal is not None:
        raise refusal
    return done + len(batch)


@app.command(epilog="Example: moor queue read QUEUE --follow --json")
@with_node
def read(
    endpoint: Endpoint,
    queue: QueueName,
    count: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after that many. Without it: all that wait now."),
    ] = None,
    ack: Annotated[
        bool, typer.Option("--ack/--no-ack", help="Whether what was printed leaves the queue.")
    ] = True,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the messages of a queue, oldest first, and acknowledge them.

    A message is acknowledged after it is printed: whoever stops this may see one again, and misses none.
    Reading more than one message takes the queue over from another reader. With --no-ack at most the
    first 1,024 messages are shown.
    """
    queue_id = queue_id_of(queue)

    async def work(moor: Moor) -> None:
        source = moor.queue(queue_id)
        if count == 1 and not follow:
            message = await source.get()
            if message is not None:
                _show(message, as_json=as_json)
                if ack:
                    await message.ack()
            return
        limit = count
        if not follow:
            limit = min(count or sys.maxsize, (await source.info()).waiting)
        if limit == 0:
            # An operator may look at any queue and read none: who may not read is told, also of nothing.
            await source.get()
            return
        await _read_many(moor, source, limit, ack=ack, follow=follow, as_json=as_json)

    run(endpoint, work)


async def _read_many(
    moor: Moor, source: Queue, limit: int | None, *, ack: bool, follow: bool, as_json: bool
) -> None:
    """Reads up to a limit; acknowledges in batches, or one by one where nobody knows how many come."""
    if not ack and limit is not None:
        limit = min(limit, QUEUE_WINDOW_MAX)
    batch_size = 1 if follow else READ_BATCH
    done = 0
    batch: list[Message] = []
    messages: AsyncIterator[Message] = source.read(QUEUE_WINDOW_MAX if not ack else READ_BATCH)
    async for message in messages:
        _show(message, as_json=as_json)
        done += 1
        batch.append(message)
        if len(batch) >= batch_size or done == limit:
            if ack:
                for refusal in await moor.ack_all(batch):
                    if refusal is not None:
                        raise refusal
            batch = []
        if done == limit:
            return


@app.command("list", epilog="Example: moor queue list --limit 10 --json")
@with_node
def list_(
    endpoint: Endpoint,
    as_json: AsJson = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Stop after that many.", show_default=False)
    ] = None,
) -> None:
    """List all queues of the node with the messages that wait in them. The operator's."""

    async def work(moor: Moor) -> None:
        after, left = b"", limit or sys.maxsize
        if not as_json:
            output.line(f"{'queue':<32}  waiting")
        while left:
            page = (await moor.list_queues(after, min(left, QUEUES_PER_PAGE_MAX))).queues
            for queue_id, waiting in page:
                if as_json:
                    output.emit_json({"queue": text_of(queue_id), "waiting": waiting})
                else:
                    output.line(f"{text_of(queue_id)}  {waiting:>7}")
            if not page:
                return
            after, left = page[-1][0], left - len(page)

    run(endpoint, work)


@app.command(epilog="Example: moor queue show QUEUE --json")
@with_node
def show(endpoint: Endpoint, queue: QueueName, as_json: AsJson = False) -> None:
    """Show one queue: how many wait, who owns it, whether it takes messages."""
    queue_id = queue_id_of(queue)

    async def work(moor: Moor) -> None:
        described = await moor.queue(queue_id).info()
        facts: dict[str, Any] = {
            **{k: v for k, v in msgspec.structs.asdict(described).items() if k != "call"},
            "queue": text_of(described.queue),
        }
        words = {**facts, "created_s": time_of(described.created_s * 1_000_000)}
        words["owner"] = described.owner or "nobody"
        rows = [(_worded(name), value) for name, value in words.items()]
        output.emit(as_json, facts, lambda: output.table(("what", "value"), rows))

    run(endpoint, work)


@app.command(epilog="Example: moor queue delete QUEUE --yes")
@with_node
def delete(endpoint: Endpoint, queue: QueueName, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a queue and all messages in it, for good. The owner's or the operator's."""
    queue_id = queue_id_of(queue)
    confirm(f"Delete {queue} and all messages in it?", yes=yes)
    run(endpoint, lambda moor: moor.queue(queue_id).delete())
    _tell(queue, "deleted", as_json=as_json)


@app.command(epilog="Example: moor queue purge QUEUE --yes")
@with_node
def purge(endpoint: Endpoint, queue: QueueName, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove all messages that wait in a queue, for good; the queue stays. The owner's or the operator's.

    What is sent meanwhile stays. A queue that was full takes messages again.
    """
    queue_id = queue_id_of(queue)
    confirm(f"Remove all messages in {queue}?", yes=yes)
    purged = 0

    async def work(moor: Moor) -> None:
        nonlocal purged
        purged = await moor.queue(queue_id).purge()

    run(endpoint, work)
    facts = {"queue": queue, "purged": purged}
    text = f"{queue} is purged: {output.counted(purged, 'message')}"
    output.emit(as_json, facts, lambda: output.line(text))


@app.command(epilog="Example: moor queue off QUEUE --yes")
@with_node
def off(endpoint: Endpoint, queue: QueueName, yes: Yes = False, as_json: AsJson = False) -> None:
    """Take no more messages in a queue, for good; those that are there can be read. The owner's."""
    queue_id = queue_id_of(queue)
    confirm(f"Take no more messages in {queue}, for good?", yes=yes)
    run(endpoint, lambda moor: moor.queue(queue_id).off())
    _tell(queue, "off", as_json=as_json)


@app.command(epilog="Example: moor queue close QUEUE")
@with_node
def close(endpoint: Endpoint, queue: QueueName, as_json: AsJson = False) -> None:
    """Take messages only from the owner and from those who are granted w. The owner's or the operator's.

    Otherwise whoever knows the id of a queue may send to it. What is there can be read as before.
    """
    queue_id = queue_id_of(queue)
    run(endpoint, lambda moor: moor.queue(queue_id).close())
    _tell(queue, "closed", as_json=as_json)


@app.command("open", epilog="Example: moor queue open QUEUE")
@with_node
def open_(endpoint: Endpoint, queue: QueueName, as_json: AsJson = False) -> None:
    """Take messages from whoever knows the id again. The owner's or the operator's."""
    queue_id = queue_id_of(queue)
    run(endpoint, lambda moor: moor.queue(queue_id).open())
    _tell(queue, "open", as_json=as_json)


@app.command(epilog="Example: moor queue block QUEUE")
@with_node
def block(endpoint: Endpoint, queue: QueueName, as_json: AsJson = False) -> None:
    """Let nothing pass in a queue, neither in nor out. The operator's."""
    queue_id = queue_id_of(queue)
    run(endpoint, lambda moor: moor.queue(queue_id).block())
    _tell(queue, "blocked", as_json=as_json)


@app.command(epilog="Example: moor queue unblock QUEUE")
@with_node
def unblock(endpoint: Endpoint, queue: QueueName, as_json: AsJson = False) -> None:
    """Let a blocked queue go on. The operator's."""
    queue_id = queue_id_of(queue)
    run(endpoint, lambda moor: moor.queue(queue_id).block(blocked=False))
    _tell(queue, "unblocked", as_json=as_json)


# --- what they share ------------------------------------------------------------------------------


def run(endpoint: Endpoint, work: Callable[[Moor], Coroutine[Any, Any, None]]) -> None:
    async def connected() -> None:
        async with endpoint.connect() as moor:
            try:
                await work(moor)
            except Elsewhere:
                raise
            except NotFound as error:
                raise NotFound(f"{error}: moor queue list shows those there are") from error

    asyncio.run(connected())


def queue_id_of(text: str) -> bytes:
    try:
        return id_of(text)
    except Malformed as error:
        raise typer.BadParameter(str(error)) from error


def _show(message: Message, *, as_json: bool) -> None:
    text = body_text(message.body)
    if as_json:
        shown: dict[str, object] = {
            "message": message.id,
            "time_ms": message.time_ms,
            "is_quota_marker": message.is_quota_marker,
            "body": message.body,
        }
        output.emit_json(shown if text is None else {**shown, "text": text})
        return
    if message.is_quota_marker:
        text = "(quota marker: the queue was full, and senders were refused from here on)"
    elif text is None:
        text = f"({len(message.body)} bytes: --json shows them)"
    output.line(f"{message.id}  {time_of(message.time_ms * 1_000)}  {text}")


def _tell(queue: str, state: str, *, as_json: bool) -> None:
    """What became of it: for programs alone, since a person knows what it asked for."""
    if as_json:
        output.emit_json({"queue": queue, "state": state})


def _worded(name: str) -> str:
    return name.removeprefix("is_").removesuffix("_s").replace("_", " ")
