"""What a publisher bounds: writers and makers that hang, floods of writes; what a command must not say."""

import asyncio
from typing import Any

import pytest
from tests.process.nodes import run_moor
from tests.values.world import Values
from tests.waiting import until

from moorline.errors import CallFailed
from moorline.limits import CALLS_IN_FLIGHT_MAX, WRITES_AHEAD_MAX

WRITES = CALLS_IN_FLIGHT_MAX + 500


@pytest.mark.slow
async def test_a_flood_of_writes_is_held_back(values: Values) -> None:
    publisher = await values.publisher()
    go_on = asyncio.Event()

    async def wrote(value: Any, who: str) -> None:  # noqa: ARG001
        await go_on.wait()

    publisher.publish("/w", 0, writer=wrote)
    await publisher.replicated(10)
    subscriber = await values.subscriber(dead_ms=60_000)
    subscription = await subscriber.subscribe("/w")
    writes = [asyncio.create_task(subscription.write(number)) for number in range(WRITES)]

    def answered() -> int:
        return sum(write.done() for write in writes)

    await until(lambda: answered() == WRITES_AHEAD_MAX, "the first are answered")
    follower = next(iter(publisher._sessions._followers.values()))
    await until(lambda: follower.writing > WRITES_AHEAD_MAX, "more are under way")
    assert answered() == WRITES_AHEAD_MAX
    assert follower.writing < WRITES
    go_on.set()
    await asyncio.wait_for(asyncio.gather(*writes), 30)
    await until(lambda: follower.writing == 0, "all are done")


async def test_writers_and_makers_that_hang_are_not_waited_for(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorline.client.values.sessions.WRITER_MS_MAX", 50)
    monkeypatch.setattr("moorline.client.values.sessions.ON_DEMAND_MS_MAX", 50)
    publisher = await values.publisher()

    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    publisher.publish("/h", 0, writer=hang)
    publisher.publish("/odd", 0, writer=lambda *_: object())
    publisher.default("/d", hang)
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    with pytest.raises(CallFailed, match="no word"):
        await (await subscriber.subscribe("/h")).write(1, wants_receipt=True)
    with pytest.raises(CallFailed, match="no value"):
        await (await subscriber.subscribe("/odd")).write(1, wants_receipt=True)
    with pytest.raises(CallFailed):
        await subscriber.subscribe("/d/x")


@pytest.mark.process
async def test_a_command_does_not_say_published_of_what_no_resolver_takes(values: Values) -> None:
    async def publish(path: str, *flags: str) -> tuple[int, str]:
        command = ("value", "publish", path, "1", f"--address={values.server.address}", "--for=3")
        done = await asyncio.to_thread(run_moor, *command, *flags)
        return done.returncode, done.stdout + done.stderr

    code, said = await publish("/nodes/mine")
    assert code == 12, said
    assert "no resolver takes it" in said
    code, said = await publish("/mine", "--advertise=tcp://127.0.0.1:1")
    assert code == 10, said
    assert "no resolver has it" in said
    assert "is published at" not in said
