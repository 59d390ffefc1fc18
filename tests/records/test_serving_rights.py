"""Who may see which rows, over real WebSockets: grants that come and go, proofs that end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.records.clients import Held, RecordClient, client
from tests.records.site import Site, opened_site, url_of
from tests.waiting import until
from websockets.exceptions import InvalidStatus

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.client.moor import Moor
from moorline.node.node import Node
from moorline.wire.records import Deletion, Login, Subscribe

MANY = "insert into things select n, n % 3, 'NEW', 'n' from generate_series(1, 300) n"


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        await site.execute(MANY)
        yield site


@asynccontextmanager
async def operated(node: Node) -> AsyncIterator[Moor]:
    async with moorline.connect(str(node.addresses[0])) as moor:
        yield moor


async def token_of(moor: Moor, name: str, **options: Any) -> str:
    await moor.access.add_user(name, b"swordfish")
    return (await moor.access.add_token(name, "t", **options)).token


def shown(token: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {token}"}}


async def booted(made: RecordClient) -> None:
    await until(lambda: made.close_code is not None, "a boot")
    assert made.close_code == 1012
    assert "right" not in made.close_reason


async def test_t50_t51_a_revoke_and_a_grant_while_online(site: Site) -> None:
    node = await site.node()
    async with operated(node) as moor:
        token = await token_of(moor, "olga")
        await moor.access.add_grant("/records/things/1", "olga", "s")
        await moor.access.add_grant("/records/things/2", "olga", "s")
        held = Held("things")
        async with client(url_of(node), held, **shown(token)) as made:
            await site.equal(held, "workspace_id in (1, 2)")
            await moor.access.remove_grant("/records/things/2", "olga")
            await site.execute("update things set note = 'secret' where workspace_id = 2")
            await booted(made)
        assert not [row for _, row in held.rows.values() if row["note"] == "secret"]
        held.left()
        async with client(url_of(node), held, **shown(token)) as made:
            await site.equal(held, "workspace_id = 1")
            assert held.hows[0] == "digest", "the permit is another one"
            await moor.access.add_grant("/records/things/2", "olga", "s")
            await booted(made)
        async with client(url_of(node), held, **shown(token)):
            await site.equal(held, "workspace_id in (1, 2)")
        assert held.drifts == 0


async def test_t52_a_revoke_and_a_grant_while_offline_net_to_nothing(site: Site) -> None:
    node = await site.node()
    async with operated(node) as moor:
        token = await token_of(moor, "olga")
        await moor.access.add_grant("/records/things/1", "olga", "s")
        held = Held("things")
        async with client(url_of(node), held, **shown(token)):
            await site.equal(held, "workspace_id = 1")
        await moor.access.remove_grant("/records/things/1", "olga")
        await moor.access.add_grant("/records/things/1", "olga", "s")
        held.left()
        async with client(url_of(node), held, **shown(token)):
            await site.equal(held, "workspace_id = 1")
        assert held.hows == ["replay"]
        assert held.drifts == 0


async def test_only_those_whose_rows_are_others_are_booted(site: Site) -> None:
    node = await site.node()
    async with operated(node) as moor:
        tokens = [await token_of(moor, name) for name in ("olga", "paul")]
        for name in ("olga", "paul"):
            await moor.access.add_grant("/records/things/1", name, "s")
        one, other = Held("things"), Held("things")
        async with (
            client(url_of(node), one, **shown(tokens[0])) as first,
            client(url_of(node), other, **shown(tokens[1])) as second,
        ):
            await site.equal(one, "workspace_id = 1")
            await site.equal(other, "workspace_id = 1")
            await moor.access.add_grant("/records/things/2", "olga", "s")
            await booted(first)
            await site.execute("update things set note = 'later' where id = 1")
            await site.equal(other, "workspace_id = 1")
            assert second.close_code is None
            assert other.hows[0] == "full"
            assert set(other.hows[1:]) == {"live"}, "it goes on where it was"


async def test_boot_all_boots_everybody(site: Site) -> None:
    node = await site.node(records={"boot": "all"})
    async with operated(node) as moor:
        token = await token_of(moor, "olga")
        await moor.access.add_grant("/records/things/1", "olga", "s")
        held = Held("things")
        async with client(url_of(node), held, **shown(token)) as made:
            await site.equal(held, "workspace_id = 1")
            await moor.access.add_grant("/records/others/2", "somebody", "s")
            await booted(made)


async def test_t48_nobody_learns_whether_a_table_is_there(site: Site) -> None:
    node = await site.node()
    async with operated(node) as moor:
        token = await token_of(moor, "olga")
        held = [Held("things"), Held("nothing"), Held("others")]
        async with client(url_of(node), *held, **shown(token)):
            await until(lambda: all(one.refused for one in held), "refusals")
        assert {(one.refused[0].code, one.refused[0].why) for one in held} == {
            ("NO_SUCH_TABLE", "no such table")
        }
        await moor.access.add_grant("/records/nothing", "olga", "s")
        again = Held("nothing")
        async with client(url_of(node), again, **shown(token)):
            await until(lambda: again.refused, "a refusal")
        assert again.refused[0].code == "NO_SUCH_TABLE"


async def test_t48_questions_reveal_nothing_outside_of_the_scope(site: Site) -> None:
    node = await site.node()
    async with operated(node) as moor:
        token = await token_of(moor, "olga")
        await moor.access.add_grant("/records/things/1", "olga", "s")
        held = Held("things")
        held.rows = {("1",): (99_999, {})}
        held.cursor = ""
        async with client(url_of(node), held, **shown(token)):
            await site.equal(held, "workspace_id = 1")
        assert held.hows[0] == "digest"


async def test_t53_a_deletion_a_disappearance_and_a_fallout_are_the_same_bytes(site: Site) -> None:
    node = await site.node()
    async with operated(node) as moor:
        token = await token_of(moor, "olga")
        await moor.access.add_grant("/records/things/1", "olga", "s")
        held = Held("things", where={"state": "NEW"})
        async with client(url_of(node), held, **shown(token)):
            await site.equal(held, "workspace_id = 1 and state = 'NEW'")
            held.heard.clear()
            await site.execute(
                "delete from things where id = 1",
                "update things set workspace_id = 2 where id = 4",
                "update things set state = 'DONE' where id = 7",
            )
            await site.equal(held, "workspace_id = 1 and state = 'NEW'")
        gone = [one for one in held.heard if isinstance(one, Deletion)]
        assert gone == [Deletion("things", [key]) for key in ("1", "4", "7")]


async def test_t57_a_token_that_ends_closes_an_idle_stream(site: Site) -> None:
    node = await site.node()
    async with operated(node) as moor:
        token = await token_of(moor, "olga", expires_s=2)
        await moor.access.add_grant("/records/things/1", "olga", "s")
        held = Held("things")
        async with client(url_of(node), held, **shown(token)) as made:
            await until(lambda: made.close_code is not None, "its end")
        assert made.close_code == 1008
        assert made.close_reason.startswith("EXPIRED")


async def test_a_page_logs_in_by_message(site: Site) -> None:
    node = await site.node()
    async with operated(node) as moor:
        token = await token_of(moor, "olga")
        await moor.access.add_grant("/records/things/1", "olga", "s")
        origin = f"http://127.0.0.1:{node.http.port}"  # type: ignore[union-attr]
        held = Held("things")
        async with client(url_of(node), held, is_subscribed=False, origin=origin) as made:
            await made.send(Login(token=token))
            await made.subscribe()
            await site.equal(held, "workspace_id = 1")
        async with client(url_of(node), held, is_subscribed=False, origin=origin) as made:
            await made.send(Login(token="moor_wrong"))
            await until(lambda: made.close_code is not None, "its end")
            assert made.close_code == 1008
        async with client(url_of(node), held, is_subscribed=False, origin=origin) as made:
            await made.send(Subscribe(1, [held.subscription()]))
            await until(lambda: made.close_code is not None, "its end")
            assert made.close_code == 1008


async def test_a_page_of_another_origin_is_refused(site: Site) -> None:
    node = await site.node()
    with pytest.raises(InvalidStatus) as caught:
        async with client(url_of(node), Held("things"), origin="https://evil.example"):
            pass
    assert caught.value.response.status_code == 403
    with pytest.raises(InvalidStatus) as caught:
        async with client(
            url_of(node), Held("things"), additional_headers={"Host": "evil.example"}
        ):
            pass
    assert caught.value.response.status_code in (400, 421)


async def test_t54_rights_that_change_while_it_subscribes_boot_it(site: Site) -> None:
    node = await site.node()
    async with operated(node) as moor:
        token = await token_of(moor, "olga")
        await moor.access.add_grant("/records/things/1", "olga", "s")
        held = Held("things")
        tables = node.subjects.records
        assert tables is not None
        permits = tables.permits
        read = permits.of

        def of(*arguments: Any) -> Any:
            permit = read(*arguments)
            # Between reading and registering: the worst moment that there is.
            permits._changed()
            permits.of = read  # type: ignore[method-assign]
            return permit

        permits.of = of  # type: ignore[assignment, method-assign]
        async with client(url_of(node), held, **shown(token)) as made:
            await booted(made)
        assert not held.rows
        async with client(url_of(node), held, **shown(token)):
            await site.equal(held, "workspace_id = 1")


async def test_t55_a_signal_that_is_lost_is_made_up_for_within_the_bound(site: Site) -> None:
    node = await site.node(access={"revocation_ms": 500})
    async with operated(node) as moor:
        token = await token_of(moor, "olga")
        await moor.access.add_grant("/records/things/1", "olga", "s")
    # Said to another node: this one hears of it only when it looks.
    second = await site.node("node-2")
    held = Held("things")
    async with client(url_of(node), held, **shown(token)) as made:
        await site.equal(held, "workspace_id = 1")
        async with operated(second) as moor:
            await moor.access.remove_grant("/records/things/1", "olga")
        await booted(made)
    refused = Held("things")
    async with client(url_of(node), refused, **shown(token)):
        await until(lambda: refused.refused, "a refusal")


async def test_who_is_refused_a_table_is_in_the_audit(site: Site) -> None:
    """By its name, though the client hears the same as of one that is not there."""
    node = await site.node()
    async with operated(node) as moor:
        token = await token_of(moor, "olga")
        held = [Held("things"), Held("a/b")]
        async with client(url_of(node), *held, **shown(token)):
            await until(lambda: all(one.refused for one in held), "refusals")
        for path in ("/records/things", "/records/a=2Fb"):
            async with asyncio.timeout(60):
                while not (lines := (await moor.access.read_audit(path=path)).lines):
                    await asyncio.sleep(0.05)
            line = json.loads(lines[0])
            found = (line["principal"], line["act"], line["verdict"], line["path"])
            assert found == ("olga", "ReadRecords", "denied", path)
