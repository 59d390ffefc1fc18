"""Clients that ask for as much as a message can hold: others are served, and what is none is refused."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.records.clients import Held, client
from tests.records.site import Site, opened_site, url_of
from tests.records.test_key_set import turns_of_others
from tests.waiting import until

from moorline.catalog import EmbeddedPostgres
from moorline.core.records.filter import Filter, parsed
from moorline.core.records.table import Column, Table
from moorline.core.sets.digest import Digest
from moorline.limits import RECORD_PREFIXES_MAX, RECORD_WHERE_VALUES_MAX
from moorline.net.slices import in_slices
from moorline.records.database import Database
from moorline.wire.records import (
    Fetch,
    Lists,
    Ranges,
    RecordMessage,
    Subscribe,
    TableSubscription,
)

SETS = 2_000
ROWS = "insert into things select n, n % 3, 'NEW', 'n' from generate_series(1, 300) n"


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        yield site


async def test_sets_that_are_over_before_they_begin_cost_nothing(site: Site) -> None:
    await site.execute(ROWS)
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held, is_subscribed=False) as made:
        names = [TableSubscription(f"unknown-{number}") for number in range(8)]
        last = Subscribe(SETS, [held.subscription()])
        made.sync = SETS
        await made.send(*(Subscribe(number, names) for number in range(1, SETS)), last)
        await site.equal(held)
    tables = node.subjects.records
    assert tables is not None
    assert tables.subscribed == 1


async def test_names_that_nobody_registered_are_looked_up_together(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    look = Database.registrations

    async def counted(self: Database, name: str | None = None) -> object:
        nonlocal looks
        looks += 1
        return await look(self, name)

    node = await site.node()
    monkeypatch.setattr(Database, "registrations", counted)
    names = [f"unknown-{number}" for number in range(64)]
    async with client(url_of(node), *map(Held, names)) as made:
        await until(lambda: all(one.refused for one in made.held.values()), "refusals")
    assert {one.refused[0].code for one in made.held.values()} == {"NO_SUCH_TABLE"}
    assert looks <= 2, "one look is enough for names that are asked for together"


async def test_a_table_that_was_registered_a_moment_ago_is_found(site: Site) -> None:
    node = await site.node()
    unknown, held = Held("others"), Held("others")
    async with client(url_of(node), unknown):
        await until(lambda: unknown.refused, "a refusal")
    await site.register("others")
    async with client(url_of(node), held):
        await site.equal(held, table="others")
    assert not held.refused


async def test_a_filter_of_long_numbers_leaves_turns_to_others() -> None:
    """A number of a thousand digits takes a third of a millisecond, and a filter has thousands."""
    columns = (Column("id", "bigint"), Column("size", "numeric"))
    table = Table("t", columns, ("id",), ("size",), False, 1, "e")
    asked = {"size": [f"{'9' * 1_000}{number}" for number in range(RECORD_WHERE_VALUES_MAX)]}
    found: list[Filter] = []

    async def parse() -> None:
        found.append(await in_slices(parsed(table, asked)))

    assert await turns_of_others(parse()) >= 2
    (term,) = found[0].terms
    condition = term.condition()
    assert sorted(condition.texts) == sorted(asked["size"])


@pytest.mark.parametrize(
    "question",
    [
        lambda sync: Ranges(sync, "things", [""] * RECORD_PREFIXES_MAX),
        lambda sync: Lists(sync, "things", ["0", "00"]),
        lambda sync: Fetch(sync, "things", ["a", "ab", "b"]),
    ],
    ids=["ranges", "lists", "fetch"],
)
async def test_questions_that_overlap_end_the_connection(site: Site, question: object) -> None:
    await site.execute(ROWS)
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held, is_subscribed=False) as made:
        nobodys = bytes(Digest(7, b"x" * 16))
        asked: RecordMessage = question(1)  # type: ignore[operator]
        await made.socket.send(
            json.dumps(
                [
                    {
                        "type": "subscribe",
                        "sync": 1,
                        "tables": [{"table": "things", "digest": _base64(nobodys)}],
                    }
                ]
            )
        )
        made.sync = 1
        made.held = {}
        host_of = node.subjects.records.hosts  # type: ignore[union-attr]
        await until(
            lambda: any(one.offer for host in host_of.values() for one in host.receivers.values()),
            "a sync by digest",
        )
        await made.send(asked)
        await until(lambda: made.close_code is not None, "the end of the connection")
        assert made.close_reason.startswith("MALFORMED")
        # Whatever it had taken is free again.
        await until(lambda: not host_of["things"].scans_running, "no scan")


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()
