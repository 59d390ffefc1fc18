"""`moor service` against one real node: an operator sees and switches services; who may, and the guide."""

import asyncio
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.service_node import EXIT_REFUSED, EXIT_USAGE, Client, Moorline, Shell

from moorline.cli.main import run
from moorline.errors import Refused, ServiceDisabled
from moorline.ids import text_of

pytestmark = pytest.mark.process


# --- looking --------------------------------------------------------------------------------------


def test_list_shows_services_in_a_table_and_as_json(moorline: Moorline, moor: Shell) -> None:
    Client(moorline, "listed", 3)
    assert moor("list") == 0
    head, *rows = moor.out.splitlines()
    assert head.split() == [
        *("name", "id", "fingerprint", "queues", "hash", "enabled", "subscribed")
    ]
    (row,) = [row.split() for row in rows if row.startswith("listed ")]
    assert len(row[1]) == 32
    assert (row[3], row[5:]) == ("3", ["yes", "no"])
    assert moor("list", "--json") == 0
    (facts,) = [one for one in map(json.loads, moor.out.splitlines()) if one["name"] == "listed"]
    assert len(row[2]) == 16
    assert facts["fingerprint"].startswith(row[2])
    assert (facts["id"], facts["queues"], facts["hash"]) == (row[1], 3, row[4])


def test_more_services_than_a_page_are_listed_once_each(moorline: Moorline, moor: Shell) -> None:
    moorline.sql(
        "insert into moorline.service (id, fingerprint, name, salt) "
        "select decode(repeat(lpad(to_hex(n), 2, '0'), 24), 'hex'), "
        "decode(repeat(lpad(to_hex(n), 2, '0'), 32), 'hex'), 'many-' || n, decode(repeat('00', 16), 'hex') "
        "from generate_series(1, 150) n"
    )
    assert moor("list", "--json") == 0
    names = [json.loads(line)["name"] for line in moor.out.splitlines()]
    assert len(names) == len(set(names))
    assert {f"many-{n}" for n in range(1, 151)} <= set(names)
    moorline.sql("delete from moorline.service where name like 'many-%'")


def test_show_finds_a_service_by_name_id_and_fingerprint(moorline: Moorline, moor: Shell) -> None:
    Client(moorline, "shown", 600)
    facts = moor.json("show", "shown")
    assert facts["queues"] == facts["recomputed_queues"] == sum(facts["buckets"]) == 600
    assert facts["hash"] == facts["recomputed_hash"]
    assert facts["is_digest_right"]
    for name in (facts["id"], facts["fingerprint"], facts["fingerprint"][:12].upper()):
        assert moor.json("show", name) == facts
    assert moor("show", "shown") == 0
    assert re.search(r"^buckets +256 with \d+ to \d+ queues, \d+ of them empty$", moor.out, re.M)


def test_a_name_that_is_nobodys_service_is_refused(moor: Shell) -> None:
    assert moor("show", "nobody") == EXIT_REFUSED
    assert "there is no service 'nobody'" in moor.err
    assert moor("show", "") == EXIT_USAGE
    assert moor("show", "x" * 300) == EXIT_USAGE
    assert moor("show", "\udcff") == EXIT_USAGE


def test_a_renewed_certificate_is_the_same_service(moorline: Moorline, moor: Shell) -> None:
    first = Client(moorline, "twin", 3, "twin-1")
    renewed = moorline.certificates("twin", "twin-2")
    assert moor("verify", "twin", "--client-file", first.list, certificates=renewed) == 0
    assert moor.json("show", "twin")["queues"] == 3


def test_queues_are_listed_page_by_page(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "paged", 1_500)
    assert moor("queues", "paged") == 0
    lines = moor.out.splitlines()
    assert len(lines) == 1_500
    assert set(lines) == {text_of(queue) for queue in client.queues}
    assert moor("queues", "paged", "--limit", 700) == 0
    assert moor.out.splitlines() == lines[:700]
    assert moor("queues", "paged", "--limit", 2, "--json") == 0
    assert [json.loads(one)["queue"] for one in moor.out.splitlines()] == lines[:2]


def test_text_from_the_node_is_escaped(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "hostile", 1)
    name = "evil\x1b[2J\nforged"
    moorline.sql("update moorline.service set name = $1 where name = 'hostile'", name)
    assert moor("list") == 0
    assert "evil\\x1b[2J\\x0aforged" in moor.out
    assert moor("list", "--json") == 0
    assert "\x1b" not in moor.out
    (facts,) = [one for one in map(json.loads, moor.out.splitlines()) if one["name"] == name]
    assert moor("show", facts["id"]) == 0
    assert "\x1b" not in moor.out
    asyncio.run(_open(client))  # brings the certificate's own name back


async def _open(client: Client) -> None:
    async with client.connect() as moor, moor.service(client.list):
        pass


# --- switching ------------------------------------------------------------------------------------


def test_a_disabled_service_is_ended_and_refused_until_it_is_enabled(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "paused", 3)

    async def work() -> None:
        async with client.connect() as connected, connected.service(client.list) as service:
            told = await asyncio.to_thread(moor.json, "disable", "paused")
            assert told["was_changed"]
            assert told["sessions_ended"] == 1
            async with asyncio.timeout(20):
                # A client that stays has come back by then, and hears it in another way.
                with pytest.raises((Refused, ServiceDisabled), match=r"(?i)disabled"):
                    await anext(aiter(service))
        async with client.connect() as connected:
            with pytest.raises(ServiceDisabled):
                await connected.service(client.list).agree()

    asyncio.run(work())
    words = ("repair", "paused", "--client-file", client.list)
    assert moor(*words, certificates=client.certificates) == EXIT_REFUSED
    assert "disabled" in moor.err
    assert not moor.json("show", "paused")["is_enabled"]
    assert not moor.json("disable", "paused")["was_changed"]
    assert moor("enable", "paused") == 0
    assert re.search(r"^was changed +yes$", moor.out, re.M)
    asyncio.run(_open(client))
    assert moor.json("show", "paused")["queues"] == 3


# --- who may --------------------------------------------------------------------------------------


def test_whoever_is_no_operator_is_refused(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "private", 2)
    mallory = moorline.certificates("mallory")
    name, file = client.name, ["--client-file", client.list]
    for words in (
        ["list"],
        ["show", name],
        ["show", "nobody"],
        ["queues", name],
        ["verify", name],
        ["verify", name, *file],
        ["repair", name, *file],
        ["repair", name, *file, "--dry-run"],
        ["recompute", name],
        ["recompute", "--all"],
        ["disable", name],
        ["enable", name],
    ):
        assert moor(*words, certificates=mallory) == EXIT_REFUSED
        assert "is not granted at /services" in moor.err
        assert moor.out == ""


def test_a_service_sees_itself_and_changes_nothing_as_an_operator(
    moorline: Moorline, moor: Shell
) -> None:
    client = Client(moorline, "modest", 2)
    assert moor.json("show", "modest", certificates=client.certificates)["queues"] == 2
    assert moor("queues", "modest", certificates=client.certificates) == 0
    assert len(moor.out.splitlines()) == 2
    for command in ("recompute", "disable"):
        assert moor(command, "modest", certificates=client.certificates) == EXIT_REFUSED


def test_an_operator_by_name_comes_from_anywhere(moorline: Moorline, moor: Shell) -> None:
    client = Client(moorline, "remote", 30)
    client.drop(client.queues[:4])
    olga = moorline.certificates("olga")
    words = ("repair", "remote", "--client-file", client.list)
    assert moor.json(*words, certificates=olga)["added"] == 4
    assert moor("verify", "remote", "--client-file", client.list, certificates=olga) == 0


def test_a_node_that_is_not_there_is_one_line(
    moorline: Moorline, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["service", "list", "--address", "tcp://127.0.0.1:1"]) == 10
    assert "is the node running" in capsys.readouterr().err
    assert run(["service", "list", "--address", "udp://x"]) == 3
    assert moorline.node.process.poll() is None


# --- the user's guide -----------------------------------------------------------------------------


def test_every_example_of_the_guide_works(
    moorline: Moorline, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[2] / "docs/services.md").read_text(encoding="utf-8")
    guide = guide.replace("tls://127.0.0.1:7413", moorline.tls)
    monkeypatch.chdir(moorline.folder)
    monkeypatch.setenv("MOOR_ADDRESS", moorline.node.address)
    moorline.certificates("billing")
    programs = re.findall(r"^```python\n(.*?)^```", guide, re.M | re.S)
    printed = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        for program in programs
    ]
    assert printed == ["b'an invoice'\n", "100 queues: 0 added, 0 removed, 2 rounds\n"]
    commands = re.findall(r"^\$ moor (.*)$", guide, re.M)
    assert len(commands) == 14
    for command in commands:
        assert run(shlex.split(command)) == 0, command
