"""A table that feeds a topic: what is published, who may, and what is told of it."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.process.nodes import run_moor
from tests.records.replayed import PATIENCE_S, TOPIC, Replayed, replay, subscribed
from tests.records.site import Site, opened_site
from tests.records.test_publishing_killed import SETTINGS, settled

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.errors import (
    AlreadyThere,
    BadTopic,
    Denied,
    NotFound,
    Unsupported,
)
from moorline.records import table_sql
from moorline.records.registration import remove
from moorline.records.renewal import renew

MANY = "insert into things select n, n % 3, 'NEW', 'n' from generate_series(1, 20) n"


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        await site.execute(MANY)
        yield site


async def published(site: Site, **settings: Any) -> str:
    """The address of a node that publishes the table."""
    node = await site.node(**SETTINGS | settings)
    address = str(node.addresses[0])
    async with moorline.connect(address) as moor:
        assert await moor.publish_table("things", TOPIC) == "node-1"
        # To ask again is harmless.
        assert await moor.publish_table("things", TOPIC) == "node-1"
    return address


async def replayed(site: Site, address: str) -> Replayed:
    """All that is in the topic: each message once, and together the table."""
    found = await replay(address, await settled(site))
    found.check_once()
    assert found.rows == await site.table()
    return found


async def test_all_rows_and_then_each_change(site: Site) -> None:
    address = await published(site)
    assert (await replayed(site, address)).kinds["snapshot"] == 1
    await site.execute(
        "update things set state = 'DONE' where id = 1",
        "delete from things where id = 2",
        "update things set id = 100 where id = 3",
        "insert into things values (101)",
    )
    found = await replayed(site, address)
    assert found.kinds["snapshot"] == 1
    said = [(body["kind"], tuple(body.get("key", ()))) for body in found.bodies]
    assert said.count(("deletion", ("2",))) == 1
    assert said.count(("deletion", ("3",))) == 1
    assert said.count(("record", ("1",))) == 2


async def test_a_consumer_that_is_there_hears_changes_as_they_come(site: Site) -> None:
    address = await published(site)
    found = Replayed()
    async with subscribed(address) as subscription, asyncio.timeout(PATIENCE_S):
        await found.hear_until(subscription, 21)
        assert found.rows == await site.table()
        await site.execute("update things set note = 'live' where id = 7")
        await found.hear_until(subscription, 22)
        assert found.rows == await site.table()


@pytest.mark.parametrize("why", ["truncate", "columns", "log", "renewed"])
async def test_the_state_begins_anew(site: Site, why: str) -> None:
    """Where nobody can tell what changed: a marker, and all rows."""
    if why == "log":
        await remove(site.connection, "things")
        await site.register(log_rows_max=100)
    address = await published(site, records={"prune_ms": 100})
    assert (await replayed(site, address)).kinds["snapshot"] == 1
    await site.stop()
    match why:
        case "truncate":
            await site.execute("truncate things", "insert into things values (500)")
        case "columns":
            await site.execute("alter table things add column more text default 'm'")
        case "log":
            await site.execute(*[f"update things set note = '{n}'" for n in range(20)])
            await site.execute("delete from things where id < 5")
        case _:
            await renew(site.connection, "things")
    node = await site.node(**SETTINGS, records={"prune_ms": 100})
    found = await replayed(site, str(node.addresses[0]))
    assert found.kinds["snapshot"] >= 2


async def test_an_empty_table_says_so(site: Site) -> None:
    address = await published(site)
    found = Replayed()
    async with subscribed(address) as subscription, asyncio.timeout(PATIENCE_S):
        await found.hear_until(subscription, 21)
        await site.execute("truncate things")
        await found.hear_until(subscription, 22)
    assert found.rows == {}
    assert found.bodies[-1]["kind"] == "snapshot"


async def test_a_change_of_many_rows_is_several_batches(site: Site) -> None:
    address = await published(site)
    await settled(site)
    await site.execute(
        "insert into things select n, 1, 'NEW', 'n' from generate_series(1000, 4500) n"
    )
    found = await replayed(site, address)
    assert found.kinds["snapshot"] == 1
    assert found.kinds["record"] > 3500


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_row_that_fits_no_message_comes_without_its_content(
    site: Site, monkeypatch: pytest.MonkeyPatch, *, is_cut: bool
) -> None:
    """Also where it is more than Postgres sends."""
    if is_cut:
        monkeypatch.setattr(table_sql, "RECORD_ROW_BYTES_MAX", 1_000)
    address = await published(site)
    await site.execute("update things set note = repeat('x', 300000) where id = 4")
    found = await replay(address, await settled(site))
    found.check_once()
    seq, row = found.rows["4",]
    assert row is None
    assert (await site.table())["4",][0] == seq
    assert [body["bytes"] > 300_000 for body in found.bodies if body.get("row", 1) is None] == [
        True
    ]


async def test_the_capture_by_notifications_too(site: Site) -> None:
    await site.execute(MANY.replace("things", "others"))
    await site.register("others", capture="notify")
    node = await site.node(**SETTINGS)
    async with moorline.connect(str(node.addresses[0])) as moor:
        await moor.publish_table("others", TOPIC)
    found = Replayed()
    async with subscribed(str(node.addresses[0])) as subscription, asyncio.timeout(PATIENCE_S):
        await found.hear_until(subscription, 21)
        await site.execute("update others set note = 'live' where id = 7")
        await site.execute("delete from others where id = 8")
        while found.rows != await site.table(table="others"):
            found.hear(await anext(subscription))
    found.check_once()


async def test_one_that_is_made_again_is_another_one(site: Site) -> None:
    """Its messages have numbers of their own: none passes for one that was there."""
    address = await published(site)
    await settled(site)
    async with moorline.connect(address) as moor:
        assert await moor.stop_table("things") == TOPIC
        with pytest.raises(NotFound):
            await moor.stop_table("things")
        await site.execute("delete from things where id = 1")
        await moor.publish_table("things", TOPIC)
    found = Replayed()
    async with subscribed(address) as subscription, asyncio.timeout(PATIENCE_S):
        while found.kinds["snapshot"] < 2 or found.rows != await site.table():
            found.hear(await anext(subscription))
    found.check_once()


async def test_a_publication_stays_with_its_home(site: Site) -> None:
    """Another node neither takes it nor publishes; it may stop it."""
    await published(site)
    await settled(site)
    await site.stop()
    await site.execute("delete from things where id = 1")
    other = await site.node("node-2", **SETTINGS)
    async with moorline.connect(str(other.addresses[0])) as moor:
        with pytest.raises(AlreadyThere, match="node-1"):
            await moor.publish_table("things", TOPIC)
        assert await moor.topics(TOPIC) == []
        node = await site.node(**SETTINGS)
        await replayed(site, str(node.addresses[0]))
        await moor.stop_table("things")
    assert await site.connection.fetchval("select count(*) from moorline.publication") == 0


async def test_a_process_that_lost_its_identity_stores_nothing(site: Site) -> None:
    address = await published(site)
    count = await settled(site)
    await site.execute("update moorline.node set incarnation = decode(repeat('ab', 16), 'hex')")
    await site.execute("delete from things where id = 1")
    await asyncio.wait_for(_away(address), PATIENCE_S)
    assert await site.connection.fetchval("select sequence from moorline.publication") == count


async def _away(address: str) -> None:
    """Until the node has ended, or answers nobody: it found that it is not itself."""
    while True:
        try:
            async with moorline.connect(address) as moor:
                await asyncio.wait_for(moor.publish("a/b", b"c"), 2)
        except (moorline.MoorlineError, TimeoutError, OSError):
            return
        await asyncio.sleep(0.05)


async def test_streams_that_are_lost_are_filled_anew(site: Site, tmp_path: Path) -> None:
    """The catalog says what was published, and the streams do not have it."""
    address = await published(site)
    await replayed(site, address)
    await site.stop()
    shutil.rmtree(tmp_path / "node-1" / "streams")
    node = await site.node(**SETTINGS)
    found = Replayed()
    async with (
        subscribed(str(node.addresses[0])) as subscription,
        asyncio.timeout(PATIENCE_S),
    ):
        while found.rows != await site.table():
            found.hear(await anext(subscription))
    assert found.kinds["snapshot"] == 1


async def test_who_may(site: Site, tmp_path: Path) -> None:
    node = await site.node(**SETTINGS)
    address = str(node.addresses[0])
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    secret.chmod(0o600)
    async with moorline.connect(address) as operator:
        await operator.access.add_user("olga", b"swordfish")
        async with moorline.connect(address, user="olga", password_file=secret) as olga:

            async def refused() -> None:
                # Of a table that is not there she hears the same.
                for table in ("things", "nothing"):
                    with pytest.raises(Denied):
                        await olga.publish_table(table, TOPIC)

            await refused()
            await operator.access.add_grant(f"/topics/{TOPIC}", "olga", "w")
            await refused()
            await operator.access.add_grant("/records/things", "olga", "s")
            # One owner is not hers to see.
            await operator.access.add_grant("/records/things/2", "olga", denies="s")
            await refused()
            await operator.access.remove_grant("/records/things/2", "olga")
            await operator.access.remove_grant(f"/topics/{TOPIC}", "olga")
            await refused()
            await operator.access.add_grant(f"/topics/{TOPIC}", "olga", "w")
            await olga.publish_table("things", TOPIC)
            await operator.access.remove_grant("/records/things", "olga")
            with pytest.raises(Denied):
                await olga.stop_table("things")


@pytest.mark.parametrize("path", ["/records/things", f"/topics/{TOPIC}"])
async def test_a_right_that_is_taken_away_holds_what_was_made_by_it(
    site: Site, tmp_path: Path, path: str
) -> None:
    """A24: nothing more is published; also by the next process of the node; and it goes on where it was."""
    node = await site.node(**SETTINGS)
    address = str(node.addresses[0])
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    secret.chmod(0o600)
    async with moorline.connect(address) as operator:
        await operator.access.add_user("olga", b"swordfish")
        await operator.access.add_grant(f"/topics/{TOPIC}", "olga", "w")
        await operator.access.add_grant("/records/things", "olga", "s")
        async with moorline.connect(address, user="olga", password_file=secret) as olga:
            await olga.publish_table("things", TOPIC)
        await settled(site)
        await operator.access.remove_grant(path, "olga")
    await _told(site, "is not granted")
    before = await _sequence(site)
    await site.execute("update things set note = 'secret'")
    await site.stop()
    node = await site.node(**SETTINGS)
    await _told(site, "is not granted")
    assert await _sequence(site) == before
    async with asyncio.timeout(PATIENCE_S):
        while not _refusals(tmp_path / "node-1"):
            await asyncio.sleep(0.02)
    address = str(node.addresses[0])
    async with moorline.connect(address) as operator:
        await operator.access.add_grant(path, "olga", "sw")
    found = await replayed(site, address)
    assert found.kinds["snapshot"] == 1
    await _told(site, "")


async def _told(site: Site, text: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while text not in (said := await _problem(site.connection)) or bool(said) != bool(text):
            await asyncio.sleep(0.02)


async def _sequence(site: Site) -> int:
    return int(await site.connection.fetchval("select sequence from moorline.publication"))


def _refusals(data: Path) -> list[dict[str, Any]]:
    lines = [
        json.loads(line)
        for file in (data / "audit").iterdir()
        for line in file.read_bytes().splitlines()
    ]
    return [line for line in lines if (line["act"], line["principal"]) == ("PublishTable", "olga")]


async def test_what_is_refused(site: Site) -> None:
    node = await site.node(**SETTINGS)
    async with moorline.connect(str(node.addresses[0])) as moor:
        with pytest.raises(NotFound, match="no table is registered as nothing"):
            await moor.publish_table("nothing", TOPIC)
        for topic in ("tables/#", "a/+/b", "a\0b"):
            with pytest.raises(BadTopic):
                await moor.publish_table("things", topic)
        with pytest.raises(Denied):
            await moor.publish_table("things", "$SYS/audit")
        await moor.publish_table("things", TOPIC)
        with pytest.raises(AlreadyThere, match=TOPIC):
            await moor.publish_table("things", "tables/others")
    bare = await site.node("bare", roles=["records"])
    async with moorline.connect(str(bare.addresses[0])) as moor:
        with pytest.raises(Unsupported):
            await moor.publish_table("things", TOPIC)


async def test_the_commands(site: Site) -> None:
    node = await site.node(**SETTINGS)
    at = f"--address={node.addresses[0]}"

    async def moor(*words: str) -> tuple[int, str, str]:
        done = await asyncio.to_thread(run_moor, "records", *words)
        return done.returncode, done.stdout, done.stderr

    code, _, why = await moor("publish", "things", at)
    assert code
    assert "--topic" in why
    code, _, why = await moor("publish", "things", "--topic", TOPIC, "--stop", at)
    assert code
    assert "--stop" in why
    code, said, why = await moor("publish", "things", "--topic", TOPIC, at)
    assert (code, said) == (0, f"things feeds {TOPIC}, by node-1\n"), why
    code, said, why = await moor("list", "--json", f"--catalog={site.dsn}")
    assert code == 0, why
    assert [(row["name"], row["topic"], row["home"]) for row in json.loads(said)] == [
        ("things", TOPIC, "node-1")
    ]
    assert TOPIC in (await moor("list", f"--catalog={site.dsn}"))[1]
    code, said, _ = await moor("publish", "things", "--stop", "--json", at)
    assert (code, json.loads(said)) == (
        0,
        {"name": "things", "topic": TOPIC, "is_published": False},
    )
    assert (await moor("publish", "things", "--stop", at))[0] == NotFound.exit_code
    code, said, _ = await moor("list", "--json", f"--catalog={site.dsn}")
    assert [row["topic"] for row in json.loads(said)] == [None]


async def test_a_table_that_is_registered_no_more_is_told_and_goes_on(site: Site) -> None:
    address = await published(site)
    await settled(site)
    await remove(site.connection, "things")
    async with asyncio.timeout(PATIENCE_S):
        while not await _problem(site.connection):
            await asyncio.sleep(0.05)
    await site.register()
    found = await replayed(site, address)
    assert found.kinds["snapshot"] == 2
    assert await _problem(site.connection) == ""


async def _problem(connection: asyncpg.Connection) -> str:
    return str(await connection.fetchval("select problem from moorline.publication"))
