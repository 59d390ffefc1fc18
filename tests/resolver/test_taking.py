"""Entries that a publisher brings: taken in steps, each judged by itself."""

import asyncio

import pytest
from tests.resolver.publishing import codes
from tests.resolver.server import OPEN_TO_ALL, ResolverServer

from moorline.core.access.quota import Bounds
from moorline.core.access.right import PUBLISH
from moorline.core.access.row import Row
from moorline.errors import PublisherGone
from moorline.limits import ENTRIES_TAKEN_AT_ONCE, PATHS_PER_CALL_MAX

FOR_BOB = (OPEN_TO_ALL, Row("/bob", "bob", grants=PUBLISH))


async def test_a_long_call_is_taken_in_steps_and_answered_as_one() -> None:
    async with ResolverServer.open(*FOR_BOB) as server:
        publisher = await server.publisher(principal="bob")
        # One that is not his in each step, and one that is no path.
        paths = [
            f"/other/{number}" if number % ENTRIES_TAKEN_AT_ONCE == 7 else f"/bob/{number}"
            for number in range(PATHS_PER_CALL_MAX)
        ]
        paths[-1] = "/bob//x"
        answer = await publisher.publish(*paths)
        denied = range(7, PATHS_PER_CALL_MAX, ENTRIES_TAKEN_AT_ONCE)
        assert answer.refused == [
            *((place, "DENIED") for place in denied),
            (PATHS_PER_CALL_MAX - 1, "BAD_PATH"),
        ]
        assert answer.count == PATHS_PER_CALL_MAX - len(denied) - 1
        assert len(server.refusals) == 1, "the audit hears of one path of a call"


async def test_others_have_their_turn_between_the_steps_of_a_call() -> None:
    async with ResolverServer.open() as server:
        publisher = await server.publisher()
        (registration,) = server.broker.registry
        assert server.session is not None
        entries = [(f"/p/{number}", 0) for number in range(PATHS_PER_CALL_MAX)]
        steps = server.broker.publishers.taking.steps(server.session, registration, entries)
        taken = [len(registration.entries) for _ in steps]
        assert taken == list(
            range(ENTRIES_TAKEN_AT_ONCE, PATHS_PER_CALL_MAX, ENTRIES_TAKEN_AT_ONCE)
        )
        assert (await publisher.publish("/p/0")).count == PATHS_PER_CALL_MAX


async def test_who_is_forgotten_in_the_middle_of_a_call_is_told() -> None:
    async with ResolverServer.open() as server:
        await server.publisher()
        (registration,) = server.broker.registry
        assert server.session is not None
        entries = [(f"/p/{number}", 0) for number in range(PATHS_PER_CALL_MAX)]
        steps = server.broker.publishers.taking.steps(server.session, registration, entries)
        next(steps)
        server.broker.registry.close(registration)
        with pytest.raises(PublisherGone):
            next(steps)
        assert not len(server.broker.registry)


async def test_a_right_that_goes_in_the_middle_of_a_call_ends_with_the_step() -> None:
    async with ResolverServer.open(*FOR_BOB) as server:
        await server.publisher(principal="bob")
        (registration,) = server.broker.registry
        assert server.session is not None
        entries = [(f"/bob/{number}", 0) for number in range(PATHS_PER_CALL_MAX)]
        steps = server.broker.publishers.taking.steps(server.session, registration, entries)
        next(steps)
        await server.change_rights(Row("/bob", "bob"))
        try:
            while True:
                next(steps)
        except StopIteration as end:
            refused = end.value.refused
        assert [place for place, _ in refused] == list(
            range(ENTRIES_TAKEN_AT_ONCE, PATHS_PER_CALL_MAX)
        )
        assert {code for _, code in refused} == {"DENIED"}


async def test_the_quota_holds_over_calls_of_two_publishers_side_by_side() -> None:
    async with ResolverServer.open(*FOR_BOB) as server:
        server.bound("bob", Bounds(paths=1_500))
        one, other = [await server.publisher(principal="bob") for _ in range(2)]
        answers = await asyncio.gather(
            one.publish(*(f"/bob/one/{number}" for number in range(PATHS_PER_CALL_MAX))),
            other.publish(*(f"/bob/other/{number}" for number in range(PATHS_PER_CALL_MAX))),
        )
        refused = [code for answer in answers for _, code in answer.refused]
        assert refused == ["OVER_QUOTA"] * (2 * PATHS_PER_CALL_MAX - 1_500)
        assert sum(answer.count for answer in answers) == 1_500
        caller = await server.caller()
        found = await codes(caller, *(f"/bob/one/{number}" for number in range(PATHS_PER_CALL_MAX)))
        assert found.count("") == answers[0].count
