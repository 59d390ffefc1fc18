"""Values that do not fit one answer together: they come all the same, each once, and with every update."""

from typing import Any

import pytest
from tests.values.world import Values
from tests.waiting import until

from moorline.client.values.frames import check_length, size_of
from moorline.client.values.subscription import ValueSubscription
from moorline.errors import BadValue
from moorline.limits import FRAME_BYTES_MAX, KIB, VALUE_ROOM_BYTES
from moorline.wire.frame import frame
from moorline.wire.value import SubscribedValue, ValuesSubscribed

COUNT, LARGE = 100, 60_000


async def subscribed(values: Values, paths: list[str]) -> list[ValueSubscription]:
    found = await (await values.subscriber()).subscribe_all(paths)
    assert [one for one in found if isinstance(one, Exception)] == []
    return [one for one in found if isinstance(one, ValueSubscription)]


async def test_large_values_come_in_several_answers(values: Values) -> None:
    publisher = await values.publisher()
    made = publisher.publish_all((f"/l/{number}", b"a" * LARGE) for number in range(COUNT))
    await publisher.replicated(10)
    found = await subscribed(values, [value.path for value in made])
    assert [one.value for one in found] == [b"a" * LARGE] * COUNT
    assert all(value.subscribers == 1 for value in made)
    publisher.update_all([value.id for value in made], [b"b" * LARGE] * COUNT)
    assert await publisher.commit(10) == 1
    await until(lambda: all(one.value == b"b" * LARGE for one in found), "the updates of all")


async def test_the_largest_value_comes_beside_very_many_small_ones(values: Values) -> None:
    publisher = await values.publisher()
    largest = bytes(FRAME_BYTES_MAX - VALUE_ROOM_BYTES - KIB)
    publisher.publish_all(
        (f"/l/{number}", largest if number == 7 else number) for number in range(3_000)
    )
    await publisher.replicated(10)
    found = await subscribed(values, [f"/l/{number}" for number in range(3_000)])
    assert [one.value for one in found] == [
        largest if number == 7 else number for number in range(3_000)
    ]
    with pytest.raises(BadValue, match="fit a frame"):
        publisher.publish("/too-large", bytes(FRAME_BYTES_MAX - VALUE_ROOM_BYTES))


async def test_large_values_on_demand_are_forgotten_again(values: Values) -> None:
    publisher = await values.publisher()
    publisher.default("/d", lambda path: path.encode() * (LARGE // len(path)))
    await publisher.replicated(10)
    found = await subscribed(values, [f"/d/{number}" for number in range(COUNT)])
    assert all(one.value.startswith(one.path.encode()) for one in found)
    assert len(publisher.values) == COUNT
    for one in found:
        one.drop()
    await until(lambda: not publisher.values, "nothing is kept that nobody follows")


@pytest.mark.parametrize(
    "value",
    [None, True, 1 << 63, -1.5, "text", "üüü" * 1_000, b"bytes", [1, [2, {"a": b"x" * 500}]], {}],
)
def test_what_a_value_takes_is_not_guessed_too_low(value: Any) -> None:
    alone = len(frame([ValuesSubscribed(1, [])]))
    told = len(frame([ValuesSubscribed(1, [SubscribedValue("", 1 << 62, value)])])) - alone
    assert told <= size_of(value)
    check_length(value)
