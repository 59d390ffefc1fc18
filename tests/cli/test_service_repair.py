"""`moor service repair`: a dry run says what it would do, the repair does it, and nothing else changes."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from tests.cli.service_node import (
    EXIT_DRIFT,
    EXIT_FILE,
    EXIT_REFUSED,
    EXIT_USAGE,
    Client,
    Moorline,
    Shell,
)

from moorline.client.associations import Associations
from moorline.ids import text_of

pytestmark = pytest.mark.process


def test_an_operator_repairs_what_a_dry_run_has_said(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "mended", 2_000)
    client.drop(client.queues[:30])
    client.lose(client.queues[30:40])
    client.forget(client.queues[-7:])
    before = client.list.read_bytes()
    words = ("repair", "mended", "--client-file", client.list)
    plan = moor.json(*words, "--dry-run")
    assert plan["is_dry_run"]
    assert (plan["added"], plan["removed"], plan["refused"]) == (40, 7, [])
    assert moor.json("show", "mended")["recomputed_queues"] == 1_960
    done = moor.json(*words)
    assert (done["added"], done["removed"], done["refused"]) == (40, 7, [])
    assert done["is_digest_put_right"]
    assert done["rounds"] > 1
    assert 0 < done["bytes_received"] < 24 * 2_000, "in proportion to the difference"
    assert client.list.read_bytes() == before
    assert moor("verify", "mended", "--client-file", client.list) == 0
    again = moor.json(*words)
    assert (again["added"], again["removed"]) == (0, 0)
    assert not again["is_digest_put_right"]


@pytest.mark.parametrize("lost", [300, 299, 150])
def test_a_repair_when_most_or_all_is_gone(moorline: Moorline, moor: Shell, lost: int) -> None:
    client = Client(moorline, f"gone-{lost}", 300)
    client.drop(client.queues[:lost])
    done = moor.json("repair", client.name, "--client-file", client.list)
    assert (done["added"], done["removed"]) == (lost, 0)


def test_a_list_without_queues_takes_all_away_and_the_dry_run_says_so(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "emptied", 12)
    client.forget(client.queues)
    words = ("repair", "emptied", "--client-file", client.list)
    assert moor.json(*words, "--dry-run")["removed"] == 12
    assert moor.json(*words)["removed"] == 12
    assert moor.json("show", "emptied")["queues"] == 0


def test_what_the_node_refuses_is_named_and_stays_in_the_clients_file(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "refused", 10)
    gone = client.queues[0]

    async def delete() -> None:
        async with client.connect() as connected:
            await connected.queue(gone).delete()

    asyncio.run(delete())
    stranger = Client(moorline, "stranger", 1).queues[0]
    own = Associations(client.list)
    own.add([stranger], next(iter(own.digests())))
    own.close()
    client.drop(client.queues[1:3])
    done = moor.json("repair", "refused", "--client-file", client.list, code=EXIT_DRIFT)
    assert "the node refused 2 queues" in moor.err
    assert "in the list still" in moor.err
    assert done["added"] == 2
    assert set(done["refused"]) == {text_of(gone), text_of(stranger)}
    assert client.listed() == 11
    assert moor.json("show", "stranger")["queues"] == 1


def test_a_file_that_is_no_list_is_refused_and_nothing_is_made(
    moorline: Moorline, moor: Shell, tmp_path: Path
) -> None:
    Client(moorline, "guarded", 4)
    missing = tmp_path / "typo.sqlite"
    other = tmp_path / "other.sqlite"
    sqlite3.connect(other).close()
    text = tmp_path / "text"
    text.write_text("not a database, but long enough to look at" * 100)
    for command in ("verify", "repair"):
        assert moor(command, "guarded", "--client-file", missing) == EXIT_USAGE
        for path in (other, text):
            assert moor(command, "guarded", "--client-file", path) == EXIT_FILE
            assert "is not the list of a service" in moor.err
    assert not missing.exists()
    assert moor("repair", "guarded") == EXIT_USAGE
    assert moor.json("show", "guarded")["queues"] == 4


# --- by the service itself, and while it runs -----------------------------------------------------


def test_a_service_repairs_itself_with_its_own_certificate(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "selfish", 100)
    client.drop(client.queues[:5])
    client.forget(client.queues[-2:])

    async def delete() -> None:
        async with client.connect() as connected:
            await connected.queue(client.queues[0]).delete()

    asyncio.run(delete())
    words = ("repair", "selfish", "--client-file", client.list)
    plan = moor.json(*words, "--dry-run", certificates=client.certificates)
    assert (plan["added"], plan["removed"]) == (5, 2)
    assert client.listed() == 98
    done = moor.json(*words, certificates=client.certificates, code=EXIT_DRIFT)
    assert "refused 1 queues" in moor.err
    assert (done["added"], done["removed"]) == (4, 2)
    assert done["refused"] == [text_of(client.queues[0])]
    assert client.listed() == 97
    facts = moor.json(
        "verify", "selfish", "--client-file", client.list, certificates=client.certificates
    )
    assert facts["is_equal"]


def test_a_service_that_the_node_has_forgotten_repairs_itself_by_its_fingerprint(
    moorline: Moorline, moor: Shell
) -> None:
    """D13: the service is gone on the server, and everything is associated again."""
    client = Client(moorline, "forgotten", 40)
    fingerprint = moor.json("show", "forgotten")["fingerprint"]
    moorline.sql("delete from moorline.service where name = 'forgotten'")
    words = ("--client-file", client.list)
    assert moor("repair", "forgotten", *words, certificates=client.certificates) == EXIT_REFUSED
    assert moor.json("repair", fingerprint, *words, certificates=client.certificates)["added"] == 40


def test_a_repair_feeds_the_session_that_is_subscribed_and_does_not_end_it(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "running", 10)
    words = ("repair", "running", "--client-file", client.list)

    async def work() -> None:
        async with client.connect() as connected, connected.service(client.list) as service:
            messages = aiter(service)
            client_queue = client.queues[3]
            await asyncio.to_thread(client.drop, [client_queue])
            facts = await asyncio.to_thread(moor.json, "show", "running")
            assert (facts["is_subscribed"], facts["sessions"]) == (True, 1)
            for flags in (["--dry-run"], []):
                done = await asyncio.to_thread(moor.json, *words, *flags)
                assert done["added"] == 1
            await connected.send(client_queue, b"after the repair")
            async with asyncio.timeout(20):
                message = await anext(messages)
            assert message.body == b"after the repair"
            plan = await asyncio.to_thread(
                moor.json, *words, "--dry-run", certificates=client.certificates
            )
            assert plan["added"] == 0
            await connected.send(client.queues[4], b"still subscribed")
            async with asyncio.timeout(20):
                assert (await anext(messages)).body == b"still subscribed"

    asyncio.run(work())


def test_a_message_that_waits_in_a_lost_queue_comes_with_the_repair(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "waiting", 6)
    client.drop(client.queues[:1])

    async def work() -> None:
        shorter = client.list.with_name("shorter.sqlite")
        own = Associations(shorter)
        own.add(client.queues[1:])
        own.close()
        async with client.connect() as connected, connected.service(shorter) as service:
            await connected.send(client.queues[0], b"waited")
            await asyncio.to_thread(moor.json, "repair", "waiting", "--client-file", client.list)
            async with asyncio.timeout(20):
                assert (await anext(aiter(service))).body == b"waited"

    asyncio.run(work())
