"""Room: cli. `moor value`: live values published, read, watched and written back."""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from moorline.cli import output
from moorline.cli.asking import AsJson
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.named_errors import naming_errors
from moorline.core.directory.path import check_path
from moorline.errors import BadValue, CallFailed, ConfigError, MoorlineError, Unreachable

if TYPE_CHECKING:
    # Below they are imported where they are used: the help of `moor` needs none of them.
    from moorline.client.values.publisher import PublishedValue, Publisher
    from moorline.client.values.subscriber import Subscriber
    from moorline.client.values.subscription import ValueEvent, ValueSubscription

app = typer.Typer(
    no_args_is_help=True,
    help="Publish live values, read them, watch them, and write back.",
    epilog="Example: moor value get /oslo/temperature",
)

LINE_CHARACTERS_MAX = 1_000_000
DEAD = "dead"
"""What `Kind.DEAD` is called in JSON."""

PathText = Annotated[str, typer.Argument(show_default=False, help="Path, as /oslo/temperature.")]
PathTexts = Annotated[
    list[str], typer.Argument(show_default=False, help="Paths, as /oslo/temperature.")
]
ValueText = Annotated[
    str,
    typer.Argument(
        show_default=False, help="JSON, as 4.5, true or '[1, 2]'; anything else is text."
    ),
]
AsText = Annotated[bool, typer.Option("--text", help="Take it as text, whatever it looks like.")]
TimeoutS = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for a value.")]
ForS = Annotated[
    float | None,
    typer.Option(
        "--for", min=0.0, help="Seconds to go on; without it, until ^C.", show_default=False
    ),
]


@app.command(
    epilog="Examples: moor value publish /oslo/temperature 4.5 --for 60; moor value publish /oslo/wind 7 "
    "--keytab me.keytab --publisher-keytab me.keytab --publisher-service publisher/host@REALM"
)
@with_node
@naming_errors
def publish(
    endpoint: Endpoint,
    path: PathText,
    value: Annotated[
        str,
        typer.Argument(
            show_default=False,
            help="JSON, or text; - reads values from stdin, one a line, and publishes each.",
        ),
    ],
    text: AsText = False,
    listen: Annotated[
        str, typer.Option(help="Where subscribers come to; port 0 is a free one.")
    ] = "tcp://127.0.0.1:0",
    advertise: Annotated[
        str, typer.Option(help="What they are told, if that is another.", show_default=False)
    ] = "",
    publisher_keytab: Annotated[
        Path | None,
        typer.Option(
            help="Keys of --publisher-service: subscribers prove themselves by Kerberos, and by nothing "
            "else.",
            show_default=False,
        ),
    ] = None,
    publisher_service: Annotated[
        str,
        typer.Option(
            help="The principal that subscribers get tickets for, as publisher/HOST@REALM.",
            show_default=False,
        ),
    ] = "",
    writable: Annotated[
        bool, typer.Option("--writable", help="Take values back, and print them.")
    ] = False,
    for_s: ForS = None,
    as_json: AsJson = False,
) -> None:
    """Publish a value under a path, for as long as this command runs.

    With - the values are the lines of stdin, and the command goes on behind the last one, until ^C or the end
    of --for. What subscribers write back (--writable) becomes the value, and is printed.

    With Kerberos there are two names: --keytab or --ccache say who we are at the resolvers, and
    --publisher-keytab with --publisher-service who we are to our subscribers.
    """
    check_path(path)
    if bool(publisher_keytab) != bool(publisher_service):
        raise ConfigError(
            "--publisher-keytab and --publisher-service go together: whose keys are they?"
        )

    async def work() -> None:
        from moorline.client.values.publisher import Publisher

        proof = endpoint.proof()
        publisher = Publisher(
            endpoint.address,
            listen=listen,
            advertise=advertise,
            keytab=publisher_keytab,
            service=publisher_service,
            proof=proof,
            ca=endpoint.ca,
            certificate=endpoint.certificate,
            key=endpoint.key,
        )
        async with publisher:
            made: list[PublishedValue] = []

            async def wrote(new: Any, who: str) -> None:
                made[0].update(new)
                await publisher.commit()
                _show_written(path, new, who, as_json=as_json)

            first = None if value == "-" else _value_of(value, text=text)
            made.append(publisher.publish(path, first, writer=wrote if writable else None))
            members = await publisher.replicated(min(30.0, for_s or 30.0))
            _check_published(path, publisher)
            _show_published(path, publisher.address, members, as_json=as_json)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(for_s):
                    if value == "-":
                        await _publish_lines(publisher, made[0], text=text)
                    await asyncio.Event().wait()

    _run(work, endpoint)


def _check_published(path: str, publisher: "Publisher") -> None:
    """Refuses to say that something is published which no resolver has."""
    if any(member.is_current and not member.refused for member in publisher.members):
        return
    code = publisher.refused().get(path)
    if code is not None:
        raise CallFailed.of(code, f"{path}: no resolver takes it from us ({code})")
    if (failure := publisher.failure()) is not None:
        raise failure
    whys = "; ".join(f"{one.address}: {one.why or one.state}" for one in publisher.members)
    raise Unreachable(f"{path}: no resolver has it: {whys}")


async def _publish_lines(publisher: "Publisher", value: "PublishedValue", *, text: bool) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline, LINE_CHARACTERS_MAX):
        value.update(_value_of(line.rstrip("\n"), text=text))
        await publisher.commit()


@app.command(epilog="Example: moor value get /oslo/temperature /oslo/wind --json")
@with_node
@naming_errors
def get(
    endpoint: Endpoint, paths: PathTexts, timeout_s: TimeoutS = 15.0, as_json: AsJson = False
) -> None:
    """Print the values of paths as they are now. One that fails fails the command, and not the others."""

    async def work() -> None:
        async with _subscriber(endpoint) as subscriber, asyncio.timeout(timeout_s):
            found = await subscriber.subscribe_all(paths)
            _show_values(paths, found, as_json=as_json)
            for one in found:
                if isinstance(one, MoorlineError):
                    raise one

    _run(work, endpoint, timeout_s)


@app.command(epilog="Example: moor value watch /oslo/temperature --json")
@with_node
@naming_errors
def watch(
    endpoint: Endpoint,
    paths: PathTexts,
    count: Annotated[
        int | None, typer.Option(min=1, help="End behind so many values.", show_default=False)
    ] = None,
    conflate: Annotated[
        bool, typer.Option("--conflate", help="If we are slow, the latest value is enough.")
    ] = False,
    for_s: ForS = None,
    as_json: AsJson = False,
) -> None:
    """Print values as they change, from whichever publisher has them; what is lost is looked for again."""
    for path in paths:
        check_path(path)

    async def follow(one: "ValueSubscription", seen: list[None], done: asyncio.Event) -> None:
        async for event in one:
            _show_event(one, event, as_json=as_json)
            if event.kind.value != DEAD:
                seen.append(None)
                if count is not None and len(seen) >= count:
                    done.set()
                    return

    async def work() -> None:
        seen: list[None] = []
        done = asyncio.Event()
        async with _subscriber(endpoint, conflate=conflate) as subscriber:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(for_s), asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(follow(subscriber.durable_subscribe(path), seen, done))
                        for path in paths
                    ]
                    await done.wait()
                    for task in tasks:
                        task.cancel()

    _run(work, endpoint)


@app.command(epilog="Example: moor value write /oslo/heating true --receipt")
@with_node
@naming_errors
def write(
    endpoint: Endpoint,
    path: PathText,
    value: ValueText,
    text: AsText = False,
    receipt: Annotated[
        bool, typer.Option("--receipt", help="Wait for what the publisher says to it.")
    ] = False,
    timeout_s: TimeoutS = 15.0,
    as_json: AsJson = False,
) -> None:
    """Write a value back to its publisher, if it takes that and we may."""

    async def work() -> None:
        async with _subscriber(endpoint) as subscriber, asyncio.timeout(timeout_s):
            subscription = await subscriber.subscribe(path)
            said = await subscription.write(_value_of(value, text=text), wants_receipt=receipt)
            facts = {"path": path, "receipt": said} if receipt else {"path": path}
            output.emit(
                as_json, facts, lambda: output.line(_text_of(said) if receipt else "written")
            )

    _run(work, endpoint, timeout_s)


# --- inside ---------------------------------------------------------------------------------------


def _subscriber(endpoint: Endpoint, *, conflate: bool = False) -> "Subscriber":
    from moorline.client.values.subscriber import Subscriber

    return Subscriber(
        endpoint.address,
        proof=endpoint.proof(),
        ca=endpoint.ca,
        certificate=endpoint.certificate,
        key=endpoint.key,
        conflate=conflate,
    )


def _run(work: Any, endpoint: Endpoint, timeout_s: float | None = None) -> None:
    async def whole() -> None:
        try:
            await work()
        except TimeoutError as error:
            within = "in time" if timeout_s is None else f"within {timeout_s:g} s"
            raise Unreachable(
                f"{endpoint.address}: no answer {within}: a resolver or the publisher hangs; to hear which "
                "of them, give more time with --timeout"
            ) from error

    asyncio.run(whole())


def _value_of(given: str, *, text: bool) -> Any:
    if text:
        return given
    try:
        return msgspec.json.decode(given)
    except msgspec.DecodeError:
        if given[:1] in "[{":
            # Meant as JSON, and a text with a bracket lost would be the wrong thing done well.
            raise BadValue(f"{given[:80]!r} is no JSON: mend it, or give --text") from None
        return given


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _show_published(path: str, address: str, members: Sequence[Any], *, as_json: bool) -> None:
    facts = {
        "path": path,
        "address": address,
        "resolvers": [
            {"address": one.address, "is_current": one.is_current, "why": one.why}
            for one in members
        ],
    }

    def show() -> None:
        output.line(f"{path} is published at {address}")
        for one in members:
            if not one.is_current:
                output.line(f"not yet at the resolver {one.address}: {one.why or one.state}")

    output.emit(as_json, facts, show)


def _show_written(path: str, value: Any, who: str, *, as_json: bool) -> None:
    facts = {"path": path, "value": value, "by": who}
    output.emit(as_json, facts, lambda: output.line(f"{who} wrote {_text_of(value)}"))


def _show_values(
    paths: Sequence[str], found: "Sequence[ValueSubscription | MoorlineError]", *, as_json: bool
) -> None:
    if as_json:
        for path, one in zip(paths, found, strict=True):
            if isinstance(one, MoorlineError):
                row = {
                    "path": path,
                    "error": type(one).__name__,
                    "code": one.code,
                    "text": str(one),
                }
                output.emit_json(row)
            else:
                output.emit_json({"path": path, "value": one.value})
        return
    if len(paths) == 1:
        (one,) = found
        if not isinstance(one, MoorlineError):
            output.line(_text_of(one.value))
        return
    output.table(
        ("path", "value", "error"),
        [
            (path, None, type(one).__name__)
            if isinstance(one, MoorlineError)
            else (path, _text_of(one.value), None)
            for path, one in zip(paths, found, strict=True)
        ],
    )


def _show_event(one: "ValueSubscription", event: "ValueEvent", *, as_json: bool) -> None:
    facts = {"path": one.path, "event": event.kind.value}
    if event.kind.value == DEAD:
        facts["why"] = event.why
    else:
        facts |= {"value": event.value}
    said = f"({event.why})" if event.kind.value == DEAD else _text_of(event.value)
    output.emit(as_json, facts, lambda: output.line(f"{one.path} {said}"))
