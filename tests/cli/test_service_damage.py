"""The commands at the states of the table "What can be wrong": each is told, and what is advised mends it."""

import asyncio
import sqlite3

import pytest
from tests.cli.service_node import EXIT_CONFIG, EXIT_DRIFT, Client, Moorline, Shell

from moorline.client.associations import UNSAID, Associations
from moorline.ids import text_of

pytestmark = pytest.mark.process

STRANGER = b"s" * 24

NODE_STATES = {
    "id": "update moorline.association set queue = $2 where queue = $1",
    "hash": "update moorline.association set hash_low = hash_low # 9 where queue in ($1, $2)",
    "gone": "delete from moorline.association where queue in ($1, $2)",
    "kept": "update moorline.service_bucket set hash_low = hash_low # 9 where service in "
    "(select service from moorline.association where queue in ($1, $2))",
}


def change(client: Client, statement: str, *values: object) -> None:
    """The client's file, behind its back."""
    database = sqlite3.connect(client.list, isolation_level=None)
    database.execute(statement, values)
    database.close()


@pytest.mark.parametrize("state", NODE_STATES)
def test_what_is_wrong_at_the_node_is_told_and_what_is_advised_mends_it(
    moorline: Moorline, moor: Shell, state: str
) -> None:
    client = Client(moorline, f"node-{state}", 40)
    words = (client.name, "--client-file", client.list)
    stranger = STRANGER[:-1] + state[0].encode()
    moorline.sql(NODE_STATES[state], client.queues[0], stranger)
    assert moor("verify", client.name) == EXIT_DRIFT
    assert "`moor service recompute`" in moor.err
    facts = moor.json("verify", *words, code=EXIT_DRIFT)
    shown = moor.json("show", client.name)
    assert not shown["is_digest_right"]
    assert shown["wrong_hashes"] == (state in ("id", "hash"))
    if state == "id":
        assert facts["wrong_queues"] == [text_of(stranger)]
        verdicts = {row["what"]: row["verdict"] for row in facts["comparisons"]}
        assert (verdicts["hashes"], verdicts["associations"]) == ("other", "other")
    told = moor.json("recompute", client.name)
    assert told["was_wrong"]
    assert told["wrong_queues"] == ([text_of(stranger)] if state == "id" else told["wrong_queues"])
    # The node is true to itself; only the id that is left over is no queue's.
    assert moor("verify", client.name) == (EXIT_DRIFT if state == "id" else 0)
    assert ("does not have all of the queues" in moor.err) is (state == "id")
    if state in ("id", "gone"):
        facts = moor.json("verify", *words, code=EXIT_DRIFT)
        assert (facts["missing"], facts["extra"]) == (1, int(state == "id"))
        assert "`moor service repair`" in moor.err
        done = moor.json("repair", *words)
        assert (done["added"], done["removed"]) == (1, int(state == "id"))
    assert moor("verify", *words) == 0


@pytest.mark.parametrize("state", NODE_STATES)
def test_a_repair_alone_mends_the_node_too(moorline: Moorline, moor: Shell, state: str) -> None:
    client = Client(moorline, f"repaired-{state}", 40)
    stranger = STRANGER[:-2] + b"r" + state[0].encode()
    moorline.sql(NODE_STATES[state], client.queues[0], stranger)
    words = (client.name, "--client-file", client.list)
    done = moor.json("repair", *words)
    assert done["is_digest_put_right"] or done["wrong_hashes"]
    assert moor("verify", *words) == 0


LIST_STATES = {
    "digest": "update digest set count = 7",
    "gone": "delete from association where queue = ?1 and ?2 = ?2",
    "id": "update association set queue = ?2 where queue = ?1",
    "hash": "update association set high = high + 1 where queue = ?1 and ?2 = ?2",
}


@pytest.mark.parametrize("state", LIST_STATES)
def test_a_damaged_list_is_told_and_mended_with_the_services_certificate(
    moorline: Moorline, moor: Shell, state: str
) -> None:
    client = Client(moorline, f"list-{state}", 40)
    values = () if state == "digest" else (client.queues[0], STRANGER)
    change(client, LIST_STATES[state], *values)
    words = (client.name, "--client-file", client.list)
    before = client.list.read_bytes()
    facts = moor.json("verify", *words, code=EXIT_DRIFT)
    verdicts = {row["what"]: row["verdict"] for row in facts["comparisons"]}
    assert (
        "other" in verdicts.values() or "more" in verdicts.values() or "fewer" in verdicts.values()
    )
    assert verdicts["kept digest"] == verdicts["hashes"] == "equal"
    assert "with its certificate" in moor.err
    assert client.list.read_bytes() == before
    # An operator only reads the file: nothing is taken from the node, and the command says what is left.
    done = moor.json("repair", *words, code=EXIT_DRIFT)
    assert done["removed"] == 0
    assert "fails its own check and was only read" in moor.err
    assert client.list.read_bytes() == before
    code = EXIT_DRIFT if state == "id" else 0
    done = moor.json("repair", *words, certificates=client.certificates, code=code)
    assert done["mended"] >= 1
    assert done["restored"] == (state in ("gone", "id"))
    assert moor("verify", *words) == 0
    assert client.listed() == 40
    assert moor.json("show", client.name)["queues"] == 40


def test_a_service_without_queues_proves_nothing(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "nothing", 0)
    for words in ((), ("--client-file", client.list)):
        facts = moor.json("verify", "nothing", *words, code=EXIT_DRIFT)
        assert not facts["is_equal"]
        assert {row["verdict"] for row in facts["comparisons"]} == {"empty"}
        assert "nothing was proven" in moor.err
    # A node that has lost all of them is found by the list.
    full = Client(moorline, "emptied-node", 5)
    moorline.sql("select * from moorline.dissociate($1)", full.queues)
    assert moor("verify", full.name) == EXIT_DRIFT
    facts = moor.json("verify", full.name, "--client-file", full.list, code=EXIT_DRIFT)
    assert facts["missing"] == 5


def test_a_list_of_another_node_is_refused_by_every_command(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "moved", 10)
    client.drop(client.queues[:4])
    own = Associations(client.list)
    own.merge(next(iter(own.digests())), UNSAID)
    own.bind(UNSAID, b"o" * 24, "elsewhere")
    own.close()
    words = (client.name, "--client-file", client.list)
    for command in ("verify", "repair"):
        for certificates in (None, client.certificates):
            assert moor(command, *words, certificates=certificates) == EXIT_CONFIG
            assert f"{client.list} has queues of 'elsewhere', which is no home" in moor.err
    assert client.listed() == 10
    assert moor.json("show", client.name)["queues"] == 6
    # A queue that this node does not have: it is named, set aside, and no success.
    own = Associations(client.list)
    own.add([STRANGER], next(iter(own.digests())))
    own.close()
    done = moor.json("repair", *words, "--bind", certificates=client.certificates, code=EXIT_DRIFT)
    assert (done["added"], done["refused"]) == (4, [text_of(STRANGER)])
    assert "set aside" in moor.err
    assert moor.json("verify", *words)["set_aside"] == 1
    assert client.listed() == 10


def test_recompute_digests_at_the_start_hashes_the_ids(moorline: Moorline) -> None:
    """`moor serve --recompute-digests` is the same check for all services."""
    from moorline.catalog import Catalog
    from moorline.catalog.service_audit import recompute_all

    client = Client(moorline, "at-start", 12)
    moorline.sql(NODE_STATES["id"], client.queues[0], STRANGER[:-1] + b"!")

    async def recompute() -> list[int]:
        async with Catalog.open(moorline.dsn) as catalog:
            return [await recompute_all(catalog), await recompute_all(catalog)]

    assert asyncio.run(recompute()) == [1, 0]
